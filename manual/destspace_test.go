package manual

import (
	"errors"
	"math"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// The addresses end before 2^64, and what was removed is not given out again.
func TestDestSpaceIsUsedUp(t *testing.T) {
	d := DestSpace{next: math.MaxUint64 - firstAddr - 3*between}
	im, other := new(vmmc.Import), new(vmmc.Import)
	first, err := d.Add(im)
	if err != nil {
		t.Fatal(err)
	}
	second, err := d.Add(im)
	if err != nil || second <= first {
		t.Fatalf("the second range begins at %v, the first one at %v: %v", second, first, err)
	}
	d.Remove(im)
	for range 2 {
		a, err := d.Add(other)
		if errors.Is(err, ErrNoVirtDestSpace) {
			return
		}
		if err != nil || a <= second {
			t.Fatalf("another range begins at %v: %v", a, err)
		}
	}
	t.Error("the addresses do not end")
}
