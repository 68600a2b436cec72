package vmmc_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// Two processes pour long messages into each other, each waiting for the oldest of eight before it
// sends the next, and then neither comes any more: all has arrived, and a notification is handled
// all the same.
func TestLongMessagesBothWays(t *testing.T) {
	for _, way := range []string{"stream", "between nodes"} {
		for _, size := range []int{128 << 10, 256 << 10, 1 << 20} {
			t.Run(fmt.Sprintf("%s, %d KiB", way, size>>10), func(t *testing.T) {
				near, far := nodes(t, way)
				pourBothWays(t, join(t, near), join(t, far), size)
			})
		}
	}
}

func pourBothWays(t *testing.T, a, b *vmmc.Process, size int) {
	const slots, rounds, messages = 8, 3, 60
	ctx := within(t)
	type side struct {
		mem     []byte
		to      *vmmc.Import
		handled chan uint32
	}
	var sides [2]side
	ps := [2]*vmmc.Process{a, b}
	for i, p := range ps {
		s := &sides[i]
		s.mem, s.handled = alloc(t, p, slots*size), make(chan uint32, 1)
		if _, err := p.Export(5, s.mem, vmmc.Unmapped(), vmmc.WithHandler(func(n vmmc.Notification) { s.handled <- n.Word })); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range ps {
		far := ps[1-i]
		im, err := p.Import(ctx, far.Node(), far.PID(), 5)
		if err != nil {
			t.Fatal(err)
		}
		sides[i].to = im
	}
	message := func(from, round, n int) []byte {
		return bytes.Repeat([]byte{byte(1 + from), byte(round), byte(n), 0}, size/4)
	}
	for round := range rounds {
		var wg sync.WaitGroup
		for i := range sides {
			wg.Go(func() {
				var flying [slots]vmmc.Request
				wait := func(n int) bool {
					err := flying[n%slots].Wait(ctx)
					if err != nil {
						t.Errorf("side %d, round %d, message %d: %v", i, round, n, err)
					}
					return err == nil
				}
				for n := range messages {
					if n >= slots && !wait(n-slots) {
						return
					}
					var err error
					if flying[n%slots], err = sides[i].to.SendAsync(ctx, message(i, round, n), n%slots*size); err != nil {
						t.Errorf("side %d, round %d, message %d: %v", i, round, n, err)
						return
					}
				}
				for n := messages - slots; n < messages && wait(n); n++ {
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for i := range sides {
			for n := messages - slots; n < messages; n++ {
				if got := sides[1-i].mem[n%slots*size:][:size]; !bytes.Equal(got, message(i, round, n)) {
					t.Fatalf("side %d, round %d: message %d is over, and not there", i, round, n)
				}
			}
		}
		for i := range sides { // to a peer that does not wait for anything
			if err := sides[i].to.SendNotify(ctx, []byte{byte(round), 1, 2, 3}, 0); err != nil {
				t.Fatal(err)
			}
			select {
			case <-sides[1-i].handled:
			case <-time.After(20 * time.Second):
				t.Fatalf("side %d, round %d: a notification is not handled", 1-i, round)
			}
		}
	}
}
