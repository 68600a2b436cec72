package channel_test

import (
	"context"
	"testing"

	"github.com/vmmc-go/vmmc/channel"
	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// benchSlots is the buffer of the channel, and of its raw limit.
const benchSlots = 1024

// BenchmarkChannel is a value from one goroutine to another one, by a channel, by a queue without an
// end, which is what a channel is made of, and by a channel of Go, which does not leave the process.
func BenchmarkChannel(b *testing.B) {
	for _, w := range where {
		nodes := vmmctest.Nodes(b, w.nodes)
		near, far := nodes[0].Open(b), nodes[len(nodes)-1].Open(b)
		ctx := context.Background()
		b.Run("channel/"+w.name, func(b *testing.B) {
			c, err := channel.Make[item](within(b), near, name, channel.Buffer(benchSlots))
			if err != nil {
				b.Fatal(err)
			}
			s, err := channel.Dial[item](within(b), far, name)
			if err != nil {
				b.Fatal(err)
			}
			carry(b, func(v item) error { return s.Send(ctx, v) }, func() (item, error) {
				v, _, err := c.Recv(ctx)
				return v, err
			})
			if err := s.Close(within(b)); err != nil {
				b.Error(err)
			}
			if _, ok, err := c.Recv(ctx); ok || err != nil {
				b.Errorf("behind the last value: %t, %v", ok, err)
			}
			if err := c.Close(); err != nil {
				b.Error(err)
			}
		})
		b.Run("queue/"+w.name, func(b *testing.B) {
			c, err := queue.Listen[item](within(b), near, name, queue.Slots(benchSlots))
			if err != nil {
				b.Fatal(err)
			}
			q, err := queue.Dial[item](within(b), far, name)
			if err != nil {
				b.Fatal(err)
			}
			carry(b, func(v item) error { return q.Put(ctx, v) }, func() (item, error) { return c.Get(ctx) })
			if err := q.Close(within(b)); err != nil {
				b.Error(err)
			}
			if err := c.Close(); err != nil {
				b.Error(err)
			}
		})
	}
	b.Run("Go", func(b *testing.B) {
		c := make(chan item, benchSlots)
		carry(b, func(v item) error { c <- v; return nil }, func() (item, error) { return <-c, nil })
	})
}

// carry sends a value for each iteration, and checks that they arrive in their order.
func carry(b *testing.B, send func(item) error, recv func() (item, error)) {
	b.ReportAllocs()
	b.ResetTimer()
	sent := make(chan error, 1)
	go func() {
		for i := range b.N {
			if err := send(newItem(1, uint32(i))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range b.N {
		v, err := recv()
		if err != nil {
			b.Fatal(err)
		}
		if v != newItem(1, uint32(i)) {
			b.Fatalf("value %d is %+v", i, v)
		}
	}
	b.StopTimer()
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
}
