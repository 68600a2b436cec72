package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/vmmctest"
)

const benchProducers = 4

// takePayloads is a child: name. It takes values and reads all of them, until the sharing ends.
func takePayloads(ctx context.Context, p *vmmc.Process, args ...string) error {
	k, err := queue.DialTaker[payload](ctx, p, args[0])
	if err != nil {
		return err
	}
	vs := make([]queue.Taken[payload], 16)
	for {
		n, err := k.TakeSome(ctx, vs)
		if errors.Is(err, vmmc.ErrRevoked) || errors.Is(err, vmmc.ErrPeerGone) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range vs[:n] {
			if s := vs[i].Value.sum(); s != payloadSum || vs[i].Attempt != 1 {
				return fmt.Errorf("the sum of a value is %d, its attempt %d", s, vs[i].Attempt)
			}
		}
	}
}

// benchManyToOne is a queue on one node, and its producers, of which each has a process.
func benchManyToOne(
	b *testing.B, node *vmmctest.Node, name string,
) (*queue.Consumer[payload], []*queue.Producer[payload]) {
	b.Helper()
	c, err := queue.Listen[payload](within(b), node.Open(b), name, queue.Slots(benchSlots))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	var qs []*queue.Producer[payload]
	for range benchProducers {
		q, err := queue.Dial[payload](within(b), node.Open(b), name)
		if err != nil {
			b.Fatal(err)
		}
		qs = append(qs, q)
	}
	return c, qs
}

// putByAll has each producer put its part of n values, in batches.
func putByAll(qs []*queue.Producer[payload]) func(n int) error {
	return func(n int) error {
		errs := make([]error, len(qs))
		var wg sync.WaitGroup
		for i, q := range qs {
			wg.Go(func() { errs[i] = batches(q)(n / len(qs)) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
}

// benchShared measures values that are put until all are finished by takers, of which each has an
// operating system process.
func benchShared(b *testing.B, node *vmmctest.Node, takers int) func() time.Duration {
	b.Helper()
	name := "n1/shared by " + itoa(takers)
	c, qs := benchManyToOne(b, node, name)
	s, err := queue.Share(within(b), c, name+" takers")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	for range takers {
		vmmctest.Child(b, node, "bench taker", name+" takers")
	}
	eventually(b, "all takers wait", func() bool { return s.Waiters() == takers })
	put := putByAll(qs)
	return func() time.Duration {
		start := time.Now()
		if err := put(benchValues); err != nil {
			b.Fatal(err)
		}
		for _, q := range qs {
			for q.Pending() > 0 {
				time.Sleep(50 * time.Microsecond)
			}
		}
		for s.Unfinished() > 0 {
			time.Sleep(50 * time.Microsecond)
		}
		return time.Since(start)
	}
}

// BenchmarkShare is how many values of four producers on one node go through a queue that one and four
// processes share, beside those that its consumer takes itself.
func BenchmarkShare(b *testing.B) {
	node := vmmctest.Nodes(b, 1)[0]
	c, qs := benchManyToOne(b, node, "n1/many to one")
	turns(
		b, benchValues, "M/s",
		contender{"queue", streamed(b, putByAll(qs), some(c))},
		contender{"1-taker", benchShared(b, node, 1)},
		contender{"4-takers", benchShared(b, node, 4)},
	)
}
