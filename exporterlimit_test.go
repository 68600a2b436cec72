package vmmc_test

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// An importer may see a loss later than its exporter does, by as long as it may be silent, and begins its limit
// only then. The exporter waits for it that much longer.
func TestExporterWaitsForASilentImporter(t *testing.T) {
	t.Parallel()
	const (
		limit   = 300 * time.Millisecond
		silence = 5 * time.Second // and 5 s are of a hello
		away    = 6500 * time.Millisecond
	)
	near, far := nodes(t, "between nodes")
	s := &shaky{}
	t.Cleanup(s.close)
	events := make(chan vmmc.Event, 1024)
	open := func(opts ...vmmc.Option) *vmmc.Process {
		p, err := vmmc.Open(t.Context(), opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	// Its own limit stands for what is left of one that began late.
	a := open(vmmc.WithSocket(near), vmmc.WithResume(30*time.Second), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
	b := open(vmmc.WithSocket(far), vmmc.WithResume(limit), vmmc.WithSilence(silence))
	vmmc.SetDialer(a, s.dial)
	mem := alloc(t, b, 64)
	if _, err := b.Export(7, mem); err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	s.cut(false)
	time.Sleep(away)
	s.cut(true)
	for {
		select {
		case e := <-events:
			switch e.Kind {
			case vmmc.LinkDown:
				continue
			case vmmc.LinkResumed:
			default:
				t.Fatalf("%s: %v", e.Kind, e.Err)
			}
		case <-ctx.Done():
			t.Fatal("the link was not resumed")
		}
		break
	}
	if err := im.Send(ctx, word, 0); err != nil {
		t.Error(err)
	}
}
