package mesh

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
)

// two joins two processes of this program on a node of its own.
func two(t *testing.T, words, places int) [2]*Mesh {
	t.Helper()
	testutil.Require(t, runtime.GOOS == "linux", "needs Linux")
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	var members [2]*ranks.Member
	var ids []vmmc.ProcessID
	for r := range members {
		p, err := vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		members[r] = &ranks.Member{Process: p, Rank: r}
		ids = append(ids, p.ID())
	}
	var out [2]*Mesh
	both(t, func(ctx context.Context, r int) error {
		members[r].Ranks = ids
		h, err := Open(ctx, members[r], Room(words, places), 1)
		if err != nil {
			return err
		}
		out[r] = h
		return h.Lay(ctx, words, places)
	})
	return out
}

// both does something as both ranks at a time.
func both(t *testing.T, f func(ctx context.Context, rank int) error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	other := make(chan error, 1)
	go func() { other <- f(ctx, 1) }()
	if err := errors.Join(f(ctx, 0), <-other); err != nil {
		t.Fatal(err)
	}
}

// A sender that is always faster than the receiver overwrites nothing.
func TestSenderWaitsForPlaces(t *testing.T) {
	const words, places, messages = 5, 3, 500
	h := two(t, words, places)
	both(t, func(ctx context.Context, r int) error {
		pair, message := h[r].Pairs[1-r], make([]byte, 4*words)
		for i := range uint32(messages) {
			if r == 0 {
				h[r].Fill(1, i, message)
				if err := pair.Send(ctx, message); err != nil {
					return err
				}
				continue
			}
			place, err := pair.Receive(ctx)
			if err != nil {
				return err
			}
			runtime.Gosched() // lets the sender run ahead as far as it can
			if err := h[r].Check(0, i, place[len(place)-len(message):]); err != nil {
				return err
			}
			if err := pair.Free(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if h[1].Checked != (Count{messages, messages * words}) {
		t.Errorf("checked %v", h[1].Checked)
	}
}

// With all places taken the next message is not sent.
func TestNoPlaceLeft(t *testing.T) {
	h := two(t, 1, 2)
	ctx, stop := context.WithCancel(t.Context())
	message := make([]byte, 4)
	for i := range uint32(2) {
		h[0].Fill(1, i, message)
		if err := h[0].Pairs[1].Send(ctx, message); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	h[0].Fill(1, 2, message)
	if err := h[0].Pairs[1].Send(ctx, message); !errors.Is(err, context.Canceled) {
		t.Errorf("a third message to two places: %v", err)
	}
	for i := range uint32(2) {
		place, err := h[1].Pairs[0].Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := h[1].Check(0, i, place[len(place)-4:]); err != nil {
			t.Error(err)
		}
	}
}

// The places may be divided anew between messages.
func TestLayAnew(t *testing.T) {
	h := two(t, 64, 4)
	both(t, func(ctx context.Context, r int) error {
		pair, number := h[r].Pairs[1-r], uint32(0)
		for _, words := range []int{1, 64, 2, 33} {
			if err := h[r].Lay(ctx, words, 4); err != nil {
				return err
			}
			message := make([]byte, 4*words)
			for range 9 {
				h[r].Fill(1-r, number, message)
				if err := pair.Send(ctx, message); err != nil {
					return err
				}
				place, err := pair.Receive(ctx)
				if err != nil {
					return err
				}
				if err := h[r].Check(1-r, number, place[len(place)-len(message):]); err != nil {
					return err
				}
				if err := pair.Free(ctx); err != nil {
					return err
				}
				number++
			}
		}
		return nil
	})
}
