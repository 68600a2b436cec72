package mpi

import (
	"bytes"
	"context"
	"fmt"
	"testing"
)

// 10,000 requests of 1,000 communicators are outstanding at both ranks. They take the queues' entries and
// the requests' slots, which the next ones use again, and nothing for a communicator.
func TestManyRequestsAndContexts(t *testing.T) {
	const contexts, requests, size = 1000, 10_000, 600
	for _, w := range alone {
		t.Run(w.name, func(t *testing.T) {
			es := job(t, w, 2)
			a, b := es[0], es[1]
			ctx := within(t)
			var chunks, slots [2]int
			for round := range 3 {
				var rs []*Request
				in := make([][]byte, requests)
				for i := range requests {
					s := b.from(0, i/contexts)
					s.Context = uint64(i%contexts) << 1
					in[i] = make([]byte, size)
					r, err := b.Irecv(s, in[i])
					if err != nil {
						t.Fatal(err)
					}
					rs = append(rs, r)
				}
				if s := b.Stats(); s.Posted != requests {
					t.Fatalf("%d receives are posted", s.Posted)
				}
				out := fill(size, round)
				for i := range requests {
					to := a.to(1, i/contexts)
					to.Context = uint64(i%contexts) << 1
					r, err := a.Isend(to, out, Synchronous)
					if err != nil {
						t.Fatal(err)
					}
					rs = append(rs, r)
				}
				for _, r := range rs {
					if _, err := r.Wait(ctx); err != nil {
						t.Fatal(err)
					}
				}
				for i := range in {
					if !bytes.Equal(in[i], out) {
						t.Fatalf("receive %d has other data", i)
					}
				}
				for k, e := range es {
					s := e.Stats()
					e.mu.Lock()
					n := len(e.requests)
					e.mu.Unlock()
					if s.Posted+s.Unexpected+s.Requests+s.Cells != 0 {
						t.Errorf("rank %d has left %+v", k, s)
					}
					if round == 0 {
						chunks[k], slots[k] = s.Chunks, n
					} else if s.Chunks != chunks[k] || n > requests+1 {
						t.Errorf("round %d: rank %d has %d chunks and %d slots, and had %d and %d",
							round, k, s.Chunks, n, chunks[k], slots[k])
					}
					if most := (requests+firstEntry)/perChunk + 1; s.Chunks > most {
						t.Errorf("rank %d has %d chunks, want %d at most", k, s.Chunks, most)
					}
				}
			}
		})
	}
}

// A rank that computes is flooded with 1 GB, in short messages and long ones. It keeps the bound of cells
// and of entries, and loses nothing.
func TestFloodOfAGigabyte(t *testing.T) {
	if race {
		t.Skip("the race detector makes copies slow: TestFlood is shorter")
	}
	for _, w := range alone {
		t.Run(w.name, func(t *testing.T) {
			const size, n = 1 << 20, 2048 // every second one has 8 bytes
			long, short := fill(size, 1), fill(8, 2)
			message := func(i int) []byte {
				if i%2 == 0 {
					return short
				}
				return long
			}
			computed := make(chan struct{})
			each(t, job(t, w, 2), func(ctx context.Context, e *Engine) error {
				if e.rank == 0 {
					var rs []*Request
					for i := range n {
						r, err := e.Isend(e.to(1, 0), message(i), Standard)
						if err != nil {
							return err
						}
						rs = append(rs, r)
					}
					close(computed)
					for _, r := range rs {
						if _, err := r.Wait(ctx); err != nil {
							return err
						}
					}
					return nil
				}
				<-computed
				buf := make([]byte, size)
				for i := range n {
					if s := e.Stats(); s.Cells > window || s.Unexpected > n || s.Chunks > 1 {
						return fmt.Errorf("%+v: more than %d cells, %d messages, or one chunk", s, window, n)
					}
					st, err := e.Recv(ctx, e.from(0, 0), buf)
					if err != nil {
						return err
					}
					if want := message(i); st.Bytes != len(want) || !bytes.Equal(buf[:st.Bytes], want) {
						return fmt.Errorf("message %d has other bytes", i)
					}
				}
				return nil
			})
		})
	}
}
