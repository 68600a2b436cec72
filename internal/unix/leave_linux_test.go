package unix

import (
	"slices"
	"testing"
)

// A thread that leaves its processor is on another one then, and may run on all as before.
func TestLeave(t *testing.T) {
	before, err := CPUs()
	if err != nil {
		t.Fatal(err)
	}
	from, to := Leave()
	near := slices.DeleteFunc(neighbours(from), func(cpu int) bool { return cpu == from || !slices.Contains(before, cpu) })
	if len(near) == 0 {
		t.Skipf("no other processor of %v shares a cache with %d", before, from)
	}
	if to == from {
		t.Errorf("it stayed on processor %d, and %v were to be had", from, near)
	}
	if after, err := CPUs(); err != nil || !slices.Equal(after, before) {
		t.Errorf("afterwards it may run on %v, before on %v (%v)", after, before, err)
	}
}

// A thread that is confined to one processor stays there.
func TestLeaveOneProcessor(t *testing.T) {
	all, err := CPUs()
	if err != nil {
		t.Fatal(err)
	}
	cpu := all[len(all)-1]
	err = OnCPU(cpu, func() error {
		if from, to := Leave(); from != cpu || to != cpu {
			t.Errorf("it went from %d to %d, and was confined to %d", from, to, cpu)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCPUList(t *testing.T) {
	for in, want := range map[string][]int{
		"0-1\n": {0, 1}, "3": {3}, "0-2,8,10-11\n": {0, 1, 2, 8, 10, 11}, "": nil, "x,5": {5}, "1-": nil, "1022-99999999": {1022, 1023},
	} {
		if got := cpuList(in); !slices.Equal(got, want) {
			t.Errorf("%q is %v, want %v", in, got, want)
		}
	}
}
