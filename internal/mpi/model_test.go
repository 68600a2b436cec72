package mpi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// action is what a rank does in the model.
type action struct {
	what      int // a send, a receive, or a cancel of one
	to        int
	source    int
	tag       int
	size      int
	mode      Mode
	cancelled int // index of the receive or send
}

const (
	doSend = iota
	doRecv
	doCancel
	doCancelSend
)

// The promises of MPI, with wildcards, cancels, all lengths and modes, on 1 to 8 ranks. Each rank
// does its actions in order, and all ranks do them at the same time, so which messages a wildcard
// takes is not known before. What is checked is what holds for every order:
//   - each receive got a message that it takes, whole;
//   - no message was received twice, and none that was received is another one;
//   - two messages of one rank that the same receive takes are received in the order of sending: a
//     receive that was posted earlier never gets the later one of two while it takes both;
//   - a message whose send was cancelled is received by none, and all others by one;
//   - what is left over after all receives fits none of those that were cancelled or wait.
func TestModel(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			size := map[string]int{"shm": 8, "tcp": 3, "via": 4, "via over two nodes": 3}[w.name]
			switch {
			case size > 0:
			case w.module == "tcp":
				size = 2
			default:
				size = 4
			}
			es := job(t, w, size)
			round := 0
			rapid.Check(t, func(rt *rapid.T) {
				round++
				ranks := rapid.IntRange(1, size).Draw(rt, "ranks")
				runModel(t, rt, es[:ranks], uint64(round)<<1|1<<62)
			})
			for _, e := range es {
				if s := e.Stats(); s.Posted+s.Unexpected+s.Requests+s.Cells != 0 {
					t.Errorf("rank %d has left %+v", e.rank, s)
				}
			}
		})
	}
}

func runModel(t *testing.T, rt *rapid.T, es []*Engine, cid uint64) {
	n := len(es)
	plans := make([][]action, n)
	for rank := range plans {
		plans[rank] = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) action {
			a := action{what: rapid.SampledFrom([]int{doSend, doSend, doRecv, doRecv, doRecv, doCancel, doCancelSend}).Draw(rt, "what")}
			a.to = rapid.IntRange(0, n-1).Draw(rt, "to")
			a.source = rapid.IntRange(-1, n-1).Draw(rt, "source")
			a.tag = rapid.SampledFrom([]int{0, 1, 2, AnyTag}).Draw(rt, "tag")
			if a.what == doSend && a.tag == AnyTag {
				a.tag = 0
			}
			a.size = rapid.SampledFrom([]int{16, 17, 500, 600, MaxEager, MaxEager + 1, 50_000}).Draw(rt, "size")
			a.mode = rapid.SampledFrom([]Mode{Standard, Standard, Synchronous}).Draw(rt, "mode")
			a.cancelled = rapid.IntRange(0, 20).Draw(rt, "cancelled")
			return a
		}), 0, 25).Draw(rt, fmt.Sprint("rank ", rank))
	}
	results := make([]result, n)
	each(t, es, func(ctx context.Context, e *Engine) (err error) {
		results[e.rank], err = runPlan(ctx, e, n, cid, plans[e.rank])
		return err
	})
	if t.Failed() {
		rt.FailNow()
	}
	for rank := range results {
		if err := results[rank].check(plans, results, rank); err != nil {
			rt.Fatalf("rank %d: %v", rank, err)
		}
	}
}

// received is one receive of a rank, with what it got.
type received struct {
	source, tag int // wanted
	cancelled   bool
	drained     bool // by the last receives, which take all
	from        int
	number      int // of the sender's message
	status      Status
	size        int
}

type result struct {
	got       []received
	withdrawn map[int]bool // numbers of messages that were cancelled
}

// message makes a message that says which one it is.
func message(size, from, number int) []byte {
	b := fill(size, from*1000+number)
	binary.LittleEndian.PutUint32(b, uint32(from))
	binary.LittleEndian.PutUint32(b[4:], uint32(number))
	binary.LittleEndian.PutUint32(b[8:], uint32(size))
	return b
}

// runPlan does the actions, and then settles: all ranks tell how much they have sent to each, each
// cancels the receives that are left, and drains what was not received.
func runPlan(ctx context.Context, e *Engine, n int, cid uint64, plan []action) (res result, err error) {
	group := e.all()[:n]
	var sends, recvs []*Request
	var numbers []int // of the sends
	var asked []int   // indexes of the sends that were cancelled
	var bufs [][]byte
	res.withdrawn = map[int]bool{}
	sent := make([]uint64, n)
	for number, a := range plan {
		switch a.what {
		case doSend:
			t := &Target{Context: cid, Rank: a.to, Source: e.rank, Tag: a.tag, Group: group}
			r, err := e.Isend(t, message(a.size, e.rank, number), a.mode)
			if err != nil {
				return res, err
			}
			sends, numbers = append(sends, r), append(numbers, number)
			sent[a.to]++
		case doRecv:
			buf := make([]byte, 50_000)
			r, err := e.Irecv(&Source{Context: cid, Rank: a.source, Source: a.source, Tag: a.tag, Group: group}, buf)
			if err != nil {
				return res, err
			}
			recvs, bufs = append(recvs, r), append(bufs, buf)
			res.got = append(res.got, received{source: a.source, tag: a.tag})
		case doCancel:
			if len(recvs) > 0 {
				i := a.cancelled % len(recvs)
				if recvs[i].Cancel() {
					res.got[i].cancelled = true
				}
			}
		case doCancelSend:
			if len(sends) > 0 {
				i := a.cancelled % len(sends)
				sends[i].Cancel()
				asked = append(asked, i)
			}
		}
	}
	for _, i := range asked { // whatever the other ranks do: they post no receives for it
		st, err := sends[i].Wait(ctx)
		if err != nil {
			return res, err
		}
		if number := numbers[i]; st.Cancelled && !res.withdrawn[number] {
			res.withdrawn[number] = true
			sent[plan[number].to]--
		}
	}
	// How much each has sent, in the other context.
	var total uint64
	var counts []*Request
	in := make([][]byte, n)
	for rank := range n {
		in[rank] = make([]byte, 8)
		r, err := e.Irecv(&Source{Context: cid + 1, Rank: rank, Source: rank, Group: group}, in[rank])
		if err != nil {
			return res, err
		}
		counts = append(counts, r)
	}
	for rank := range n {
		b := binary.LittleEndian.AppendUint64(nil, sent[rank])
		if err := e.Send(ctx, &Target{Context: cid + 1, Rank: rank, Source: e.rank, Group: group}, b, Standard); err != nil {
			return res, err
		}
	}
	for rank, r := range counts {
		if _, err := r.Wait(ctx); err != nil {
			return res, err
		}
		total += binary.LittleEndian.Uint64(in[rank])
	}
	// The counts have come after the envelopes of the messages. So what is posted now stays posted.
	got := uint64(0)
	for i, r := range recvs {
		if r.Cancel() {
			res.got[i].cancelled = true
		}
		st, err := r.Wait(ctx)
		if err != nil {
			return res, err
		}
		if st.Cancelled != res.got[i].cancelled {
			return res, fmt.Errorf("receive %d: its status says cancelled=%v, and Cancel %v", i, st.Cancelled, res.got[i].cancelled)
		}
		if !st.Cancelled {
			got++
			if err := res.got[i].read(st, bufs[i]); err != nil {
				return res, err
			}
		}
	}
	for ; got < total; got++ {
		st, m, err := e.Probe(ctx, &Source{Context: cid, Rank: AnySource, Source: AnySource, Tag: AnyTag, Group: group}, true)
		if err != nil {
			return res, err
		}
		buf := make([]byte, st.Bytes)
		if st, err = m.Recv(ctx, buf); err != nil {
			return res, err
		}
		x := received{source: AnySource, tag: AnyTag, drained: true}
		if err := x.read(st, buf); err != nil {
			return res, err
		}
		res.got = append(res.got, x)
	}
	if _, _, ok, err := e.Iprobe(&Source{Context: cid, Rank: AnySource, Source: AnySource, Tag: AnyTag, Group: group}, false); ok || err != nil {
		return res, errors.Join(errors.New("there is another message"), err)
	}
	for _, r := range sends {
		if _, err := r.Wait(ctx); err != nil {
			return res, err
		}
	}
	return res, nil
}

// read checks that a message is whole.
func (x *received) read(st Status, buf []byte) error {
	x.from, x.number = int(binary.LittleEndian.Uint32(buf)), int(binary.LittleEndian.Uint32(buf[4:]))
	x.status, x.size = st, st.Bytes
	if want := message(st.Bytes, x.from, x.number); !bytes.Equal(want, buf[:st.Bytes]) || st.Source != x.from {
		return fmt.Errorf("status %+v, and the message says that it is number %d of rank %d, or is torn", st, x.number, x.from)
	}
	return nil
}

// check compares what a rank has received with what was sent to it.
func (res *result) check(plans [][]action, results []result, rank int) error {
	seen := map[[2]int]int{}
	for i, x := range res.got {
		if x.cancelled {
			continue
		}
		a := plans[x.from][x.number]
		switch key := [2]int{x.from, x.number}; {
		case results[x.from].withdrawn[x.number]:
			return fmt.Errorf("receive %d got %+v, which was cancelled", i, x)
		case a.what != doSend || a.to != rank || a.size != x.size || a.tag != x.status.Tag:
			return fmt.Errorf("receive %d got %+v, which was not sent", i, x)
		case !fits(int32(x.source), int32(x.tag), int32(x.from), int32(a.tag)):
			return fmt.Errorf("receive %d got %+v, which it does not take", i, x)
		default:
			if o, ok := seen[key]; ok {
				return fmt.Errorf("receives %d and %d got the same message", o, i)
			}
			seen[key] = i
		}
	}
	for from, plan := range plans {
		var mine []int // messages for this rank, in order
		for number, a := range plan {
			if a.what == doSend && a.to == rank && !results[from].withdrawn[number] {
				mine = append(mine, number)
			}
		}
		for j, later := range mine {
			for _, earlier := range mine[:j] {
				if err := res.inOrder(plan, from, earlier, later, seen); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// inOrder checks two messages of one rank. The receive that got the later one must not take the
// earlier one too, unless that went to a receive that was posted before.
func (res *result) inOrder(plan []action, from, earlier, later int, seen map[[2]int]int) error {
	a, okA := seen[[2]int{from, earlier}]
	b, okB := seen[[2]int{from, later}]
	if !okA || !okB {
		return fmt.Errorf("message %d or %d of rank %d was not received", earlier, later, from)
	}
	x := res.got[b]
	if fits(int32(x.source), int32(x.tag), int32(from), int32(plan[earlier].tag)) && a > b {
		return fmt.Errorf("receive %d got message %d of rank %d, and message %d went to receive %d", b, later, from, earlier, a)
	}
	return nil
}

// The match queues against a plain list: the same receives and messages, one at a time.
func TestQueuesModel(t *testing.T) {
	es := job(t, ways[0], 1)
	e := es[0]
	type item struct {
		context     uint64
		source, tag int32
		id          uint32
	}
	rapid.Check(t, func(rt *rapid.T) {
		e.mu.Lock()
		defer e.mu.Unlock()
		var lists [2][]item
		var indexes [2][]uint32
		id := uint32(0)
		for range rapid.IntRange(0, 200).Draw(rt, "steps") {
			it := item{
				context: rapid.SampledFrom([]uint64{0, 1, 64, 128, 1 << 33, 1<<33 | 2}).Draw(rt, "context"),
				source:  int32(rapid.IntRange(0, 2).Draw(rt, "source")), tag: int32(rapid.IntRange(0, 2).Draw(rt, "tag")),
			}
			id++
			it.id = id
			l := rapid.IntRange(0, 1).Draw(rt, "list")
			if l == 0 { // a receive
				if rapid.Bool().Draw(rt, "any source") {
					it.source = AnySource
				}
				if rapid.Bool().Draw(rt, "any tag") {
					it.tag = AnyTag
				}
			}
			other := 1 - l
			want := slices.IndexFunc(lists[other], func(o item) bool {
				if l == 0 {
					return o.context == it.context && fits(it.source, it.tag, o.source, o.tag)
				}
				return o.context == it.context && fits(o.source, o.tag, it.source, it.tag)
			})
			var got uint32
			if l == 0 {
				got = e.q.findUnexpected(it.context, it.source, it.tag)
			} else {
				got = e.q.findPosted(it.context, it.source, it.tag)
			}
			if (got == 0) != (want < 0) || got != 0 && e.q.at(got).request() != lists[other][want].id {
				rt.Fatalf("found entry %d, want %d of %+v", got, want, lists[other])
			}
			if got != 0 {
				e.q.remove(list(8*other), got)
				lists[other] = slices.Delete(lists[other], want, want+1)
				indexes[other] = slices.Delete(indexes[other], want, want+1)
				continue
			}
			v := envelope{context: it.context, source: it.source, tag: it.tag, request: it.id}
			i, err := e.q.add(list(8*l), &v)
			if err != nil {
				rt.Fatal(err)
			}
			lists[l], indexes[l] = append(lists[l], it), append(indexes[l], i)
		}
		for l, is := range indexes {
			if e.q.length[l] != len(is) {
				rt.Fatalf("list %d has %d entries, want %d", l, e.q.length[l], len(is))
			}
			for _, i := range is {
				e.q.remove(list(8*l), i)
			}
		}
	})
}
