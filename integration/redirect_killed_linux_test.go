package integration

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// An importer on one node is killed in the middle of a long message that is redirected. The
// exporter ends the redirection and hears how far it came, no part of the message counts as a whole
// one, and another importer's messages go on, redirected too.
func TestImporterKilledInARedirectedMessage(t *testing.T) {
	for _, c := range []struct {
		name     string
		unmapped bool
		named    bool // the importer has the target mapped, and copies
		many     bool // another importer sends all the while
		before   bool // the redirection is ended before the importer is
	}{
		{name: "target not named"},
		{name: "target not named, redirection ended before", before: true},
		{name: "target named", named: true},
		{name: "stream", unmapped: true},
		{name: "stream, redirection ended before", unmapped: true, before: true},
		{name: "two importers", many: true},
		{name: "two importers, redirection ended before", many: true, before: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := up(t, 1, nil, nil)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			events := make(chan vmmc.Event, 100)
			p := join(t, cl, 0, vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
			mem, err := p.Alloc(floodSize)
			if err != nil {
				t.Fatal(err)
			}
			to, err := p.Alloc(floodSize)
			if err != nil {
				t.Fatal(err)
			}
			opts := []vmmc.ExportOption{vmmc.WithHandler(func(vmmc.Notification) {})}
			if c.unmapped {
				opts = append(opts, vmmc.Unmapped())
			}
			if c.many {
				opts = append(opts, vmmc.ManySenders())
			}
			if c.named {
				opts = append(opts, vmmc.Redirectable(to))
			} else {
				opts = append(opts, vmmc.Redirectable())
			}
			exp, err := p.Export(1, mem.Bytes(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			others := uint64(0)
			var other *vmmc.Import
			sends := func(v byte, off int) { // a message of the other importer
				t.Helper()
				if err := other.SendNotify(ctx, bytes.Repeat([]byte{v}, 4096), off); err != nil {
					t.Fatalf("another importer's message: %v", err)
				}
				if err := other.Fence(ctx); err != nil {
					t.Fatal(err)
				}
				others++
			}
			q := join(t, cl, 0)
			if c.many {
				other = import1(t, q, 0, p.PID(), 1)
			}
			killed, cmd, _ := spawn(t, cl, 0, "flood", "n0", number(p.PID()), "notify")
			caught(t, cmd.Process.Pid, exp, to.Bytes(), true)
			partial := to.Bytes()[0]
			exp.ClearDataEnd()
			if c.many { // to the buffer: the redirection is the stopped importer's
				sends(0xaa, 4096)
				if b := mem.Bytes()[4096:8192]; !bytes.Equal(b, bytes.Repeat([]byte{0xaa}, 4096)) {
					t.Error("another importer's message is not in the buffer")
				}
				exp.ClearDataEnd()
			}
			reached := func() { // the redirection ends, and says how far it has come
				t.Helper()
				n, first, err := exp.EndRedir(ctx)
				slack := 0
				if c.named {
					slack = 16 << 10 // the piece that the importer was copying
				}
				if c.named && !errors.Is(err, vmmc.ErrPeerGone) || !c.named && err != nil {
					t.Errorf("the end of the redirection: %v", err)
				}
				if n <= 0 || n >= floodSize || first != 0 {
					t.Errorf("%d bytes at %d of %d were redirected", n, first, floodSize)
				}
				b := to.Bytes()
				for i, v := range b[:n] {
					if v != partial {
						t.Fatalf("byte %d of %d that were redirected is %#x, want %#x", i, n, v, partial)
					}
				}
				if i := bytes.IndexByte(b[min(len(b), n+slack):], partial); i >= 0 {
					t.Errorf("a byte lies %d behind the %d that were redirected", i+slack, n)
				}
			}
			if c.before {
				reached()
			}
			kill(t, cmd)
			for e := next(t, events, vmmc.PeerGone, 20*time.Second); e.Peer.PID != killed; {
				e = next(t, events, vmmc.PeerGone, 20*time.Second)
			}
			if off, ok := exp.DataEnd(); ok {
				t.Errorf("a message that was cut off has an end of data, at %d", off)
			}
			if last := shm.Word(to.Bytes(), floodSize-4).Load(); byte(last) == partial {
				t.Error("the last word of a message that was cut off is there")
			}
			if !c.before {
				reached()
			}
			if other == nil {
				for other == nil { // one process at a time may import the buffer, and the exporter may not have let go yet
					n, err := q.NameToNode("n0")
					if err != nil {
						t.Fatal(err)
					}
					if other, err = q.Import(ctx, n, p.PID(), 1); err != nil && !errors.Is(err, vmmc.ErrNoRights) {
						t.Fatal(err)
					}
				}
			}
			if err := exp.PostRedir(to.Bytes()[:4096], 0); err != nil {
				t.Fatal(err)
			}
			sends(0xbb, 0)
			if n, first, err := exp.EndRedir(ctx); n != 4096 || first != 0 || err != nil || !bytes.Equal(to.Bytes()[:4096], bytes.Repeat([]byte{0xbb}, 4096)) {
				t.Errorf("of the next message %d bytes at %d were redirected: %v", n, first, err)
			}
			sends(0xcc, 0)
			if b := mem.Bytes()[:4096]; !bytes.Equal(b, bytes.Repeat([]byte{0xcc}, 4096)) {
				t.Error("a message after the redirection is not in the buffer")
			}
			if off, ok := exp.DataEnd(); off != 4092 || !ok {
				t.Errorf("the end of data is %d, %v", off, ok)
			}
			whole := uint64(partial - 1) // the killed importer's, modulo 256
			for n := exp.Notified(); byte(n) != byte(whole+others); {
				if n, err = exp.WaitNotified(ctx, n); err != nil {
					t.Fatalf("%d notifications, want those of %d messages and of %d of the other importer (modulo 256): %v", n, whole, others, err)
				}
			}
			if err := exp.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
