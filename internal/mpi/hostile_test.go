package mpi

import (
	"sync"
	"testing"
)

// A rank that sends a false envelope is gone, and no program gets what it says. Others go on.
func TestFalseEnvelopes(t *testing.T) {
	const early, posted, probed = "before the receive", "after the receive", "after a probe"
	for about, c := range map[string]struct {
		h    Header
		size int
		when string
	}{
		"negative length":           {Header{kind: kindRTS, source: 1, length: 1 << 63}, 0, early},
		"length beyond all memory":  {Header{kind: kindRTS, source: 1, length: 1<<62 + 1}, 0, posted},
		"wildcard as source":        {Header{kind: kindEager, source: AnySource, length: 8}, 8, early},
		"source beyond the job":     {Header{kind: kindEager, source: 3, length: 8}, 8, posted},
		"wildcard as tag":           {Header{kind: kindEager, source: 1, tag: AnyTag, length: 8}, 8, early},
		"tag below all":             {Header{kind: kindEager, source: 1, tag: -5, length: 8}, 8, posted},
		"wildcard in a collective":  {Header{kind: kindRTS, source: 1, tag: AnyTag, context: 1, length: 8}, 0, posted},
		"eager as another":          {Header{kind: kindEager, source: 2, length: 8}, 8, early},
		"eager as another, posted":  {Header{kind: kindEager, source: 2, length: 8}, 8, posted},
		"eager as another, probed":  {Header{kind: kindEager, source: 2, length: 8}, 8, probed},
		"rendezvous as another":     {Header{kind: kindRTS, source: 2, length: 8}, 0, early},
		"rendezvous as one, posted": {Header{kind: kindRTS, source: 2, length: 8}, 0, posted},
		"rendezvous as one, probed": {Header{kind: kindRTS, source: 2, length: 8}, 0, probed},
	} {
		t.Run(about, func(t *testing.T) {
			es := job(t, ways[0], 3)
			meet(t, es)
			a, b, other := es[0], es[1], es[2]
			ctx := within(t)
			forge := func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				h := c.h
				if !b.peers[0].port.Send(&h, make([]byte, c.size)) {
					t.Error("the ring of a rank that has sent nothing is full")
				}
			}
			failed := func() bool {
				a.step()
				a.mu.Lock()
				defer a.mu.Unlock()
				return a.peers[1].err != nil
			}
			in := make([]byte, 8)
			var r *Request
			var err error
			var probes sync.WaitGroup
			switch c.when {
			case early:
				forge()
				for !failed() && a.Stats().Unexpected == 0 && ctx.Err() == nil {
				}
			case probed:
				probes.Go(func() {
					st, _, err := a.Probe(ctx, a.from(2, 0), true)
					if err != nil || st.Source != 2 || st.Bytes != 8 {
						t.Errorf("the probe gets %+v, %v", st, err)
					}
				})
				for n := 0; n == 0 && ctx.Err() == nil; {
					a.mu.Lock()
					n = len(a.probers)
					a.mu.Unlock()
				}
			}
			if c.when != probed {
				if r, err = a.Irecv(a.from(2, 0), in); err != nil {
					t.Fatal(err)
				}
			}
			if c.when != early {
				forge()
			}
			for !failed() {
				if ctx.Err() != nil {
					t.Fatal("the rank that sends it is not gone")
				}
			}
			if err := other.Send(ctx, other.to(0, 0), fill(8, 2), Standard); err != nil {
				t.Fatal(err)
			}
			probes.Wait()
			if r != nil {
				if st, err := r.Wait(ctx); err != nil || st.Source != 2 {
					t.Fatalf("the receive gets %+v, %v", st, err)
				}
				checkFill(t, in, 2)
				if s := a.Stats(); s.Cells != 0 || s.Unexpected != 0 {
					t.Errorf("what it has sent is kept: %+v", s)
				}
			}
			for _, e := range es { // rank 1 is gone, so not all come to Finalize
				if err := e.release(); err != nil {
					t.Error(err)
				}
			}
			clear(es)
		})
	}
}
