package vmmc_test

import (
	"testing"

	"github.com/vmmc-go/vmmc"
)

func TestStatesOfImportsAndTheirExport(t *testing.T) {
	for _, way := range []string{"mapped", "stream", "between nodes"} {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			s := exportedAt(t, near, far, way, 64)
			ctx := within(t)
			other, err := s.a.Import(ctx, s.b.Node(), s.b.PID(), s.exp.ID())
			if err != nil {
				t.Fatal(err)
			}
			expect := func(im, second, exp string) {
				t.Helper()
				until(t, "the imports are "+im+" and "+second, func() bool {
					return vmmc.ImportState(s.im) == im && vmmc.ImportState(other) == second
				})
				if got := vmmc.ExportState(s.exp); got != exp {
					t.Errorf("the export is %s, want %s", got, exp)
				}
			}
			twice := func(end func() error) {
				t.Helper()
				for range 2 {
					if err := end(); err != nil {
						t.Error(err)
					}
				}
			}
			expect("open", "open", "exported")
			twice(s.im.Close)
			expect("closed", "open", "exported")
			twice(s.exp.Close)
			expect("closed", "revoked", "ended")
			twice(other.Close)
			expect("closed", "closed", "ended")
		})
	}
}
