package vmmc_test

import (
	"math"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// An importer may see a loss later than its exporter does, by as long as it may be silent, and
// begins its limit only then. The exporter waits for it that much longer, however long that is.
func TestExporterWaitsForASilentImporter(t *testing.T) {
	const limit = 300 * time.Millisecond
	for _, c := range []struct {
		name          string
		silence, away time.Duration // 5 s that it waits are of a hello
	}{
		{"seconds", 5 * time.Second, 6500 * time.Millisecond},
		{"centuries", math.MaxInt64, 50 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Its own limit stands for what is left of one that began late.
			a, b, s, events := shakily(t, []vmmc.Option{vmmc.WithResume(30 * time.Second)}, vmmc.WithResume(limit), vmmc.WithSilence(c.silence))
			ctx := within(t)
			im := imported(ctx, t, a, b, 64)
			s.cut(false)
			time.Sleep(c.away)
			s.cut(true)
			awaitEvent(t, events, vmmc.LinkResumed)
			if err := im.Send(ctx, word, 0); err != nil {
				t.Error(err)
			}
		})
	}
}
