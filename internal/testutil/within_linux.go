package testutil

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Delays begins to count for how long threads of this process, all together, are ready to run and
// have no processor, or the machine itself has none. Where the kernel does not count that it is
// what a timer is late by.
func Delays() (since func() time.Duration) {
	before, ok := waited()
	if !ok {
		return timerDelays()
	}
	stolen := steal()
	return func() time.Duration {
		after, _ := waited()
		return max(0, after-before) + max(0, steal()-stolen)
	}
}

// waited is the sum of what the threads have waited for a processor (schedstat,
// proc_pid_schedstat(5)).
func waited() (sum time.Duration, ok bool) {
	files, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		var ran, waits int64
		if _, err := fmt.Sscan(string(b), &ran, &waits); err == nil {
			sum, ok = sum+time.Duration(waits), ok || ran > 0
		}
	}
	return sum, ok
}

// steal is what a hypervisor has taken from this machine's processors.
func steal() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	var name string
	var n [8]int64 // user, nice, system, idle, iowait, irq, softirq, steal: in 100ths of a second
	if _, err := fmt.Sscan(line, &name, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6],
		&n[7]); err != nil {
		return 0
	}
	return time.Duration(n[7]) * 10 * time.Millisecond
}
