package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe" //nolint:depguard // tests of internal/unix import this package, so it cannot import that one
)

// filterRole installs a filter of system calls and becomes another program.
const filterRole = "testutil: filter of system calls"

// filteredEnv has the role that the other program is to have, if it is this test binary.
const filteredEnv = "VMMC_TEST_FILTERED_ROLE"

func init() { RegisterRole(filterRole, filtered) }

// Without has a command of this test binary, which is not started yet, run in a container whose
// filter of system calls (seccomp) refuses these: EPERM, as the filters of container runtimes do
// that are older than the calls.
func Without(t testing.TB, cmd *exec.Cmd, calls ...uintptr) {
	t.Helper()
	Require(t, os.Getuid() == 0,
		"a filter of system calls that keeps capabilities needs root; run the tests as root")
	role := ""
	for _, v := range cmd.Env {
		if r, ok := strings.CutPrefix(v, roleEnv+"="); ok {
			role = r
		}
	}
	args := []string{cmd.Args[0], "--"}
	for _, c := range calls {
		args = append(args, strconv.FormatUint(uint64(c), 10))
	}
	cmd.Args = append(append(args, "--", cmd.Path), cmd.Args...)
	cmd.Path = "/proc/self/exe"
	cmd.Env = append(cmd.Env, filteredEnv+"="+role, roleEnv+"="+filterRole)
}

func filtered() int {
	const (
		loadNumber = syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS // at 0
		allow      = 0x7fff0000
		fail       = 0x00050000 // with an errno
	)
	args := Args()
	i := slices.Index(args, "--")
	program := []syscall.SockFilter{{Code: loadNumber}}
	for _, a := range args[:i] {
		n, err := strconv.ParseUint(a, 10, 32)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		program = append(program,
			syscall.SockFilter{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, Jf: 1, K: uint32(n)},
			syscall.SockFilter{Code: syscall.BPF_RET | syscall.BPF_K, K: fail | uint32(syscall.EPERM)})
	}
	program = append(program, syscall.SockFilter{Code: syscall.BPF_RET | syscall.BPF_K, K: allow})
	filter := syscall.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	runtime.LockOSThread() // the filter is this thread's, and so the other program's
	const setSeccomp, modeFilter = 22, 2
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, setSeccomp, modeFilter,
		uintptr(unsafe.Pointer(&filter))); e != 0 {
		fmt.Fprintln(os.Stderr, "install a filter of system calls:", e)
		return 1
	}
	if role := os.Getenv(filteredEnv); role != "" {
		_ = os.Setenv(roleEnv, role)
	}
	fmt.Fprintln(os.Stderr, syscall.Exec(args[i+1], args[i+2:], os.Environ()))
	return 1
}
