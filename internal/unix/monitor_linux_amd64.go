package unix

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	sys "golang.org/x/sys/unix"
)

// monitor is the thread on which Go's runtime watches the others. It asks a goroutine that has run
// for 10 ms to make way, which stepping takes easily, and that costs instructions; so it is held
// while another thread is stepped. Held only in its sleep: there it has no lock that others need.
type monitor struct{ tid int }

// monitorTries times monitorPause is how long it may take until it sleeps. It does so for 10 ms at
// most, and again and again.
const (
	monitorTries = 10000
	monitorPause = 100 * time.Microsecond
)

var errNoMonitor = errors.New("no thread of it sleeps as Go's monitor does")

// findMonitor traces that thread of a Go program that runs.
func findMonitor(pid int) (*monitor, error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	asleep := fmt.Sprintf("%d ", sys.SYS_NANOSLEEP)
	for range monitorTries {
		threads, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, thread := range threads {
			call, err := os.ReadFile(dir + "/" + thread.Name() + "/syscall")
			if err != nil || !strings.HasPrefix(string(call), asleep) {
				continue // it may be over
			}
			m := &monitor{}
			if _, err := fmt.Sscan(thread.Name(), &m.tid); err != nil {
				return nil, err
			}
			return m, os.NewSyscallError("ptrace (seize)", ptrace(sys.PTRACE_SEIZE, m.tid, sys.PTRACE_O_EXITKILL))
		}
		time.Sleep(monitorPause)
	}
	return nil, errNoMonitor
}

// hold stops the thread in its sleep.
func (m *monitor) hold() error {
	var regs sys.PtraceRegs
	for range monitorTries {
		if err := m.stop(); err != nil {
			return err
		}
		if err := sys.PtraceGetRegs(m.tid, &regs); err != nil {
			return os.NewSyscallError("ptrace (registers)", err)
		}
		if regs.Orig_rax == sys.SYS_NANOSLEEP {
			return nil
		}
		if err := m.free(); err != nil {
			return err
		}
		time.Sleep(monitorPause)
	}
	return errNoMonitor
}

// free lets it sleep on.
func (m *monitor) free() error {
	return os.NewSyscallError("ptrace (resume)", ptrace(sys.PTRACE_CONT, m.tid, 0))
}

// release ends the tracing.
func (m *monitor) release() error {
	if err := m.stop(); err != nil {
		return err
	}
	return os.NewSyscallError("ptrace (detach)", sys.PtraceDetach(m.tid))
}

func (m *monitor) stop() error {
	if err := sys.PtraceInterrupt(m.tid); err != nil {
		return os.NewSyscallError("ptrace (interrupt)", err)
	}
	ws, err := wait4(m.tid)
	if err == nil && !ws.Stopped() {
		err = fmt.Errorf("the traced thread %d has ended (status %#x)", m.tid, uint32(ws))
	}
	return err
}
