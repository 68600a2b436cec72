package vmmctest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const stopSignal, continueSignal = syscall.SIGSTOP, syscall.SIGCONT

// stopped reports whether all threads of a process have stopped.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, stat := range threads {
		b, err := os.ReadFile(stat)
		if i := bytes.LastIndexByte(b, ')'); err == nil && (i < 0 || i+2 >= len(b) || b[i+2] != 'T') {
			return false
		}
	}
	return len(threads) > 0
}
