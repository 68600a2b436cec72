package unix

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// Leave moves the calling thread to another processor that shares a cache with its own and that it
// may run on. It returns the processors it was on before and is on after: the same if there is no
// other. A short sleep has the same effect where the kernel picks an idle processor on wake-up. In
// a virtual machine it does not once the idle processor has been given back to the host.
//
// Leave restores the thread's affinity. Since Linux 6.2 the affinity then counts as set by the
// thread: if its cpuset grows later, the thread keeps to the old processors. A change of the
// affinity by another process in the few microseconds in between is lost.
func Leave() (from, to int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from = processor()
	// Not [Nap]: the runtime may give the goroutine's turn to another for as long as it runs.
	var short sys.Timespec
	short.Nsec = 1
	_, _, _ = sys.RawSyscall(sys.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&short)), 0, 0)
	if to = processor(); to != from {
		return from, to
	}
	var may, near sys.CPUSet
	if sys.SchedGetaffinity(0, &may) != nil {
		return from, to
	}
	for _, i := range neighbours(from) {
		if i != from && may.IsSet(i) {
			near.Set(i)
		}
	}
	if near.Count() == 0 || sys.SchedSetaffinity(0, &near) != nil {
		return from, to
	}
	to = processor()
	if sys.SchedSetaffinity(0, &may) != nil {
		runtime.LockOSThread() // what cannot be given back as it was ends with its goroutine
	}
	return from, to
}

// known are the neighbours that were asked for before: that reads a file.
var known [maxCPU + 1]atomic.Pointer[[]int]

// neighbours are the processors that share the outermost cache with one.
func neighbours(cpu int) []int {
	if cpu > maxCPU {
		return nil
	}
	if n := known[cpu].Load(); n != nil {
		return *n
	}
	n := readNeighbours(cpu)
	known[cpu].Store(&n)
	return n
}

func readNeighbours(cpu int) []int {
	for level := 4; level > 0; level-- {
		list, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, level))
		if err == nil {
			return cpuList(string(list))
		}
	}
	return nil
}

// cpuList reads what the kernel writes as 0-3,8. What it does not understand it leaves out.
func cpuList(s string) (out []int) {
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		for i := from; err == nil && err2 == nil && i <= min(to, maxCPU); i++ {
			out = append(out, i)
		}
	}
	return out
}

// maxCPU is the last processor that a set has room for.
const maxCPU = int(unsafe.Sizeof(sys.CPUSet{})*8) - 1

// processor is what the calling thread runs on.
func processor() int {
	var cpu uint32
	_, _, _ = sys.RawSyscall(sys.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	return int(cpu)
}
