package update

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/shm"
)

const madvCollapse = 25 // MADV_COLLAPSE: make it huge pages, with any setting of the system

// A writer that never waits, on huge pages too: nothing of what it stored before a
// full pass is missing after it.
func TestStoresBesidePasses(t *testing.T) {
	const size = 8 << 20
	for _, huge := range []bool{false, true} {
		for _, how := range []string{"watched", "watched by several threads", "twin"} {
			t.Run(fmt.Sprintf("huge %v, %s", huge, how), func(t *testing.T) {
				twin := how == "twin"
				r := aligned(t, size)
				for i := 0; i < size; i += 4096 {
					r.Bytes()[i] = 1
				}
				if huge {
					if err := syscall.Madvise(r.Bytes(), madvCollapse); err != nil {
						t.Skip("no huge pages: ", err)
					}
				}
				b, far, near := made(t, r, 0, size, func(c *Config) { c.CompareOnly, c.All = twin, true })
				far.mem = aligned(t, size).Bytes() // as an exporter's is, which the race detector knows nothing of
				if huge {
					_ = syscall.Madvise(r.Bytes(), madvCollapse) // while it is bound: as bad as it can be
				}
				if b.watch != nil && how == "watched by several threads" {
					b.prescan = b.newPrescan(size / 16)
				}
				b.Start()
				defer func() { b.Fail(context.Canceled); <-b.Gone() }()
				// The writer counts in a word of each of many pages, and says how far it is.
				stop, over := make(chan struct{}), make(chan struct{})
				count := make([]byte, 256)
				go func() {
					defer close(over)
					rnd := rand.New(rand.NewPCG(1, 2))
					for {
						select {
						case <-stop:
							return
						default:
						}
						for range 5000 {
							k := rnd.IntN(64)
							shm.Word(near, k*size/64+4*k).Add(1)
							shm.Word(count, 4*k).Add(1)
						}
						if rnd.IntN(20) == 0 {
							from := rnd.IntN(64) * size / 64
							copy(near[from+4096:], bytes.Repeat([]byte{byte(rnd.Uint32())}, size/64-4096))
						}
					}
				}()
				rounds := 10000
				if twin {
					rounds = 2000
				}
				for range rounds {
					var before [64]uint32
					for k := range before {
						before[k] = shm.Word(count, 4*k).Load()
					}
					if _, err := b.Request(t.Context()); err != nil {
						t.Fatal(err)
					}
					for k := range before {
						if v := shm.Word(far.mem, k*size/64+4*k).Load(); int32(v-before[k]) < 0 {
							t.Fatalf("word %d: %d were stored before the flush, %d are there", k, before[k], v)
						}
					}
				}
				close(stop)
				<-over
				if _, err := b.Request(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(far.mem, near) {
					t.Error("they differ at the end")
				}
			})
		}
	}
}

// aligned is a region that begins where a huge page can: the system maps regions one
// below the other, so one of the right size in between moves the next to such a place.
func aligned(t *testing.T, size int) (r *shm.Region) {
	t.Helper()
	const huge = 2 << 20
	for range 8 {
		r, err := shm.NewSparse("test", size, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Retire)
		var at int
		if _, err := fmt.Sscanf(fmt.Sprintf("%p", r.Bytes()), "0x%x", &at); err != nil {
			t.Fatal(err)
		}
		if at%huge == 0 {
			return r
		}
		between, err := shm.NewSparse("test", at%huge, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(between.Retire)
	}
	t.Skip("no memory at a boundary of huge pages")
	return nil
}
