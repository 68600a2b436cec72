package unix

import (
	"fmt"
	"runtime"

	sys "golang.org/x/sys/unix"
)

// CPUs are the processors that this thread may run on.
func CPUs() ([]int, error) {
	var set sys.CPUSet
	if err := sys.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var out []int
	for i := 0; len(out) < set.Count(); i++ {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}
	return out, nil
}

// OnCPU is [OnCPUs] with one processor.
func OnCPU(cpu int, f func() error) error { return OnCPUs([]int{cpu}, f) }

// OnCPUs runs f on a thread that may run on these processors only. A program that f
// starts stays on them, except in a process that has called [KeepStarter].
func OnCPUs(cpus []int, f func() error) error {
	runtime.LockOSThread()
	var was, set sys.CPUSet
	if err := sys.SchedGetaffinity(0, &was); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := sys.SchedSetaffinity(0, &set); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("confine a thread to processors %d: %w", cpus, err)
	}
	err := f()
	// A thread that cannot be given back stays locked and ends with its goroutine.
	if sys.SchedSetaffinity(0, &was) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
