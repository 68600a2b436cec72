package group

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { vmmctest.Main(m) }

// bound is a guard against hanging.
const bound = 3 * time.Minute

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), bound)
	t.Cleanup(stop)
	return ctx
}

// newGroup is the text of a group of new members: counts of programs, by the nodes.
func newGroup(nodes []*vmmctest.Node, counts ...int) string {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	parts := make([]string, len(counts))
	for i, n := range counts {
		parts[i] = fmt.Sprintf("%s*%d", nodes[i].Name(), n)
	}
	return "1:" + hex.EncodeToString(id) + ":" + strings.Join(parts, ",")
}

// joined are members of a new group, each a process of its own of this program. The last ones are
// left out.
func joined(t testing.TB, nodes []*vmmctest.Node, text string, size, without int, opts ...vmmc.Option) (gs []*Group) {
	t.Helper()
	_, rest, _ := strings.Cut(text, ":")
	_, rest, _ = strings.Cut(rest, ":")
	for i, part := range strings.Split(rest, ",") {
		_, count, _ := strings.Cut(part, "*")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			if len(gs) == size-without {
				return gs
			}
			g, err := joinAs(within(t), nodes[i].Open(t, opts...), text, strconv.Itoa(len(gs)), strconv.Itoa(size))
			if err != nil {
				t.Fatal(err)
			}
			gs = append(gs, g)
		}
	}
	return gs
}

// local are the members of a new group of one node.
func local(t testing.TB, n int) []*Group {
	t.Helper()
	nodes := vmmctest.Nodes(t, 1)
	return joined(t, nodes, newGroup(nodes, n), n, 0)
}

// each runs f for all members at the same time, and fails the test where it fails. The context of
// the others ends then.
func each(t testing.TB, gs []*Group, f func(ctx context.Context, g *Group) error) {
	t.Helper()
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	for i, err := range all(gs, func(g *Group) error {
		err := f(ctx, g)
		if err != nil {
			stop()
		}
		return err
	}) {
		if err != nil {
			t.Errorf("member %d: %v", gs[i].Rank(), err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// awaits waits until a condition holds that other goroutines bring about.
func awaits(ctx context.Context, t testing.TB, what string, is func() bool) {
	t.Helper()
	for !is() {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatal("never: ", what)
		}
	}
}

// partnerOf is a partner of a member.
func partnerOf(t testing.TB, g *Group, rank int) *partner {
	t.Helper()
	for _, pt := range g.all {
		if pt.rank == rank {
			return pt
		}
	}
	t.Fatalf("member %d is no partner of member %d", rank, g.Rank())
	return nil
}

// awaitLinked waits until members have linked with one.
func awaitLinked(ctx context.Context, t testing.TB, gs []*Group, rank int) {
	t.Helper()
	for _, g := range gs {
		pt := partnerOf(t, g, rank)
		awaits(ctx, t, "the link with a partner", func() bool { return g.importOf(pt) != nil })
	}
}

// atStep calls f at each step of the members of the test, until the test ends.
func atStep(t testing.TB, f func(g *Group, name string)) {
	onStep.Store(&f)
	t.Cleanup(func() { onStep.Store(nil) })
}

// all is what f returned for each member.
func all(gs []*Group, f func(g *Group) error) []error {
	errs := make([]error, len(gs))
	var wg sync.WaitGroup
	for i, g := range gs {
		wg.Go(func() { errs[i] = f(g) })
	}
	wg.Wait()
	return errs
}

// without fails unless err says that a member is gone.
func without(err error, rank int) error {
	var gone MemberGoneError
	if !errors.As(err, &gone) || gone.Rank != rank || !errors.Is(err, vmmc.ErrPeerGone) {
		return fmt.Errorf("%w, and member %d is gone", errors.Join(errors.New("it is"), err), rank)
	}
	return nil
}
