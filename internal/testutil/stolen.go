package testutil

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// Stolen is for how long since its start the machine's processors, on average, were ready to run and the
// hypervisor ran others instead; 0 where no hypervisor says so. What a program takes does not depend on it.
func Stolen() time.Duration {
	b, _ := os.ReadFile("/proc/stat")
	var name string
	var ticks [8]int64 // of 10 ms: user, nice, system, idle, iowait, irq, softirq, steal
	in := []any{&name}
	for i := range ticks {
		in = append(in, &ticks[i])
	}
	if _, err := fmt.Sscan(string(b), in...); err != nil {
		return 0
	}
	return time.Duration(ticks[7]) * 10 * time.Millisecond / time.Duration(runtime.NumCPU())
}
