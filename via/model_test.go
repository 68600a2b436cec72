package via_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// Processes that connect all with all, send, disconnect at random and connect again: every
// descriptor is completed once, as done, flushed or in error, in the order of the posts.
func TestAllToAll(t *testing.T) {
	procs, rounds := 6, 40
	if race {
		procs, rounds = 4, 15
	}
	nodes := vmmctest.Nodes(t, 2)
	var ds []*device
	for i := range procs {
		ds = append(ds, openOn(t, nodes[i%2], ways[0]))
	}
	var pairs sync.WaitGroup
	for i := range procs {
		for j := range i {
			pairs.Go(func() { converse(t, ds[i], ds[j], fmt.Sprint(i, "-", j), rounds) })
		}
	}
	pairs.Wait()
}

// converse has two NICs exchange messages over a VI each.
func converse(t *testing.T, a, b *device, name string, rounds int) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 7))
	level := levels[r.IntN(3)]
	x := &modelVI{VI: a.vi(t, level), mem: a.mem, failf: t.Errorf}
	y := &modelVI{VI: b.vi(t, level), mem: b.mem, failf: t.Errorf}
	ctx := within(t)
	l, err := a.Listen(ctx, name)
	if err != nil {
		t.Error(err)
		return
	}
	for range rounds {
		accepted := make(chan error, 1)
		go func() {
			q, err := l.Wait(ctx)
			if err == nil {
				err = q.Accept(x.VI)
			}
			accepted <- err
		}()
		x.posts(r, true)
		y.posts(r, true)
		_, err := y.Connect(ctx, via.Address{}, l.Address())
		if err != nil {
			t.Errorf("connect: %v", err)
		}
		if err := <-accepted; err != nil {
			t.Errorf("accept: %v", err)
		}
		for range r.IntN(10) {
			x.posts(r, r.IntN(2) == 0)
			y.posts(r, r.IntN(2) == 0)
			x.takes()
			y.takes()
		}
		first, second := x, y
		if r.IntN(2) == 0 {
			first, second = y, x
		}
		want(t, "disconnect", first.Disconnect(), 0)
		want(t, "disconnect", second.Disconnect(), 0)
		x.takesAll()
		y.takesAll()
	}
	want(t, "close", l.Close(), 0)
	want(t, "destroy", x.Destroy(), 0)
	want(t, "destroy", y.Destroy(), 0)
}

// modelVI is a VI, and the descriptors that it must complete, in their order.
type modelVI struct {
	*via.VI
	mem          *via.Memory
	failf        func(format string, args ...any)
	sends, recvs []*via.Descriptor
	completed    int
}

// posts posts some descriptors.
func (v *modelVI) posts(r *rand.Rand, receives bool) {
	for range 1 + r.IntN(4) {
		n := 1 + r.IntN(1<<r.IntN(17))
		off, queue, post := r.IntN(memSize-n), &v.sends, v.PostSend
		if receives {
			off, n, queue, post = 0, 1<<17, &v.recvs, v.PostReceive
		}
		e := &via.Descriptor{Segments: []via.Segment{v.mem.Segment(off, n)}}
		if err := post(e); err != nil {
			v.failf("post: %v", err)
		}
		*queue = append(*queue, e)
	}
}

// takes takes what is complete.
func (v *modelVI) takes() {
	for d, _ := v.SendDone(); d != nil; d, _ = v.SendDone() {
		if len(v.sends) == 0 || d != v.sends[0] || d.Status&via.Done == 0 {
			v.failf("a SEND that is not the next one, status %#x", d.Status)
			return
		}
		v.sends = v.sends[1:]
		v.completed++
	}
	for d, _ := v.ReceiveDone(); d != nil; d, _ = v.ReceiveDone() {
		if len(v.recvs) == 0 || d != v.recvs[0] || d.Status&via.Done == 0 {
			v.failf("a receive that is not the next one, status %#x", d.Status)
			return
		}
		v.recvs = v.recvs[1:]
		v.completed++
	}
}

// takesAll takes what is complete on a VI that is idle: all.
func (v *modelVI) takesAll() {
	v.takes()
	if len(v.sends)+len(v.recvs) > 0 {
		v.failf("%d SENDs and %d receives were not completed", len(v.sends), len(v.recvs))
	}
}
