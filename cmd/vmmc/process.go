package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// process is a process that the tool started and may not be the parent of. The
// kernel gives pids out again, but not with the same start time.
type process struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // in clock ticks since the machine started
}

// findProcess is the process that has the pid now.
func findProcess(pid int) (process, error) {
	_, started, err := procStat(pid)
	return process{pid, started}, err
}

// alive reports whether the process runs. A zombie does not: in some containers no
// process reaps zombies, and they stay for ever.
func (p process) alive() bool {
	ended, started, err := procStat(p.PID)
	return err == nil && started == p.Started && !ended
}

// procStat reads whether a process has ended and when it was started, fields 3, 20
// and 22 of /proc/PID/stat. Field 2 is the name in parentheses and may hold spaces
// and parentheses itself.
func procStat(pid int) (ended bool, started uint64, err error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	b, err := os.ReadFile(path)
	if err != nil {
		return false, 0, fmt.Errorf("look at process %d: %w", pid, err)
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return false, 0, fmt.Errorf("look at process %d: %s has %d fields behind the name, wanted 20 or more", pid, path, len(f))
	}
	if started, err = strconv.ParseUint(string(f[19]), 10, 64); err != nil {
		return false, 0, fmt.Errorf("look at process %d: start time in %s: %w", pid, path, err)
	}
	// One whose first thread has ended is listed as a zombie too: the others still
	// have its files and its sockets open.
	ended = f[0][0] == 'X' || f[0][0] == 'Z' && string(f[17]) <= "1"
	return ended, started, nil
}

// signal sends a signal to the process and to no other: the handle is taken
// before the start time is compared, so that it cannot come to mean another one.
func (p process) signal(s syscall.Signal) error {
	h, err := os.FindProcess(p.PID)
	if err != nil {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	defer func() { _ = h.Release() }()
	if !p.alive() {
		return nil
	}
	if err := h.Signal(s); err != nil && p.alive() {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// gone polls until none of the processes is alive, and reports whether that happened
// within bound. They are not children of this process, so it cannot wait for them.
func gone(ps []process, bound time.Duration) bool {
	deadline := time.Now().Add(bound)
	for _, p := range ps {
		for p.alive() {
			if time.Now().After(deadline) {
				return false
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return true
}
