package shm

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() {
	testutil.RegisterRole("no mapping left", func() int {
		if err := atLimit(); err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	})
}

// Where a process can have no mapping more, it has those that retired regions still take.
func TestRetiredRegionsMakeRoom(t *testing.T) {
	if out, err := testutil.CombinedOutputAtLimit(t, "no mapping left"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func atLimit() error {
	debug.SetGCPercent(-1)
	var regions [100]*Region
	for range 2 { // once to have what the runtime needs for them
		for i := range regions {
			r, err := New("test", PageSize, false)
			if err != nil {
				return err
			}
			regions[i] = r
		}
	}
	_ = make([]byte, 32<<20) // the runtime has room then
	for range 10 {
		runtime.GC()
	}
	if err := fillMappings(); err != nil {
		return err
	}
	var more []*Region // what room there is still, as the first regions are unmapped
	for {
		r, err := New("test", PageSize, false)
		if errors.Is(err, syscall.ENOMEM) {
			break
		}
		if more = append(more, r); err != nil || len(more) > 300 {
			return fmt.Errorf("%d regions more than there is room for: %w", len(more), err)
		}
	}
	const some = 20 // the runtime may take some of the room
	for first := 0; first < len(regions); first += some {
		for i := first; i < first+some; i++ {
			if i%2 == 0 { // of two kinds, so that the kernel does not merge neighbours
				regions[i].Retire()
			} else {
				regions[i].Forbid()
			}
			regions[i] = nil
		}
		for i := first; i < first+some/4; i++ {
			r, err := New("test", PageSize, false)
			if err != nil {
				return fmt.Errorf("region %d: %w", i, err)
			}
			regions[i] = r
		}
	}
	runtime.KeepAlive(&regions)
	runtime.KeepAlive(more)
	return nil
}

// fillMappings makes as many mappings as the system allows.
func fillMappings() error {
	const pages = 200_000
	page := os.Getpagesize()
	all, err := syscall.Mmap(-1, 0, pages*page, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return err
	}
	for i := 1; i < pages; i += 2 {
		err := syscall.Mprotect(all[i*page:(i+1)*page], syscall.PROT_READ)
		if errors.Is(err, syscall.ENOMEM) { // it would have made two
			for syscall.Mprotect(all[(i+1)*page:], syscall.PROT_READ) == nil {
				i++
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
	return errors.New("no end of mappings")
}

// Regions that are retired faster than any collection of the program comes do not pile up, but what
// is in use stays.
func TestRetiredRegionsAreCollected(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var used []*Region
	for range 10 * maxRetired {
		r, err := newPrivate(PageSize)
		if err != nil {
			t.Fatal(err)
		}
		r.Retire()
		if len(used) < 10 {
			used = append(used, r)
		}
		retired.mu.Lock()
		n := len(retired.maps)
		retired.mu.Unlock()
		// A collection may begin when there are twice as many, and so many again before it ends.
		if n > 4*maxRetired {
			t.Fatalf("%d retired regions are not unmapped", n)
		}
	}
	retired.collecting.Lock()
	collect()
	retired.collecting.Unlock()
	for _, r := range used {
		if r.Bytes()[PageSize-1] != 0 { // faults where it is unmapped
			t.Error("a region changes when it is retired")
		}
	}
	retired.mu.Lock()
	defer retired.mu.Unlock()
	if n := len(retired.maps); n < len(used) || n > len(used)+100 {
		t.Errorf("%d retired regions are mapped, and %d are in use", n, len(used))
	}
}
