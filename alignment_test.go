package vmmc_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// What is said of a word that is not aligned names the size of that word.
func TestAlignmentIsToldOfTheWordAsked(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			narrow, wide := atomics(t, s.im)
			for size, calls := range map[int]map[string]func(int) error{4: narrow, 8: wide} {
				for name, call := range calls {
					for _, off := range []int{1, 2, size / 2, size + size/2} {
						err := call(off)
						if !errors.Is(err, vmmc.ErrBadAlignment) || !strings.Contains(err.Error(), fmt.Sprintf("(%d bytes)", size)) {
							t.Errorf("%s at %d: %v", name, off, err)
						}
					}
				}
			}
			mem := alloc(t, s.b, 4096)
			if _, err := s.b.Export(8, mem[4:4092]); err != nil {
				t.Fatal(err)
			}
			im, err := s.a.Import(within(t), s.b.Node(), s.b.PID(), 8)
			if err != nil {
				t.Fatal(err)
			}
			_, wide = atomics(t, im)
			for name, call := range wide {
				err := call(8)
				if !errors.Is(err, vmmc.ErrBadAlignment) || !strings.Contains(err.Error(), "(8 bytes) in the exporter's memory") {
					t.Errorf("%s in memory that is not aligned: %v", name, err)
				}
			}
		})
	}
}
