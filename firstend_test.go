package vmmc_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// An export that ends while its first import and the link are made: the importer gets nothing, or
// is told on the link, at whatever moment that was.
func TestExportEndsWhileItsFirstImportIsMade(t *testing.T) {
	w := newCrown(t)
	mine, err := shmlayout.NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mine.Retire)
	made, yields := 0, 10 // before the end: about as many as the import takes, however busy the machine
	for n := uint64(1); n <= 200; n++ {
		const buffer = 30
		e, err := w.p.Export(buffer, make([]byte, 64))
		if err != nil {
			t.Fatal(err)
		}
		ring, err := shmlayout.NewImporter()
		if err != nil {
			t.Fatal(err)
		}
		socket, near, err := unix.StreamPair()
		if err != nil {
			t.Fatal(err)
		}
		pages := []int{descriptor(t, mine.Region), descriptor(t, ring.Region), near}
		id := local.ProcessID{Node: "a", PID: 2, Incarnation: n}
		w.offer(t, id) // of another buffer, without which its link would not begin
		r := local.OfferRequest{Importer: local.Importer{Process: id}, ID: buffer, Serial: n + 1, SameNode: true, Order: n}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range yields {
				unix.Yield()
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		g, fds, err := local.Ask[local.Grant](t.Context(), w.Conn, local.Offer, r, pages)
		closeAll(pages)
		wg.Wait()
		ring.Retire()
		if err != nil {
			_ = unix.Close(socket)
			if !errors.Is(err, code.BadRbufState) {
				t.Fatal(err)
			}
			yields = min(yields+yields/4+1, 1000)
			continue
		}
		if g.Link == nil || len(fds) != local.LinkPages {
			t.Fatalf("a grant without a link: %+v with %d descriptors", g, len(fds))
		}
		made++
		yields -= yields / 4
		closeAll(fds)
		link := newRaid(t, socket, shmlayout.Importer{}, shmlayout.Exporter{})
		var none unix.Passed
		if h := link.listen(t, &none); h.Type != wire.Revoke || h.Handle != g.Handle {
			t.Fatalf("of the end of import %d the importer hears %+v", g.Handle, h)
		}
		closeAll(none.Rest())
		_ = unix.Close(link.fd)
		link.fd = -1
	}
	t.Logf("%d imports were made", made) // on a machine that is very busy it may be none
}
