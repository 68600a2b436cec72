package baseline

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// meeting is the importer, the exporter and the introducer between them, here in one process.
func meeting(t *testing.T) (i *Introducer, im, ex *Introduced) {
	t.Helper()
	testutil.Require(t, runtime.GOOS == "linux", "memfd needs Linux")
	i, near, far, err := NewIntroducer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	if im, err = NewImporter(near); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(im.Close)
	if ex, err = NewExporter(far); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ex.Close)
	return i, im, ex
}

func TestIntroduction(t *testing.T) {
	_, im, ex := meeting(t)
	n := 0
	if err := im.Import(t.Context(), 20, func(d time.Duration) {
		if n++; d <= 0 {
			t.Errorf("import %d took %v", n, d)
		}
	}); err != nil || n != 20 {
		t.Errorf("%d of 20 imports, %v", n, err)
	}
	im.Close()
	ex.Close()
	if ex.socket >= 0 || len(ex.last) > 0 {
		t.Error("the exporter keeps its latest link")
	}
}

// A process that waits for another one is told when that one has ended.
func TestIntroductionEnds(t *testing.T) {
	for name, end := range map[string]func(*Introducer, *Introduced){
		"exporter":   func(_ *Introducer, ex *Introduced) { ex.Close() },
		"introducer": func(i *Introducer, _ *Introduced) { i.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			i, im, ex := meeting(t)
			n := 0
			err := im.Import(t.Context(), 1e9, func(time.Duration) {
				if n++; n == 3 {
					end(i, ex)
				}
			})
			if err == nil || errors.Is(err, errNoAnswer) {
				t.Errorf("after %d imports: %v", n, err)
			}
		})
	}
	_, im, _ := meeting(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := im.Import(ctx, 1e9, func(time.Duration) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("one that is given up: %v", err)
	}
}
