package table_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/table"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// ownerSteps are where an owner is killed and stopped, and how often it has been there.
var ownerSteps = []struct {
	step string
	nth  int
}{
	{"slot.begun", 5},
	{"slot.written", 15},
	{"head.written", 25},
	{"committed", 25},
	{"entry.copied", 3},
	{"entry.copied", 20},
	{"bucket.dropped", 1},
	{"bucket.taken", 1},
	{"bucket.linked", 1},
	{"change.noted", 30},
}

var deathWays = []way{ways[0], ways[2]}

// startOwner starts an owner that pauses at a step, and a reader that knows its keys.
func startOwner(
	t *testing.T, w way, step string, nth int, file string,
) (*vmmctest.Proc, *table.Reader[key, record], []int, *vmmctest.Node) {
	t.Helper()
	nodes := vmmctest.Nodes(t, w.nodes)
	child := vmmctest.Child(t, nodes[0], "owner", step, strconv.Itoa(nth), file)
	if s := child.Line(); s != "ready" {
		t.Fatal(s)
	}
	var ks []int
	for range ownKeys {
		k, err := strconv.Atoi(child.Line())
		if err != nil {
			t.Fatal(err)
		}
		ks = append(ks, k)
	}
	return child, open[record](t, nodes[len(nodes)-1].Open(t)), ks, nodes[0]
}

// awaitStep waits until the owner pauses at a step, and returns how many rounds are over.
func awaitStep(t *testing.T, child *vmmctest.Proc, step string) (rounds int) {
	t.Helper()
	for {
		s := child.Line()
		if s == step {
			return rounds
		}
		if s != strconv.Itoa(rounds+1) {
			t.Fatalf("the owner prints %q", s)
		}
		rounds++
	}
}

// lookUpAll gets all keys while the owner is in round n, or is stopped there.
func lookUpAll(
	ctx context.Context, t *testing.T, r *table.Reader[key, record], ks []int, n int,
) error {
	t.Helper()
	for i, k := range ks {
		v, ok, err := r.Get(ctx, newKey(k))
		if err != nil {
			return err
		}
		switch {
		case !ok && i >= ownKeys/2:
			t.Errorf("key %d is not there, and is never deleted", k)
		case ok && (v.check(k) != nil || int(v.N) != n && int(v.N) != n-1):
			t.Errorf("key %d is %+v in round %d", k, v, n)
		}
	}
	return nil
}

// An owner that is stopped at any step holds up no reader, and when it goes on, readers find what
// it puts.
func TestOwnerStopped(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range ownerSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "continue")
				child, r, ks, _ := startOwner(t, w, s.step, s.nth, file)
				n := awaitStep(t, child, s.step) + 1
				if w.nodes == 1 { // between nodes the owner's process answers gets
					child.Stop()
				}
				for range 3 {
					if err := lookUpAll(within(t), t, r, ks, n); err != nil {
						t.Error(err)
					}
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if w.nodes == 1 {
					child.Continue()
				}
				for ; n <= ownRounds; n++ {
					if got := child.Line(); got != strconv.Itoa(n) {
						t.Fatalf("the owner prints %q, want %d", got, n)
					}
				}
				for _, k := range ks {
					v, ok, err := r.Get(within(t), newKey(k))
					if !ok || err != nil || v != newRecord(k, ownRounds) {
						t.Errorf("key %d at the end: %+v, %t, %v", k, v, ok, err)
					}
				}
			})
		}
	}
}

// The readers of an owner that is killed at any step find whole values until they get ErrPeerGone,
// and the table that comes under its name then by Rejoin.
func TestOwnerKilled(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range ownerSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				child, r, ks, node := startOwner(t, w, s.step, s.nth, "/nonexistent/file")
				n := awaitStep(t, child, s.step) + 1
				ended := make(chan error)
				ctx := within(t)
				go func() {
					for {
						if err := lookUpAll(ctx, t, r, ks, n); err != nil {
							ended <- err
							return
						}
					}
				}()
				child.Kill()
				if err := <-ended; !errors.Is(err, vmmc.ErrPeerGone) {
					t.Errorf("%v", err)
				}
				<-r.Done()
				p := node.Open(t)
				o, err := table.New[key, record](ctx, p, name, 3)
				if err != nil {
					t.Fatal(err)
				}
				defer o.Close()
				put(t, o, 1, 77)
				for range 2 {
					if err := r.Rejoin(ctx); err != nil {
						t.Fatal(err)
					}
					holds(t, o, r, 1, 77)
				}
			})
		}
	}
}

// A reader waits no longer than its context for a node that does not answer.
func TestReaderCutOff(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	o := newTable[record](t, nodes[0].Open(t), 10)
	r := open[record](t, nodes[1].Open(t))
	put(t, o, 1, 1)
	holds(t, o, r, 1, 1)
	nodes[0].Cut()
	soon, stop := context.WithTimeout(within(t), 20*time.Millisecond)
	defer stop()
	for soon.Err() == nil {
		if _, _, err := r.Get(soon, newKey(1)); err == nil {
			t.Error("a get from a node that is cut off")
		}
	}
	nodes[0].Heal()
	eventually(t, "the reader finds the table again", func() bool {
		if err := r.Rejoin(within(t)); err != nil {
			t.Fatal(err)
		}
		_, ok, err := r.Get(within(t), newKey(1))
		return ok && err == nil
	})
	holds(t, o, r, 1, 1)
}
