package table_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/table"
	"github.com/vmmc-go/vmmc/vmmctest"
)

const confirmName = "n1/confirm"

// confirming makes a replica on a node that confirms its changes, and a reader of it.
func confirming(
	t testing.TB, on *vmmctest.Node, copied string,
) (*table.Replica[key, record], *table.Reader[key, record]) {
	t.Helper()
	return replicate(t, on, copied, table.Confirm(confirmName))
}

// When a change returns, as many replicas have it as the owner awaits.
func TestConfirmed(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			opts := []table.Option{table.AwaitReplicas(2, confirmName)}
			if w.unmapped {
				opts = append(opts, table.Unmapped())
			}
			nodes := vmmctest.Nodes(t, w.nodes)
			o := newTable[record](t, nodes[0].Open(t), 40, opts...)
			last := nodes[len(nodes)-1]
			_, a := confirming(t, last, "a")
			_, b := confirming(t, last, "b")
			for n := range 50 {
				k := n % 7
				put(t, o, k, n)
				holds(t, o, a, k, n)
				holds(t, o, b, k, n)
				if n%3 == 0 {
					remove(t, o, k)
					lacks(t, o, a, k)
					lacks(t, o, b, k)
				}
			}
		})
	}
}

// TestConfirmedModel compares replicas that come and go with a map: what a change has said to be there
// is in as many of them.
func TestConfirmedModel(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p, q := node.Open(t), node.Open(t)
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		source, confirm := fmt.Sprint("model", runs), fmt.Sprint("confirm", runs)
		need := rapid.IntRange(1, 2).Draw(t, "need")
		o, err := table.New[key, record](t.Context(), p, source, 20, table.AwaitReplicas(need, confirm))
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		var reps []*table.Replica[key, record]
		var readers []*table.Reader[key, record]
		made := 0
		closeOne := func(i int) {
			if err := errors.Join(readers[i].Close(), reps[i].Close()); err != nil {
				t.Fatal(err)
			}
			reps = append(reps[:i:i], reps[i+1:]...)
			readers = append(readers[:i:i], readers[i+1:]...)
		}
		defer func() {
			for len(reps) > 0 {
				closeOne(0)
			}
		}()
		want := map[int]int{}
		changed := func(err error) {
			if len(reps) >= need {
				if err != nil {
					t.Fatalf("%d replicas, of %d: %v", len(reps), need, err)
				}
			} else if !errors.Is(err, table.ErrUnconfirmed) || !errors.Is(err, vmmc.ErrCanceled) {
				t.Fatalf("%d replicas, of %d: %v", len(reps), need, err)
			}
			if err != nil {
				return
			}
			have := 0
			for _, r := range readers {
				all := true
				for k := range 5 {
					v, ok, err := r.Get(t.Context(), newKey(k))
					if err != nil {
						t.Fatal(err)
					}
					n, is := want[k]
					all = all && ok == is && (!is || v == newRecord(k, n))
				}
				if all {
					have++
				}
			}
			if have < need {
				t.Fatalf("%d of %d replicas have all changes, want %d", have, len(reps), need)
			}
		}
		// ctx has ended if no change can be confirmed.
		over, stop := context.WithCancel(t.Context())
		stop()
		ctx := func() context.Context {
			if len(reps) < need {
				return over
			}
			return t.Context()
		}
		n := 0
		putOne := func(t *rapid.T) {
			k := rapid.IntRange(0, 4).Draw(t, "key")
			n++
			want[k] = n
			changed(o.Put(ctx(), newKey(k), newRecord(k, n)))
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": putOne, "put again": putOne, "put once more": putOne,
			"delete": func(t *rapid.T) {
				k := rapid.IntRange(0, 4).Draw(t, "key")
				_, is := want[k]
				delete(want, k)
				was, err := o.Delete(ctx(), newKey(k))
				if was != is {
					t.Fatalf("delete: %t, want %t", was, is)
				}
				// The deletion of a key that is not there awaits earlier ones. A replica that has just been
				// closed may have confirmed them.
				if is || err != nil {
					changed(err)
				}
			},
			"replicate": func(t *rapid.T) {
				if len(reps) == 3 {
					return
				}
				made++
				copied := fmt.Sprint(source, " copy ", made)
				r, err := table.Replicate[key, record](t.Context(), q, source, copied, table.Confirm(confirm))
				if err != nil {
					t.Fatal(err)
				}
				reader, err := table.Open[key, record](t.Context(), p, copied)
				if err != nil {
					t.Fatal(err)
				}
				reps, readers = append(reps, r), append(readers, reader)
			},
			"close a replica": func(t *rapid.T) {
				if len(reps) > 0 {
					closeOne(rapid.IntRange(0, len(reps)-1).Draw(t, "replica"))
				}
			},
		})
	})
}

// confirmedRounds is how often [ownConfirmed] puts its key.
const confirmedRounds = 60

// ownConfirmed is a child: step, how often, file. It awaits a replica, and puts one key, whose value
// it prints when the put has returned.
func ownConfirmed(ctx context.Context, p *vmmc.Process, args ...string) error {
	o, err := table.New[key, record](ctx, p, name, 8, table.AwaitReplicas(1, confirmName))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	steps.PauseAt(args[0], args[1], args[2])
	for n := 1; n <= confirmedRounds; n++ {
		if err := o.Put(ctx, newKey(1), newRecord(1, n)); err != nil {
			return err
		}
		fmt.Println(n)
	}
	<-ctx.Done() // never: the test kills it
	return nil
}

// When the owner is killed, at any step, the promoted replica has each change that had returned.
func TestConfirmedOwnerKilled(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range []struct {
			step string
			nth  int
		}{
			{"slot.written", 20},
			{"committed", 30},
			{"change.noted", 40},
			{"confirm.awaited", 5},
			{"confirm.noted", 20},
		} {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes := vmmctest.Nodes(t, w.nodes)
				child := vmmctest.Child(t, nodes[0], "confirmed owner", s.step, strconv.Itoa(s.nth), "/nonexistent/file")
				if got := child.Line(); got != "ready" {
					t.Fatal(got)
				}
				rep, r := confirming(t, nodes[len(nodes)-1], "copy")
				n := awaitStep(t, child, s.step)
				child.Kill()
				<-rep.Done()
				if !errors.Is(rep.Err(), vmmc.ErrPeerGone) {
					t.Error(rep.Err())
				}
				if _, err := rep.Promote(); err != nil {
					t.Fatal(err)
				}
				v, ok, err := r.Get(within(t), newKey(1))
				if err != nil || ok && v.check(1) != nil || int(v.N) < n || int(v.N) > n+1 {
					t.Errorf("put %d had returned, and the replica has %+v, %t, %v", n, v, ok, err)
				}
			})
		}
	}
}

// confirmUntilKilled is a child: step, how often, file, and the copy's name. It has a replica that
// confirms.
func confirmUntilKilled(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[0], args[1], args[2])
	r, err := table.Replicate[key, record](ctx, p, name, args[3], table.Confirm(confirmName))
	if err != nil {
		return err
	}
	<-r.Done()
	return r.Err()
}

// A replica that is stopped or killed, at any step, holds up changes until it goes on, or another one
// is there. No change is confirmed that no replica has.
func TestConfirmingReplicaKilledOrStopped(t *testing.T) {
	for _, w := range deathWays {
		for i, step := range []string{"log.got", "homes.got", "committed", "confirm.sent"} {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+step, func(t *testing.T) {
				nodes := vmmctest.Nodes(t, w.nodes)
				o := newTable[record](t, nodes[0].Open(t), 8, table.AwaitReplicas(1, confirmName))
				last := nodes[len(nodes)-1]
				child := vmmctest.Child(t, last, "confirming", step, "8", "/nonexistent/file", last.Name()+"/lost")
				done, n := make(chan error), 0
				paused := make(chan string, 1)
				go func() { paused <- child.Line() }()
				begin := func() {
					n++
					v := newRecord(1, n)
					go func() { done <- o.Put(within(t), newKey(1), v) }()
				}
				var got string
				for begin(); got == ""; {
					select {
					case err := <-done:
						if err != nil {
							t.Fatal(err)
						}
						begin()
					case got = <-paused:
					}
				}
				if got != step {
					t.Fatal(got)
				}
				child.Stop()
				select { // what it had confirmed before it was stopped
				case err := <-done:
					if err != nil {
						t.Fatal(err)
					}
					begin()
				default:
				}
				soon, stop := context.WithCancel(within(t))
				stop()
				err := o.Put(soon, newKey(2), newRecord(2, 1))
				if !errors.Is(err, table.ErrUnconfirmed) || !errors.Is(err, vmmc.ErrCanceled) {
					t.Errorf("a put beside a replica that is stopped: %v", err)
				}
				child.Kill()
				_, r := confirming(t, last, "copy")
				if err := <-done; err != nil {
					t.Errorf("the put that has waited for another replica: %v", err)
				}
				holds(t, o, r, 1, n)
				holds(t, o, r, 2, 1)
				put(t, o, 3, 1)
				holds(t, o, r, 3, 1)
			})
		}
	}
}

// A replica that is about to confirm a change may see the next one, and confirm both, before the owner
// has told of that.
func TestConfirmedEarly(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	o := newTable[record](t, node.Open(t), 8, table.AwaitReplicas(1, confirmName))
	rep, r := confirming(t, node, "copy")
	put(t, o, 1, 1)
	var confirms, changes atomic.Bool // what is to be held
	held, goOn := make(chan struct{}), make(chan struct{})
	changed, noted := make(chan struct{}), make(chan struct{}, 100)
	steps.On(t, func(s string) {
		switch {
		case s == "confirm.sent" && confirms.CompareAndSwap(true, false):
			close(held)
			<-goOn
		case s == "change.noted" && changes.CompareAndSwap(true, false):
			close(changed)
			select {
			case <-noted:
			case <-rep.Done():
			}
		case s == "confirm.noted":
			noted <- struct{}{}
		}
	})
	confirms.Store(true)
	done := make(chan error, 2)
	ctx := within(t)
	go func() { done <- o.Put(ctx, newKey(1), newRecord(1, 2)) }()
	<-held
	changes.Store(true)
	go func() { done <- o.Put(ctx, newKey(1), newRecord(1, 3)) }()
	<-changed
	eventually(t, "the replica has the change", func() bool {
		v, _, err := r.Get(ctx, newKey(1))
		return err != nil || v.N == 3
	})
	close(goOn)
	select {
	case <-rep.Done():
		t.Fatal(rep.Err())
	case err := <-done:
		if err = errors.Join(err, <-done); err != nil {
			t.Error(err)
		}
	}
}

// Bad options are refused, a replica of another table is, and the end of the table ends what waits.
func TestConfirmRefused(t *testing.T) {
	ctx, node := within(t), vmmctest.Nodes(t, 1)[0]
	p := node.Open(t)
	for _, opt := range []table.Option{
		table.AwaitReplicas(0, confirmName), table.AwaitReplicas(1000, confirmName), table.Confirm("x"),
	} {
		if _, err := table.New[key, record](ctx, p, name, 8, opt); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("%v", err)
		}
	}
	if _, err := table.New[key, record](ctx, p, name, 8, table.AwaitReplicas(1, name)); !errors.Is(err, vmmc.ErrNameTaken) {
		t.Errorf("one name for both: %v", err)
	}
	o := newTable[record](t, p, 8, table.AwaitReplicas(1, confirmName))
	q := node.Open(t)
	_, err := table.Replicate[key, record](ctx, q, name, "copy", table.AwaitReplicas(1, "x"))
	if !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a replica that awaits others: %v", err)
	}
	other, err := table.New[key, record](ctx, p, "other", 8)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	rep, err := table.Replicate[key, record](ctx, q, "other", "copy", table.Confirm(confirmName))
	if err != nil {
		t.Fatal(err)
	}
	<-rep.Done()
	if err := rep.Err(); err == nil || errors.Is(err, vmmc.ErrPeerGone) {
		t.Errorf("a replica that confirms to another table: %v", err)
	}
	if err := rep.Close(); err != nil {
		t.Error(err)
	}
	waits := make(chan struct{}, 1)
	steps.On(t, func(s string) {
		if s == "confirm.awaited" {
			select {
			case waits <- struct{}{}:
			default:
			}
		}
	})
	done := make(chan error)
	go func() { done <- o.Put(ctx, newKey(1), newRecord(1, 1)) }()
	<-waits
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, table.ErrUnconfirmed) || !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("a put that has waited when the table was closed: %v", err)
	}
}
