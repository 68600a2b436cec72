package lock_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/lock"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// steps has tests act at the steps of the protocol.
var steps testutil.Steps

func TestMain(m *testing.M) {
	pair.Step = steps.At
	vmmctest.Role("worker", work)
	vmmctest.Role("host", hostUntilKilled)
	vmmctest.Role("permits", permits)
	vmmctest.Role("once", runOnce)
	vmmctest.Role("others", hostOthers)
	vmmctest.Role("adder", addForever)
	vmmctest.Role("holder", holder)
	vmmctest.Main(m)
}

// bound is a guard against hanging.
const bound = testutil.Bound

var (
	within     = testutil.Context
	eventually = testutil.Eventually
)

// way is how clients reach the host.
type way struct {
	name     string
	nodes    int
	unmapped bool
	shared   []*vmmctest.Node // if not nil, what start and others take instead of new ones
}

var (
	ways      = []way{{"mapped", 1, false, nil}, {"stream", 1, true, nil}, {"between nodes", 2, false, nil}}
	deathWays = []way{ways[0], ways[2]}
)

const name, accountName = "n1/lock", "n1/account"

// sharing is the way with nodes that its tests share: to start some takes longer than most tests.
func (w way) sharing(t testing.TB) way {
	w.shared = vmmctest.Nodes(t, w.nodes)
	return w
}

// started are nodes that run.
func (w way) started(t testing.TB) []*vmmctest.Node {
	if w.shared != nil {
		return w.shared
	}
	return vmmctest.Nodes(t, w.nodes)
}

// start starts nodes, and a host on the first one. Clients are on the last one.
func (w way) start(
	t testing.TB, opts ...lock.Option,
) (nodes []*vmmctest.Node, s *lock.Server) {
	t.Helper()
	if w.unmapped {
		opts = append(opts, lock.Unmapped())
	}
	nodes = w.started(t)
	return nodes, hosted(t, nodes[0].Open(t), opts...)
}

// startWithAccount is start with an account of the host's process, where no data of a dead holder
// arrives once another one has the lock.
func (w way) startWithAccount(
	t testing.TB,
) (nodes []*vmmctest.Node, s *lock.Server, e *vmmc.Export) {
	t.Helper()
	nodes = w.started(t)
	p := nodes[0].Open(t)
	return nodes, hosted(t, p, w.options()...), w.account(t, p)
}

func hosted(t testing.TB, p *vmmc.Process, opts ...lock.Option) *lock.Server {
	t.Helper()
	s, err := lock.Host(within(t), p, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func open(t testing.TB, p *vmmc.Process) *lock.Mutex {
	t.Helper()
	m, err := lock.Open(within(t), p, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(within(t)); err != nil {
			t.Error(err)
		}
	})
	return m
}

func locked(t testing.TB, m *lock.Mutex) *lock.Held {
	t.Helper()
	h, err := m.Lock(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func unlock(t testing.TB, h *lock.Held) {
	t.Helper()
	if err := h.Unlock(within(t)); err != nil {
		t.Fatal(err)
	}
}

// An account is what a lock protects: memory of the host, which shows whether its holders were
// alone. Each change has two halves.
const (
	insideOff  = 0  // the token of the holder that changes it, or 0
	firstOff   = 8  // how many changes there were
	secondOff  = 16 // the same
	tokenOff   = 24 // the last one's
	doneOff    = 32 // how many changes' locks were given back
	accountLen = 64
)

// newAccount exports an account.
func newAccount(t testing.TB, p *vmmc.Process, opts ...vmmc.ExportOption) *vmmc.Export {
	t.Helper()
	mem, err := p.Alloc(accountLen)
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Publish(within(t), accountName, mem.Bytes(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// account exports the way's account.
func (w way) account(t testing.TB, p *vmmc.Process) *vmmc.Export {
	t.Helper()
	if w.unmapped {
		return newAccount(t, p, vmmc.Unmapped())
	}
	return newAccount(t, p)
}

type account struct{ *vmmc.Import }

func importAccount(ctx context.Context, p *vmmc.Process) (account, error) {
	im, err := p.ImportName(ctx, accountName)
	return account{im}, err
}

// change adds one, and repairs what a dead holder has left.
func (a account) change(ctx context.Context, h *lock.Held) error {
	token := h.Token()
	prev, ok, err := a.CompareAndSwap64(ctx, insideOff, 0, token)
	switch {
	case err != nil:
		return err
	case ok:
	case !h.Abandoned() || prev >= token:
		return fmt.Errorf("holder %d finds holder %d, abandoned: %t", token, prev, h.Abandoned())
	default:
		if _, err := a.Swap64(ctx, insideOff, token); err != nil {
			return err
		}
	}
	var b [24]byte
	if err := a.Get(ctx, b[:], firstOff); err != nil {
		return err
	}
	first := binary.NativeEndian.Uint64(b[:])
	second := binary.NativeEndian.Uint64(b[8:])
	last := binary.NativeEndian.Uint64(b[16:])
	switch {
	case last >= token:
		return fmt.Errorf("holder %d finds token %d", token, last)
	case first != second && !h.Abandoned():
		return fmt.Errorf("holder %d finds a half change, %d and %d", token, first, second)
	}
	binary.NativeEndian.PutUint64(b[:], first+1)
	if err := a.Send(ctx, b[:8], firstOff); err != nil {
		return err
	}
	pair.At("change.half")
	binary.NativeEndian.PutUint64(b[8:], token)
	if err := errors.Join(a.Send(ctx, b[8:16], tokenOff), a.Send(ctx, b[:8], secondOff)); err != nil {
		return err
	}
	h.Repaired()
	if prev, ok, err := a.CompareAndSwap64(ctx, insideOff, token, 0); !ok {
		return fmt.Errorf("holder %d finds holder %d when it leaves, %w", token, prev, err)
	}
	return nil
}

// round locks, changes the account and unlocks. It reports whether an earlier holder had died.
func round(ctx context.Context, m *lock.Mutex, a account) (abandoned bool, err error) {
	h, err := m.Lock(ctx)
	if err != nil {
		return false, err
	}
	abandoned = h.Abandoned()
	if err := a.change(ctx, h); err != nil {
		return abandoned, err
	}
	if err := h.Unlock(ctx); err != nil {
		return abandoned, err
	}
	_, err = a.FetchAdd64(ctx, doneOff, 1)
	return abandoned, err
}

// work is a child: step, how often, file, rounds, how. It locks and changes the account, so many
// rounds and until it was at the step, and closes. It gives up soon with "impatient", and does so, tries, and opens anew by turns with
// "random".
func work(ctx context.Context, p *vmmc.Process, args ...string) error {
	awaits := steps.PauseAt(args[0], args[1], args[2])
	rounds, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	how := args[4]
	a, err := importAccount(ctx, p)
	if err != nil {
		return err
	}
	m, err := lock.Open(ctx, p, name)
	if err != nil {
		return err
	}
	for i := 0; i < rounds || args[0] != "close.sent" && awaits(); i++ {
		switch {
		case how == "impatient", how == "random" && i%7 == 3:
			soon, stop := context.WithTimeout(ctx, time.Duration(i%1000)*time.Microsecond)
			h, err := m.Lock(soon)
			stop()
			if errors.Is(err, vmmc.ErrTimeout) {
				continue
			}
			if err == nil {
				err = errors.Join(a.change(ctx, h), h.Unlock(ctx))
			}
			if err == nil {
				_, err = a.FetchAdd64(ctx, doneOff, 1)
			}
			if err != nil {
				return err
			}
		case how == "random" && i%11 == 5:
			h, ok, err := m.TryLock(ctx)
			if err == nil && ok {
				err = errors.Join(a.change(ctx, h), h.Unlock(ctx))
				if err == nil {
					_, err = a.FetchAdd64(ctx, doneOff, 1)
				}
			}
			if err != nil {
				return err
			}
		case how == "random" && i%50 == 49:
			if err := m.Close(ctx); err != nil {
				return err
			}
			if m, err = lock.Open(ctx, p, name); err != nil {
				return err
			}
		default:
			if _, err := round(ctx, m, a); err != nil {
				return err
			}
		}
	}
	return m.Close(ctx)
}

// hostUntilKilled is a child: step, how often, file.
func hostUntilKilled(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[0], args[1], args[2])
	if _, err := lock.Host(ctx, p, name); err != nil {
		return err
	}
	fmt.Println("hosts")
	<-ctx.Done() // never: the test kills it
	return nil
}

func itoa(n int) string { return strconv.Itoa(n) }
