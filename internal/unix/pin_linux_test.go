package unix

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A program that is started there stays on the processor; the others are free again.
func TestOnCPU(t *testing.T) {
	before, err := CPUs()
	if err != nil || len(before) == 0 {
		t.Fatalf("processors: %v, %v", before, err)
	}
	var inside []int
	var out []byte
	why := errors.New("passed on")
	err = OnCPU(before[0], func() (err error) {
		if inside, err = CPUs(); err != nil {
			return err
		}
		if out, err = exec.Command("grep", "Cpus_allowed_list", "/proc/self/status").Output(); err != nil {
			return err
		}
		return why
	})
	if !errors.Is(err, why) {
		t.Fatal(err)
	}
	if f := strings.Fields(string(out)); !slices.Equal(inside, before[:1]) || len(f) != 2 || strings.ContainsAny(f[1], ",-") {
		t.Errorf("on processor %d: the thread may run on %v, a child on %q", before[0], inside, out)
	}
	if after, err := CPUs(); err != nil || !slices.Equal(after, before) {
		t.Errorf("afterwards on %v, was %v, %v", after, before, err)
	}
	if err := OnCPU(1023, func() error { return nil }); err == nil {
		t.Error("there is a processor 1023")
	}
}

func TestFutex(t *testing.T) {
	var w atomic.Uint32
	if err := SleepOn(&w, 1, time.Hour); err != nil { // not the value
		t.Fatal(err)
	}
	if err := SleepOn(&w, 0, time.Millisecond); err != nil { // no Rouse wakes it
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		for w.Load() == 0 {
			if err := SleepOn(&w, 0, time.Minute); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	w.Store(1)
	for {
		Rouse(&w)
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}
