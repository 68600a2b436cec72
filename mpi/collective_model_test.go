package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/mpi"
)

// step is a collective of the model: what it is, how it is called, and its arguments, which are the
// same at all ranks.
type step struct {
	kind, form, root, k, salt int
	counts                    [][]int // values from each rank to each rank
}

// The forms of a call.
const (
	blocking = iota
	nonBlocking
	persistent
	forms
)

// call is one form of a collective at one rank, and how its result is checked.
type call struct {
	blocking    func(ctx context.Context) error
	nonBlocking func() (*mpi.Request, error)
	persistent  func() (*mpi.Persistent, error)
	check       func() error
}

func sum(counts []int) (total int) {
	for _, k := range counts {
		total += k
	}
	return total
}

// joined are the values that rank from[i] has for an i-th part of the length counts[i].
func joined(from func(i int) int, counts []int) (all []int64) {
	for i, k := range counts {
		all = append(all, values(from(i), k)...)
	}
	return all
}

// gapped says where parts of the lengths lie if each is followed by a gap, from the last to the first.
func gapped(counts []int) mpi.Parts {
	p, at := mpi.Parts{Counts: counts, Displs: make([]int, len(counts))}, 0
	for i := len(counts) - 1; i >= 0; i-- {
		p.Displs[i] = at
		at += counts[i] + 1
	}
	return p
}

// lay puts the parts of packed values where p says. The rest is -1.
func lay(packed []int64, p mpi.Parts) []int64 {
	all := make([]int64, sum(p.Counts)+len(p.Counts))
	for i := range all {
		all[i] = -1
	}
	for i, k := range p.Counts {
		copy(all[p.Displs[i]:], packed[:k])
		packed = packed[k:]
	}
	return all
}

func empty(n int) []int64 {
	return slices.Repeat([]int64{-1}, n)
}

const kinds = 16

// cut are counts of n ranks whose sum is total. They differ, and some are 0.
func cut(total, n int) []int {
	counts := make([]int, n)
	for i := range counts {
		counts[i] = total*(i+1)*i/(n*(n+1)) - total*i*(i-1)/(n*(n+1))
	}
	counts[n-1] += total - sum(counts)
	return counts
}

// prepare makes a rank's call of a step, and says what its result is.
func prepare(c *mpi.Comm, s step) call {
	n, me, k := c.Size(), c.Rank(), s.k
	own := func(rank int) int { return rank + s.salt }
	equal := slices.Repeat([]int{k}, n)
	mine := values(own(me), k)
	all := joined(own, equal)
	from := make([]int, n) // of each rank to root
	for rank := range from {
		from[rank] = s.counts[rank][s.root]
	}
	op, combined := mpi.OpOf(compose, false), func(lo, hi int) []affine { return fold(own(lo), own(hi), k) }
	folded, aff := make([]affine, k), affines(own(me), k)
	eq := func(what string, got, want []int64) func() error {
		return func() error { return differs(what, got, want) }
	}
	atRoot := func(v []int64) []int64 {
		if me == s.root {
			return v
		}
		return nil
	}
	switch s.kind {
	case 0:
		buf := empty(k)
		if me == s.root {
			copy(buf, mine)
		}
		return call{
			func(ctx context.Context) error { return mpi.Bcast(ctx, c, buf, s.root) },
			func() (*mpi.Request, error) { return mpi.Ibcast(c, buf, s.root) },
			func() (*mpi.Persistent, error) { return mpi.BcastInit(c, buf, s.root) },
			eq("bcast", buf, values(own(s.root), k)),
		}
	case 1:
		return call{
			func(ctx context.Context) error { return mpi.Reduce(ctx, c, aff, folded, op, s.root) },
			func() (*mpi.Request, error) { return mpi.Ireduce(c, aff, folded, op, s.root) },
			func() (*mpi.Persistent, error) { return mpi.ReduceInit(c, aff, folded, op, s.root) },
			func() error {
				if me != s.root {
					return differs("reduce", folded, make([]affine, k))
				}
				return differs("reduce", folded, combined(0, n-1))
			},
		}
	case 2:
		return call{
			func(ctx context.Context) error { return mpi.Allreduce(ctx, c, aff, folded, op) },
			func() (*mpi.Request, error) { return mpi.Iallreduce(c, aff, folded, op) },
			func() (*mpi.Persistent, error) { return mpi.AllreduceInit(c, aff, folded, op) },
			func() error { return differs("allreduce", folded, combined(0, n-1)) },
		}
	case 3:
		return call{
			func(ctx context.Context) error { return mpi.Scan(ctx, c, aff, folded, op) },
			func() (*mpi.Request, error) { return mpi.Iscan(c, aff, folded, op) },
			func() (*mpi.Persistent, error) { return mpi.ScanInit(c, aff, folded, op) },
			func() error { return differs("scan", folded, combined(0, me)) },
		}
	case 4:
		return call{
			func(ctx context.Context) error { return mpi.Exscan(ctx, c, aff, folded, op) },
			func() (*mpi.Request, error) { return mpi.Iexscan(c, aff, folded, op) },
			func() (*mpi.Persistent, error) { return mpi.ExscanInit(c, aff, folded, op) },
			func() error {
				if me == 0 {
					return differs("exscan", folded, make([]affine, k))
				}
				return differs("exscan", folded, combined(0, me-1))
			},
		}
	case 5:
		long := affines(own(me), n*k)
		want := fold(own(0), own(n-1), n*k)[me*k:][:k]
		return call{
			func(ctx context.Context) error { return mpi.ReduceScatterBlock(ctx, c, long, folded, op) },
			func() (*mpi.Request, error) { return mpi.IreduceScatterBlock(c, long, folded, op) },
			func() (*mpi.Persistent, error) { return mpi.ReduceScatterBlockInit(c, long, folded, op) },
			func() error { return differs("reduce scatter", folded, want) },
		}
	case 15:
		counts := cut(k+s.root, n)
		first := sum(counts[:me])
		long, part := affines(own(me), k+s.root), make([]affine, counts[me])
		want := fold(own(0), own(n-1), k+s.root)[first:][:counts[me]]
		return call{
			func(ctx context.Context) error { return mpi.ReduceScatter(ctx, c, long, part, counts, op) },
			func() (*mpi.Request, error) { return mpi.IreduceScatter(c, long, part, counts, op) },
			func() (*mpi.Persistent, error) { return mpi.ReduceScatterInit(c, long, part, counts, op) },
			func() error { return differs("reduce scatter of counts", part, want) },
		}
	case 6:
		got, want := empty(k), make([]int64, k)
		for rank := range n {
			for i := range want {
				want[i] += value(own(rank), i)
			}
		}
		add := mpi.Sum[int64]()
		return call{
			func(ctx context.Context) error { return mpi.Allreduce(ctx, c, mine, got, add) },
			func() (*mpi.Request, error) { return mpi.Iallreduce(c, mine, got, add) },
			func() (*mpi.Persistent, error) { return mpi.AllreduceInit(c, mine, got, add) },
			eq("sum", got, want),
		}
	case 7:
		recv := atRoot(empty(n * k))
		return call{
			func(ctx context.Context) error { return mpi.Gather(ctx, c, mine, recv, s.root) },
			func() (*mpi.Request, error) { return mpi.Igather(c, mine, recv, s.root) },
			func() (*mpi.Persistent, error) { return mpi.GatherInit(c, mine, recv, s.root) },
			eq("gather", recv, atRoot(all)),
		}
	case 8:
		recv := empty(k)
		return call{
			func(ctx context.Context) error { return mpi.Scatter(ctx, c, atRoot(all), recv, s.root) },
			func() (*mpi.Request, error) { return mpi.Iscatter(c, atRoot(all), recv, s.root) },
			func() (*mpi.Persistent, error) { return mpi.ScatterInit(c, atRoot(all), recv, s.root) },
			eq("scatter", recv, mine),
		}
	case 9:
		p, send := gapped(from), values(own(me), from[me])
		want := atRoot(lay(joined(own, from), p))
		recv := atRoot(empty(len(want)))
		return call{
			func(ctx context.Context) error { return mpi.Gatherv(ctx, c, send, recv, p, s.root) },
			func() (*mpi.Request, error) { return mpi.Igatherv(c, send, recv, p, s.root) },
			func() (*mpi.Persistent, error) { return mpi.GathervInit(c, send, recv, p, s.root) },
			eq("gatherv", recv, want),
		}
	case 10:
		to := s.counts[s.root]
		p, recv := gapped(to), empty(to[me])
		send := atRoot(lay(joined(own, to), p))
		return call{
			func(ctx context.Context) error { return mpi.Scatterv(ctx, c, send, p, recv, s.root) },
			func() (*mpi.Request, error) { return mpi.Iscatterv(c, send, p, recv, s.root) },
			func() (*mpi.Persistent, error) { return mpi.ScattervInit(c, send, p, recv, s.root) },
			eq("scatterv", recv, values(own(me), to[me])),
		}
	case 11:
		recv := empty(n * k)
		return call{
			func(ctx context.Context) error { return mpi.Allgather(ctx, c, mine, recv) },
			func() (*mpi.Request, error) { return mpi.Iallgather(c, mine, recv) },
			func() (*mpi.Persistent, error) { return mpi.AllgatherInit(c, mine, recv) },
			eq("allgather", recv, all),
		}
	case 12:
		p, send := gapped(from), values(own(me), from[me])
		want := lay(joined(own, from), p)
		recv := empty(len(want))
		return call{
			func(ctx context.Context) error { return mpi.Allgatherv(ctx, c, send, recv, p) },
			func() (*mpi.Request, error) { return mpi.Iallgatherv(c, send, recv, p) },
			func() (*mpi.Persistent, error) { return mpi.AllgathervInit(c, send, recv, p) },
			eq("allgatherv", recv, want),
		}
	case 13, 14:
		pair := func(a, b int) int { return a*10 + b + s.salt }
		to, in := make([]int, n), make([]int, n)
		for rank := range n {
			to[rank], in[rank] = s.counts[me][rank], s.counts[rank][me]
			if s.kind == 14 {
				to[rank], in[rank] = k, k
			}
		}
		out := joined(func(i int) int { return pair(me, i) }, to)
		want := joined(func(i int) int { return pair(i, me) }, in)
		if s.kind == 14 {
			recv := empty(n * k)
			return call{
				func(ctx context.Context) error { return mpi.Alltoall(ctx, c, out, recv) },
				func() (*mpi.Request, error) { return mpi.Ialltoall(c, out, recv) },
				func() (*mpi.Persistent, error) { return mpi.AlltoallInit(c, out, recv) },
				eq("alltoall", recv, want),
			}
		}
		tp, ip := gapped(to), gapped(in)
		send := lay(out, tp)
		want = lay(want, ip)
		recv := empty(len(want))
		return call{
			func(ctx context.Context) error { return mpi.Alltoallv(ctx, c, send, tp, recv, ip) },
			func() (*mpi.Request, error) { return mpi.Ialltoallv(c, send, tp, recv, ip) },
			func() (*mpi.Persistent, error) { return mpi.AlltoallvInit(c, send, tp, recv, ip) },
			eq("alltoallv", recv, want),
		}
	}
	panic("no such kind")
}

// steps runs a rank's part of a program. Requests are waited for at its end, the last one first.
func steps(ctx context.Context, c *mpi.Comm, program []step, prepare func(c *mpi.Comm, s step) call) error {
	var open []*mpi.Request
	var calls []call
	for i, s := range program {
		x := prepare(c, s)
		calls = append(calls, x)
		var q *mpi.Request
		var err error
		switch s.form {
		case blocking:
			err = x.blocking(ctx)
		case nonBlocking:
			q, err = x.nonBlocking()
		case persistent:
			var p *mpi.Persistent
			if p, err = x.persistent(); err != nil {
				break
			}
			for range 2 { // a second run must give the same
				if q, err = p.Start(); err == nil {
					_, err = q.Wait(ctx)
				}
				if err != nil {
					break
				}
			}
			if err == nil {
				q, err = p.Start()
			}
		}
		if err != nil {
			return fmt.Errorf("step %d, %+v: %w", i, s, err)
		}
		open = append(open, q)
	}
	for i, q := range slices.Backward(open) {
		if q == nil {
			continue
		}
		if _, err := q.Wait(ctx); err != nil {
			return fmt.Errorf("step %d, %+v: %w", i, program[i], err)
		}
	}
	for i, x := range calls {
		if err := x.check(); err != nil {
			return fmt.Errorf("step %d, %+v: %w", i, program[i], err)
		}
	}
	return nil
}

// Programs of collectives, in all their forms, and any number of them under way at once, against what
// each is defined as, on 1 to 8 ranks.
func TestCollectivesModel(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size = 8
			world := job(t, w, size)
			parts := make([][]*mpi.Comm, size+1)
			for n := 1; n <= size; n++ {
				parts[n] = make([]*mpi.Comm, n)
				each(t, world, func(ctx context.Context, c *mpi.Comm) error {
					color := 0
					if c.Rank() >= n {
						color = mpi.Undefined
					}
					// Nodes take turns in the new order.
					part, err := c.Split(ctx, color, c.Rank()*5%size)
					if part != nil {
						parts[n][part.Rank()] = part
					}
					return err
				})
			}
			rapid.Check(t, func(rt *rapid.T) {
				n := rapid.IntRange(1, size).Draw(rt, "ranks")
				runProgram(rt, parts[n], drawProgram(rt, n, kinds), prepare)
			})
		})
	}
}

// drawProgram draws steps of n ranks.
func drawProgram(rt *rapid.T, n, kinds int) []step {
	length := rapid.SampledFrom([]int{0, 1, 3, 40, 1100, 5000})
	program := make([]step, rapid.IntRange(1, 6).Draw(rt, "steps"))
	for i := range program {
		s := step{
			kind: rapid.IntRange(0, kinds-1).Draw(rt, "kind"), form: rapid.IntRange(0, forms-1).Draw(rt, "form"),
			root: rapid.IntRange(0, n-1).Draw(rt, "root"), k: length.Draw(rt, "values"), salt: 100 * i,
		}
		for range n {
			s.counts = append(s.counts, rapid.SliceOfN(length, n, n).Draw(rt, "counts"))
		}
		program[i] = s
	}
	return program
}

// runProgram runs a program at all ranks.
func runProgram(rt *rapid.T, cs []*mpi.Comm, program []step, prepare func(c *mpi.Comm, s step) call) {
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	errs := make([]error, len(cs))
	var wg sync.WaitGroup
	for rank, c := range cs {
		wg.Go(func() {
			if errs[rank] = steps(ctx, c, program, prepare); errs[rank] != nil {
				stop()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		rt.Fatal(err)
	}
}

// Non-blocking collectives make progress without a call of the rank that has begun them.
func TestCollectiveProgress(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 4)
			got := make([]int64, 1)
			q, err := mpi.Iallreduce(world[1], []int64{2}, got, mpi.Sum[int64]())
			if err != nil {
				t.Fatal(err)
			}
			// Rank 1 calls nothing, and the others' results need its part.
			each(t, []*mpi.Comm{world[0], world[2], world[3]}, func(ctx context.Context, c *mpi.Comm) error {
				sum := make([]int64, 1)
				if err := mpi.Allreduce(ctx, c, []int64{1}, sum, mpi.Sum[int64]()); err != nil {
					return err
				}
				return differs("the sum", sum, []int64{5})
			})
			if _, err := q.Wait(within(t)); err != nil {
				t.Fatal(err)
			}
			if err := differs("the sum", got, []int64{5}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Persistent collectives are started in other orders at other ranks, and persistent sends and
// receives carry what the buffers hold at each start.
func TestPersistent(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			each(t, job(t, w, 3), func(ctx context.Context, c *mpi.Comm) error {
				var ps []*mpi.Persistent
				add := func(p *mpi.Persistent, err error) error {
					ps = append(ps, p)
					return err
				}
				n, me := c.Size(), c.Rank()
				one, sum := []int64{0}, []int64{0}
				all := make([]int64, n)
				out, in := []int64{0}, []int64{0}
				if err := errors.Join(
					add(mpi.AllreduceInit(c, one, sum, mpi.Sum[int64]())), add(mpi.AllgatherInit(c, one, all)),
					add(mpi.SendInit(c, out, (me+1)%n, 7)), add(mpi.RecvInit(c, in, (me+n-1)%n, 7)),
				); err != nil {
					return err
				}
				for again := range int64(5) {
					order := slices.Clone(ps)
					if me == 1 {
						slices.Reverse(order)
					}
					one[0], out[0] = again+int64(me), again*10+int64(me)
					qs, err := mpi.Startall(order...)
					if err != nil {
						return err
					}
					if _, err := mpi.Waitall(ctx, qs...); err != nil {
						return err
					}
					if err := errors.Join(
						differs("sum", sum, []int64{3*again + 3}),
						differs("all", all, []int64{again, again + 1, again + 2}),
						differs("received", in, []int64{again*10 + int64((me+n-1)%n)}),
					); err != nil {
						return err
					}
				}
				return c.Barrier(ctx)
			})
		})
	}
}

// A persistent request that is not over is not started.
func TestStartTwice(t *testing.T) {
	c := job(t, ways[0], 1)[0]
	in := []int64{0}
	p, err := mpi.RecvInit(c, in, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Start()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Start(); !errors.Is(err, mpi.ErrRequest) {
		t.Errorf("started twice: %v", err)
	}
	if !q.Cancel() {
		t.Fatal("it is not cancelled")
	}
	if q, err = p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := mpi.Send(within(t), c, []int64{9}, 0, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Wait(within(t)); err != nil || in[0] != 9 {
		t.Errorf("received %d: %v", in[0], err)
	}
	var none *mpi.Persistent
	if _, err := none.Start(); !errors.Is(err, mpi.ErrRequest) {
		t.Errorf("a nil request: %v", err)
	}
}

// Parts that cannot be are refused before anything is sent.
func TestParts(t *testing.T) {
	c := job(t, ways[0], 1)[0]
	buf := make([]int64, 4)
	for what, at := range map[string]mpi.Parts{
		"too few counts":        {},
		"too few displacements": {Counts: []int{4}, Displs: []int{}},
		"a negative count":      {Counts: []int{-1}},
		"beyond the end":        {Counts: []int{4}, Displs: []int{1}},
		"before the beginning":  {Counts: []int{4}, Displs: []int{-1}},
	} {
		if err := mpi.Gatherv(within(t), c, buf, make([]int64, 4), at, 0); !errors.Is(err, mpi.ErrCount) {
			t.Errorf("%s: %v", what, err)
		}
	}
	each(t, job(t, ways[0], 2), func(ctx context.Context, c *mpi.Comm) error {
		at := mpi.Parts{Counts: []int{2, 2}, Displs: []int{1, 0}}
		if err := mpi.Allgatherv(ctx, c, make([]int64, 2), make([]int64, 4), at); !errors.Is(err, mpi.ErrArg) {
			return fmt.Errorf("parts that overlap: %w", err)
		}
		return nil
	})
}
