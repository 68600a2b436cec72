package link

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// another gives b one more importer, which has its memory mapped.
func (p *pair) another(t *testing.T, pa, pb shmlayout.Process, target *Target) (*Responder, *Requester) {
	t.Helper()
	fa, fb, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	ring, err := shmlayout.NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	back, err := shmlayout.NewExporter()
	if err != nil {
		t.Fatal(err)
	}
	ga := &Pages{Peer: view(t, pb.Region, shmlayout.OpenProcess), Ring: ring, Back: view(t, back.Region, shmlayout.OpenExporter)}
	gb := &Pages{Peer: view(t, pa.Region, shmlayout.OpenProcess), Ring: view(t, ring.Region, shmlayout.OpenImporter), Back: back}
	rs, err := NewResponder(p.b, fb, gb, Terms{}, []*Target{target}, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	rq, err := NewRequester(p.a, fa, ga, Terms{}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	return rs, rq
}

// Importers whose notifications never end, by whichever way, do not keep those of
// others from running.
func TestNotificationsAreFairBetweenLinks(t *testing.T) {
	for _, way := range []string{"mapped", "stream"} {
		t.Run(way, func(t *testing.T) {
			a, pa := engine(t)
			b, pb := engine(t)
			p := &pair{a: a, b: b}
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			mapped := func(run func(int, uint32, []byte)) (*Responder, *Requester, *Mapped) {
				r, err := shm.New("test", shm.PageSize, false)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(r.Retire)
				rs, rq := p.another(t, pa, pb, &Target{Handle: 1, Mem: r.Bytes(), Write: true, Notify: run})
				if err := r.Seal(false); err != nil {
					t.Fatal(err)
				}
				m := NewMapped(rq, 1, view(t, r, func(fd int) (*shm.Region, error) { return shm.Open(fd, shm.PageSize, true) }), 0, shm.PageSize, 0, 0, 0)
				t.Cleanup(m.Close)
				return rs, rq, m
			}
			word := make([]byte, 4)
			ready, quiet := make(chan struct{}), make(chan struct{})
			var again func() error
			var rs *Responder
			var rq *Requester
			var loud *Mapped
			over := func() bool {
				select {
				case <-quiet:
					return true
				default:
					return false
				}
			}
			rs, rq, loud = mapped(func(int, uint32, []byte) {
				<-ready // the race detector does not see what is ordered by shared pages
				if err := again(); err != nil && !over() {
					t.Error(err)
				}
				for way == "stream" && !rs.HasNotifications() && !over() { // until the next one is there
					runtime.Gosched()
				}
			})
			ran := make(chan struct{}, 64)
			_, _, soft := mapped(func(int, uint32, []byte) { ran <- struct{}{} })
			again = func() error { return loud.SendNotify(ctx, 0, word) }
			if way == "stream" {
				again = func() error {
					_, err := rq.Send(ctx, Message{Handle: 1, Src: word, Notify: true})
					return err
				}
			}
			close(ready)
			for range 8 {
				if err := again(); err != nil {
					t.Fatal(err)
				}
			}
			defer close(quiet)
			for i := range 32 {
				if err := soft.SendNotify(ctx, 0, word); err != nil {
					t.Fatal(err)
				}
				select {
				case <-ran:
				case <-time.After(5 * time.Second):
					t.Fatalf("notification %d waits for ever, others run", i)
				}
			}
		})
	}
}
