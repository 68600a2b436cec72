package unix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// markSignal is a real-time signal that no other code sends. A tracer keeps it from being
// delivered. Without a tracer Go's handler takes it and does nothing.
const markSignal = 40

// pcOffset is where struct user has the instruction pointer.
const pcOffset = unsafe.Offsetof(sys.PtraceRegs{}.Rip)

// Thread is one of this process, for a goroutine that is locked to it.
type Thread struct{ pid, tid int }

// OwnThread is the thread that the caller is locked to.
func OwnThread() Thread { return Thread{os.Getpid(), sys.Gettid()} }

// ID is the thread's number, for Seize.
func (t Thread) ID() int { return t.tid }

// Mark stops the thread where its tracer sees it. The raw calls leave the scheduler out.
func (t Thread) Mark() {
	_, _, _ = sys.RawSyscall(sys.SYS_TGKILL, uintptr(t.pid), uintptr(t.tid), markSignal)
}

// Tracee is a thread of a child, traced by the thread that the caller is locked to: only that one
// may use it. When the tracer ends, the kernel kills the child.
type Tracee struct {
	pid     int
	tid     int
	monitor *monitor // found at the first mark, when the program runs for sure
	stopped bool
	own     sys.CPUSet // the processors of the tracing thread
	pending uintptr    // a signal that stopped it, to be delivered as it goes on
	pc      [8]byte
}

// Seize begins to trace a running thread of the Go program pid.
func Seize(pid, tid int) (*Tracee, error) {
	if err := ptrace(sys.PTRACE_SEIZE, tid, sys.PTRACE_O_EXITKILL); err != nil {
		return nil, os.NewSyscallError("ptrace (seize)", err)
	}
	t := &Tracee{pid: pid, tid: tid}
	// A step is two switches between the threads. Between two processors each of them wakes one,
	// which takes twenty times as long.
	if err := t.gather(); err != nil {
		return t, fmt.Errorf("putting tracer and traced thread on one processor: %w", err)
	}
	return t, nil
}

// gather puts both threads on one processor that both may use.
func (t *Tracee) gather() error {
	var his, one sys.CPUSet
	if err := sys.SchedGetaffinity(0, &t.own); err != nil {
		return err
	}
	if err := sys.SchedGetaffinity(t.tid, &his); err != nil {
		return err
	}
	for cpu := range len(his) * 64 {
		if his.IsSet(cpu) && t.own.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := sys.SchedSetaffinity(t.tid, &one); err != nil {
		return err
	}
	return sys.SchedSetaffinity(0, &one)
}

// ToMark lets the thread run up to its next mark.
func (t *Tracee) ToMark() error {
	for {
		if stop, err := t.resume(sys.PTRACE_CONT); err != nil || stop == markSignal {
			return err
		}
	}
}

// StepToMark takes the thread to its next mark and says how many instructions it ran on the way.
// A system call is one instruction, and so is one with a repeat prefix, however often it traps.
func (t *Tracee) StepToMark() (n int, err error) {
	var last uint64
	first := true
	err = t.stepToMark(func() error {
		now, err := t.where()
		if now != last && !first {
			n++
		}
		last, first = now, false
		return err
	})
	return n, err
}

// Step is where a traced thread stands.
type Step struct {
	PC   uint64    // Address of the instruction that it executes next.
	Call uint64    // If that is a system call: its number,
	Args [2]uint64 // and its first arguments.
}

// EachStep takes the thread to its next mark, and calls step at each instruction that it gets to,
// the mark included. The thread stands still meanwhile. An error of step ends the tracing. An
// instruction with a repeat prefix is one.
func (t *Tracee) EachStep(step func(Step) error) error {
	var last uint64
	at := func() error {
		var regs sys.PtraceRegs
		if err := sys.PtraceGetRegs(t.tid, &regs); err != nil {
			return os.NewSyscallError("ptrace (registers)", err)
		}
		if regs.Rip == last {
			if err := t.skipRepeats(regs.Rip); err != nil {
				return err
			}
			if err := sys.PtraceGetRegs(t.tid, &regs); err != nil || regs.Rip == last {
				return os.NewSyscallError("ptrace (registers)", err)
			}
		}
		last = regs.Rip
		return step(Step{PC: regs.Rip, Call: regs.Rax, Args: [2]uint64{regs.Rdi, regs.Rsi}})
	}
	if err := t.stepToMark(at); err != nil {
		return err
	}
	return at()
}

// skipRepeats lets the thread run to the end of an instruction with a repeat prefix, which traps
// after each repetition otherwise: a breakpoint replaces the next instruction meanwhile.
func (t *Tracee) skipRepeats(pc uint64) error {
	code := make([]byte, 4)
	if _, err := sys.PtracePeekText(t.tid, uintptr(pc), code); err != nil {
		return os.NewSyscallError("ptrace (peek)", err)
	}
	length := 2
	if code[1]&0xf0 == 0x40 { // a prefix of 64-bit operands
		length++
	}
	if code[0] != 0xf3 {
		return nil
	}
	const breakpoint = 0xcc
	next := uintptr(pc) + uintptr(length)
	if _, err := sys.PtracePokeText(t.tid, next, []byte{breakpoint}); err != nil {
		return os.NewSyscallError("ptrace (poke)", err)
	}
	stop, err := t.resume(sys.PTRACE_CONT)
	if err != nil {
		return err
	}
	if _, err := sys.PtracePokeText(t.tid, next, code[length:length+1]); err != nil {
		return os.NewSyscallError("ptrace (poke)", err)
	}
	var regs sys.PtraceRegs
	if err := sys.PtraceGetRegs(t.tid, &regs); err != nil {
		return os.NewSyscallError("ptrace (registers)", err)
	}
	if stop != sys.SIGTRAP || regs.Rip != uint64(next)+1 {
		return nil // a signal came first: the rest is stepped
	}
	regs.Rip--
	return os.NewSyscallError("ptrace (registers)", sys.PtraceSetRegs(t.tid, &regs))
}

// stepToMark calls step before each instruction up to the next mark.
func (t *Tracee) stepToMark(step func() error) (err error) {
	if t.monitor == nil {
		if t.monitor, err = findMonitor(t.pid); err != nil {
			return err
		}
	}
	if err := t.monitor.hold(); err != nil {
		return err
	}
	for err = step(); err == nil; {
		var stop sys.Signal
		if stop, err = t.resume(sys.PTRACE_SINGLESTEP); err != nil || stop == markSignal {
			break
		}
		if stop != sys.SIGTRAP {
			continue // its handler is counted too, and spoils this round
		}
		err = step()
	}
	if err == nil {
		err = t.monitor.free()
	}
	return err
}

// Release lets the thread go on by itself, from a mark.
func (t *Tracee) Release() error {
	if t.monitor != nil { // first: the program may end as soon as the thread goes on
		if err := t.monitor.release(); err != nil {
			return err
		}
		t.monitor = nil
	}
	if err := sys.SchedSetaffinity(0, &t.own); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	return os.NewSyscallError("ptrace (detach)", sys.PtraceDetach(t.tid))
}

// Bury reaps the threads of a process that was killed. Until then no process learns of its end.
func (t *Tracee) Bury() {
	tids := []int{t.tid}
	if t.monitor != nil {
		tids = append(tids, t.monitor.tid)
	}
	for _, tid := range tids {
		for ws, err := wait4(tid); err == nil && ws.Stopped(); ws, err = wait4(tid) {
			continue
		}
	}
	_ = sys.SchedSetaffinity(0, &t.own)
}

// resume lets the thread go on and returns the signal that stops it next; 0 is a stop without one.
func (t *Tracee) resume(how int) (sys.Signal, error) {
	if t.stopped {
		if err := ptrace(how, t.tid, t.pending); err != nil {
			return 0, os.NewSyscallError("ptrace (resume)", err)
		}
	}
	t.pending, t.stopped = 0, false
	ws, err := wait4(t.tid)
	if err != nil {
		return 0, err
	}
	t.stopped = ws.Stopped()
	switch {
	case !t.stopped:
		return 0, fmt.Errorf("the traced thread %d has ended (status %#x)", t.tid, uint32(ws))
	case ws>>16 != 0:
		return 0, nil // a stop of the whole group, or an event
	case ws.StopSignal() != sys.SIGTRAP && ws.StopSignal() != markSignal:
		t.pending = uintptr(ws.StopSignal())
	}
	return ws.StopSignal(), nil
}

func (t *Tracee) where() (uint64, error) {
	_, err := sys.PtracePeekUser(t.tid, pcOffset, t.pc[:])
	return binary.LittleEndian.Uint64(t.pc[:]), os.NewSyscallError("ptrace (peek)", err)
}

// ptrace is for the requests whose data is a number, with a signal where x/sys has none.
func ptrace(request, tid int, data uintptr) error {
	if _, _, e := sys.Syscall6(sys.SYS_PTRACE, uintptr(request), uintptr(tid), 0, data, 0, 0); e != 0 {
		return e
	}
	return nil
}

// wait4 waits for a traced thread to stop or end.
func wait4(tid int) (ws sys.WaitStatus, err error) {
	for {
		if _, err = sys.Wait4(tid, &ws, sys.WALL, nil); !errors.Is(err, sys.EINTR) {
			return ws, os.NewSyscallError("wait4", err)
		}
	}
}
