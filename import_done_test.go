package vmmc_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// done fails the test unless the import ends, with an error that is all of these.
func done(t *testing.T, im *vmmc.Import, want ...error) {
	t.Helper()
	select {
	case <-im.Done():
	case <-time.After(bound):
		t.Fatalf("the import does not end: %v", im.Err())
	}
	for _, w := range want {
		if err := im.Err(); !errors.Is(err, w) {
			t.Errorf("the import has ended: %v, want %v", err, w)
		}
	}
}

// Done is closed by each end of an import, and Err keeps the first reason.
func TestImportDone(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			imported(within(t), t, s.b, s.a, 64) // b has a link, too
			var opts []vmmc.ExportOption
			if way != "mapped" {
				opts = append(opts, vmmc.Unmapped())
			}
			exp, revoked := s.another(t, 20, opts...)
			_, closed := s.another(t, 21, opts...)
			for _, im := range []*vmmc.Import{s.im, revoked, closed} {
				select {
				case <-im.Done():
					t.Error("an import that lives is done")
				default:
				}
				if err := im.Err(); err != nil {
					t.Errorf("an import that lives: %v", err)
				}
			}
			if err := exp.Close(); err != nil {
				t.Fatal(err)
			}
			done(t, revoked, vmmc.ErrRevoked)
			if err := closed.Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-closed.Done():
			default:
				t.Error("an import is not done when Close has returned")
			}
			done(t, closed, vmmc.ErrClosed)
			vmmc.SeverLinks(s.b) // as if b had died; b.Close would close the export first
			done(t, s.im, vmmc.ErrPeerGone)
			done(t, revoked, vmmc.ErrRevoked)
			for _, im := range []*vmmc.Import{s.im, revoked, closed} {
				before := im.Err()
				if err := im.Close(); err != nil {
					t.Fatal(err)
				}
				if err := im.Err(); !errors.Is(err, codeOf(before)) {
					t.Errorf("%v, and after Close %v", before, err)
				}
			}
		})
	}
}

// peerDone fails the test unless PeerDone of the import is closed.
func peerDone(t *testing.T, im *vmmc.Import) {
	t.Helper()
	select {
	case <-im.PeerDone():
	case <-time.After(bound):
		t.Fatal("PeerDone is not closed")
	}
}

// PeerDone is closed by the end of the exporter alone, and held back by no handler.
func TestPeerDone(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			var opts []vmmc.ExportOption
			if way != "mapped" {
				opts = append(opts, vmmc.Unmapped())
			}
			exp, revoked := s.another(t, 20, opts...)
			_, closed := s.another(t, 21, opts...)
			if err := exp.Close(); err != nil {
				t.Fatal(err)
			}
			done(t, revoked, vmmc.ErrRevoked)
			if err := closed.Close(); err != nil {
				t.Fatal(err)
			}
			for _, im := range []*vmmc.Import{s.im, revoked, closed} {
				select {
				case <-im.PeerDone():
					t.Error("PeerDone is closed, and the exporter lives")
				default:
				}
			}
			gone := make(chan vmmc.Event, 1)
			s.a.Subscribe(func(e vmmc.Event) {
				if e.Kind == vmmc.PeerGone {
					gone <- e
				}
			})
			s.a.BlockNotifications()
			if err := s.b.Close(); err != nil {
				t.Fatal(err)
			}
			for _, im := range []*vmmc.Import{s.im, revoked, closed} {
				peerDone(t, im)
			}
			if len(gone) != 0 {
				t.Error("PeerGone is run while notifications are blocked")
			}
			if _, err := s.a.UnblockNotifications(); err != nil {
				t.Error(err)
			}
			select {
			case <-gone:
			case <-time.After(bound):
				t.Error("PeerGone is not run")
			}
		})
	}
}

// Imports end with their own process.
func TestImportDoneOfItsProcess(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			if err := s.a.Close(); err != nil {
				t.Fatal(err)
			}
			done(t, s.im, vmmc.ErrClosed)
			peerDone(t, s.im)
		})
	}
}

// When Done is closed because the exporter is gone, its last message is there, whichever of the two
// links ends last. Done is closed before PeerGone is run.
func TestImportDoneAfterTheLastMessage(t *testing.T) {
	const last = 200
	for _, held := range []int{0, 1} {
		t.Run([]string{"the importer's link ends last", "the exporter's link ends last"}[held], func(t *testing.T) {
			here, there := nodes(t, "between nodes")
			gone := make(chan bool, 1)
			imports := make(chan *vmmc.Import, 1)
			a := join(t, here, vmmc.WithEvents(func(e vmmc.Event) {
				if e.Kind != vmmc.PeerGone {
					return
				}
				select {
				case <-(<-imports).Done():
					gone <- true
				default:
					gone <- false
				}
			}))
			b := join(t, there)
			g := newGate(t, held)
			vmmc.SetDialer([]*vmmc.Process{b, a}[held], g.dial)
			mem, far, back := bothWays(t, a, b)
			imports <- far
			word := make(chan uint32, 1)
			go func() {
				<-far.Done()
				word <- binary.LittleEndian.Uint32(mem)
			}()
			g.shut.Store(true)
			for i := uint32(2); i <= last; i++ {
				if err := back.Send(within(t), w32(i), 0); err != nil {
					t.Fatal(err)
				}
			}
			if held == 1 {
				if err := back.Fence(within(t)); err != nil {
					t.Fatal(err)
				}
			}
			vmmc.SeverLinks(b) // as if it had died
			if held == 0 {
				until(t, "the import fails", func() bool { return far.Err() != nil })
				if err := far.Send(t.Context(), w32(7), 0); !errors.Is(err, vmmc.ErrPeerGone) {
					t.Errorf("Err says that the import has ended, and a send: %v", err)
				}
				// That it is closed meanwhile changes nothing.
				until(t, "the import is lost", func() bool { return vmmc.Lost(far) })
				if err := far.Close(); err != nil {
					t.Error(err)
				}
				select {
				case <-far.Done():
					t.Error("Done is closed while messages of the exporter may arrive")
				case <-far.PeerDone():
					t.Error("PeerDone is closed while messages of the exporter may arrive")
				default:
				}
			} else {
				until(t, "the importer is forgotten", func() bool { return vmmc.Grants(a) == 0 })
			}
			g.open()
			done(t, far, vmmc.ErrPeerGone)
			peerDone(t, far)
			if w := <-word; w != last {
				t.Errorf("%d of %d messages had arrived", w, last)
			}
			if !<-gone {
				t.Error("PeerGone was run before Done was closed")
			}
		})
	}
}
