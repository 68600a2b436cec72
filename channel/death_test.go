package channel_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/channel"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// senderSteps are where a sender on a channel with a buffer of 4 is killed and stopped, how often
// it has been there, and how many values it has sent then.
var senderSteps = []struct {
	step      string
	nth, sent int
	joined    bool // the receiver knows of it
	closed    bool // its end mark has left
}{
	{"dial.found", 1, 0, false, false},
	{"dial.exported", 1, 0, false, false},
	{"dial.requested", 1, 0, false, false},
	{"dial.answered", 1, 0, false, false},
	{"dial.entered", 1, 0, false, false},
	{"dial.joined", 1, 0, true, false},
	{"put.room", 3, 2, true, false},
	{"put.encoded", 3, 2, true, false},
	{"put.sent", 3, 3, true, false},
	{"put.wait", 1, 4, true, false},
	{"close.unmarked", 1, 4, true, false},
	{"close.marked", 1, 4, true, true},
	{"close.wait", 1, 4, true, true},
	{"close.fence", 1, 4, true, true},
}

// values is how many values a sender is to send: with 5 it waits for room.
func values(step string) int {
	if step == "put.wait" {
		return 5
	}
	return 4
}

// A sender that is killed at any step is told as lost, behind a prefix of its values, and never as
// a close, unless its end mark had left: then the channel may be closed, and all values are there.
func TestSenderKilled(t *testing.T) {
	for _, w := range where {
		nodes := vmmctest.Nodes(t, w.nodes)
		for i, s := range senderSteps {
			if testutil.LeavesOut(i, w.nodes, len(where)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				c := newChan(t, nodes[0].Open(t), channel.Buffer(4))
				last, ctx := nodes[len(nodes)-1], within(t)
				args := []string{name, "7", itoa(values(s.step)), s.step, itoa(s.nth), "/nonexistent/file"}
				killed := vmmctest.Child(t, last, "sender", args...)
				got := tally{}
				if s.step == "close.fence" { // it comes there when all are received
					for range s.sent {
						v, _, err := c.Recv(ctx)
						if err != nil {
							t.Fatal(err)
						}
						got.add(t, v)
					}
				}
				if l := killed.Line(); l != s.step {
					t.Fatal(l)
				}
				killed.Kill()
				if !s.joined { // another one comes, as nothing was lost
					var next *channel.Sender[item]
					eventually(t, "another sender may dial", func() (ok bool) {
						var err error
						next, err = channel.Dial[item](ctx, last.Open(t), name)
						if err != nil && !errors.Is(err, vmmc.ErrNoMem) {
							t.Fatal(err)
						}
						return err == nil
					})
					done := make(chan error, 1)
					go func() { done <- next.Close(ctx) }()
					if _, ok, err := c.Recv(ctx); ok || err != nil {
						t.Errorf("the end: %t, %v", ok, err)
					}
					if err := <-done; err != nil {
						t.Error(err)
					}
					return
				}
				ok, err := true, error(nil)
				for ok {
					var v item
					if v, ok, err = c.Recv(ctx); ok {
						got.add(t, v)
					}
				}
				var lost *channel.LostError
				switch n := int(got[7]); {
				case err == nil:
					if !s.closed || n != s.sent {
						t.Errorf("it is closed, after %d values", n)
					}
				case !errors.As(err, &lost) || !errors.Is(err, vmmc.ErrPeerGone):
					t.Errorf("%v", err)
				case lost.Values != uint64(n) || n > s.sent || w.nodes == 1 && (n != s.sent || s.closed):
					t.Errorf("%d values: %v", n, err)
				}
				if _, ok, again := c.Recv(ctx); ok || !errors.Is(again, err) {
					t.Errorf("later: %t, %v", ok, again)
				}
			})
		}
	}
}

// A sender that is stopped at any step goes on where it was, and the channel is closed behind all
// its values.
func TestSenderStopped(t *testing.T) {
	for _, w := range where {
		nodes := vmmctest.Nodes(t, w.nodes)
		for i, s := range senderSteps {
			if testutil.LeavesOut(i, w.nodes, len(where)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				c := newChan(t, nodes[0].Open(t), channel.Buffer(4))
				file, n := filepath.Join(t.TempDir(), "continue"), values(s.step)
				args := []string{name, "7", itoa(n), s.step, itoa(s.nth), file}
				child := vmmctest.Child(t, nodes[len(nodes)-1], "sender", args...)
				got, ctx := tally{}, within(t)
				recv := func() {
					v, ok, err := c.Recv(ctx)
					if !ok || err != nil {
						t.Fatalf("%t, %v", ok, err)
					}
					got.add(t, v)
				}
				if s.step == "close.fence" {
					for range n {
						recv()
					}
				}
				if l := child.Line(); l != s.step {
					t.Fatal(l)
				}
				child.Stop()
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				for w.nodes == 1 && int(got[7]) < s.sent { // what it had sent arrives meanwhile
					recv()
				}
				child.Continue()
				for int(got[7]) < n {
					recv()
				}
				if _, ok, err := c.Recv(ctx); ok || err != nil {
					t.Errorf("the end: %t, %v", ok, err)
				}
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// receiverSteps are where a receiver is killed and stopped, and how often it has been there.
var receiverSteps = []struct {
	step string
	nth  int
}{
	{"accept.imported", 1},
	{"accept.exported", 1},
	{"accept.answered", 1},
	{"get.sleeps", 2},
	{"get.seen", 3},
	{"get.copied", 3},
	{"get.counted", 2},
	{"lane.ended", 1},
}

// dialAndSend sends n values and closes.
func dialAndSend(t *testing.T, p *vmmc.Process, n uint32) chan error {
	ctx := within(t)
	done := make(chan error, 1)
	go func() {
		s, err := channel.Dial[item](ctx, p, name)
		for i := uint32(0); i < n && err == nil; i++ {
			err = s.Send(ctx, newItem(1, i))
		}
		if s != nil {
			err = errors.Join(err, s.Close(ctx))
		}
		done <- err
	}()
	return done
}

// A receiver that is killed at any step ends what its sender waits for. If it has received all
// values, the sender has an error at most because it cannot know whether it was taken for lost.
func TestReceiverKilled(t *testing.T) {
	for _, w := range where {
		nodes := vmmctest.Nodes(t, w.nodes)
		for i, s := range receiverSteps {
			if testutil.LeavesOut(i, w.nodes, len(where)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				args := []string{name, "1", s.step, itoa(s.nth), "/nonexistent/file"}
				child := vmmctest.Child(t, nodes[0], "receiver", args...)
				n := uint32(math.MaxUint32) // the receiver may go on receiving until it is killed
				if s.step == "lane.ended" {
					n = 20
				}
				done := dialAndSend(t, nodes[len(nodes)-1].Open(t), n)
				if l := child.Line(); l != s.step {
					t.Fatal(l)
				}
				child.Kill()
				err := <-done
				if s.step == "lane.ended" {
					if err != nil && !errors.Is(err, vmmc.ErrPeerGone) {
						t.Errorf("all values were received: %v", err)
					}
				} else if !errors.Is(err, vmmc.ErrPeerGone) && !errors.Is(err, vmmc.ErrNoSuchProcess) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// A receiver that is stopped at any step goes on where it was, until the channel is closed.
func TestReceiverStopped(t *testing.T) {
	for _, w := range where {
		nodes := vmmctest.Nodes(t, w.nodes)
		for i, s := range receiverSteps {
			if testutil.LeavesOut(i, w.nodes, len(where)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "continue")
				child := vmmctest.Child(t, nodes[0], "receiver", name, "1", s.step, itoa(s.nth), file)
				done := dialAndSend(t, nodes[len(nodes)-1].Open(t), 20)
				if l := child.Line(); l != s.step {
					t.Fatal(l)
				}
				child.Stop()
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				if l := child.Line(); l != "20" {
					t.Errorf("it has received %s values", l)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Of several senders one is killed: the others' values go on, and the channel is never closed. When
// another one has taken its place, it is.
func TestSenderReplaced(t *testing.T) {
	for _, w := range where {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			c := newChan(t, nodes[0].Open(t), channel.Senders(2), channel.Buffer(4))
			last, ctx := nodes[len(nodes)-1], within(t)
			child := func(from, n int, step string) *vmmctest.Proc {
				args := []string{name, itoa(from), itoa(n), step, "1", "/nonexistent/file"}
				return vmmctest.Child(t, last, "sender", args...)
			}
			killed := child(7, 100, "put.wait")
			if l := killed.Line(); l != "put.wait" {
				t.Fatal(l)
			}
			other := child(1, 50, "none")
			killed.Kill()
			got := tally{}
			var lost *channel.LostError
			for v, err := range c.All(ctx) {
				if err != nil {
					if !errors.As(err, &lost) {
						t.Fatal(err)
					}
					break
				}
				got.add(t, v)
			}
			if lost == nil || lost.Values != uint64(got[7]) || got[7] > 4 || !c.Replace(lost) {
				t.Fatalf("lost: %+v; %v", lost, got)
			}
			next := child(8, 30, "none")
			for v, err := range c.All(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				got.add(t, v)
			}
			if got[1] != 50 || got[8] != 30 {
				t.Errorf("%v", got)
			}
			if err := errors.Join(other.Wait(), next.Wait()); err != nil {
				t.Error(err)
			}
		})
	}
}
