package link

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// toldState returns the state that the engine's only link tells its node.
func toldState(t *testing.T, e *Engine) connState {
	t.Helper()
	links, _ := counts(t, e)
	if len(links) != 1 {
		t.Fatalf("%d links", len(links))
	}
	return links[0].State
}

// With each transition of the table, waiters and the node see the new state. Each other one is
// refused.
func TestConnTransitions(t *testing.T) {
	e, _ := engine(t)
	err := connTransitions.Walk(shmlayout.ConnReleased, func(from, to connState) connState {
		s := &stream{e: e, counters: e.counters.Take(true)}
		defer s.counters.Free()
		s.counters.Describe(false, false, shmlayout.LinkPeer{})
		s.state.Store(uint32(from))
		s.transition(to)
		if told := toldState(t, e); told != to || s.failed.Load() != (to >= shmlayout.ConnEnded) || s.disconnected() == to.Connected() {
			t.Errorf("%v to %v: the node is told %v, failed: %v, disconnected: %v", from, to, told, s.failed.Load(), s.disconnected())
		}
		return s.State()
	})
	if err != nil {
		t.Error(err)
	}
}

// Only a free token is acquired, only a held one is freed, and an event makes its holder receive
// again.
func TestTokenTransitions(t *testing.T) {
	diagram := map[string]map[tokenState]struct {
		to tokenState
		ok bool
	}{
		"tryAcquire": {tokenFree: {tokenHeld, true}, tokenHeld: {tokenHeld, false}, tokenMissed: {tokenMissed, false}},
		"markMissed": {tokenFree: {tokenFree, false}, tokenHeld: {tokenMissed, true}, tokenMissed: {tokenMissed, true}},
		"tryRelease": {tokenHeld: {tokenFree, true}, tokenMissed: {tokenHeld, false}},
	}
	for name, f := range map[string]func(*token) bool{"tryAcquire": (*token).tryAcquire, "markMissed": (*token).markMissed, "tryRelease": (*token).tryRelease} {
		for from, want := range diagram[name] {
			var k token
			k.state.Store(uint32(from))
			if ok := f(&k); ok != want.ok || k.State() != want.to {
				t.Errorf("%s of a token that is %v: %v, and it is %v, want %v and %v", name, from, ok, k.State(), want.ok, want.to)
			}
		}
	}
}

// recordStates returns the states that the link reports from now on.
func recordStates(s *stream) (states func() []connState) {
	var mu sync.Mutex
	var all []connState
	s.rmu.Lock()
	defer s.rmu.Unlock()
	s.onConnChange = func(to connState, _ error) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, to)
	}
	return func() []connState {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// A connection is lost while a message is in flight. The link tells each state until the message
// has arrived, and is drained when the peer's end is announced meanwhile.
func TestConnStatesOfAResumedLink(t *testing.T) {
	for name, last := range map[string]connState{"it goes on": shmlayout.ConnEstablished, "the peer is about to end it": shmlayout.ConnDraining} {
		t.Run(name, func(t *testing.T) {
			var b *bridge
			mayDial := make(chan struct{})
			terms := Terms{Redial: func(ctx context.Context, n, replied uint64, notices uint32) (int, Cipher, wire.Answer, error) {
				select {
				case <-mayDial:
				case <-ctx.Done():
					return -1, nil, wire.Answer{}, ctx.Err()
				}
				return b.redial(ctx, n, replied, notices)
			}}
			b = bridged(t, t, terms, []*Target{{Handle: 1, Mem: memory(t, 64), Write: true}})
			defer b.close()
			b.out.Describe(shmlayout.LinkPeer{})
			reach := func(s *stream, want connState) {
				t.Helper()
				eventually(t, "the connection does not become "+want.String(), func() bool { return s.State() == want })
			}
			out, in := recordStates(&b.out.stream), recordStates(&b.in.stream)
			reach(&b.out.stream, shmlayout.ConnEstablished)
			reach(&b.in.stream, shmlayout.ConnEstablished)
			b.first().Part() // the message does not arrive on this connection
			if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: make([]byte, 64)}); err != nil {
				t.Fatal(err)
			}
			b.out.tmu.Lock() // the connection is not closed before this is free
			b.first().Reset()
			reach(&b.out.stream, shmlayout.ConnLost)
			told := toldState(t, b.a)
			b.out.tmu.Unlock()
			if told != shmlayout.ConnLost {
				t.Errorf("the node is told that a lost connection is %v", told)
			}
			reach(&b.out.stream, shmlayout.ConnReconnecting)
			reach(&b.in.stream, shmlayout.ConnReconnecting)
			resumed := shmlayout.ConnRetransmitting
			if last == shmlayout.ConnDraining {
				b.out.ExpectEnd(Gone("the exporter leaves"))
				resumed = last
			}
			close(mayDial)
			if err := b.out.WaitApplied(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			reach(&b.out.stream, last)
			reach(&b.in.stream, shmlayout.ConnEstablished)
			if got := out(); !slices.Equal(got, []connState{shmlayout.ConnReconnecting, resumed}) {
				t.Errorf("the importer reports %v", got)
			}
			if got := in(); !slices.Equal(got, []connState{shmlayout.ConnReconnecting, shmlayout.ConnEstablished}) {
				t.Errorf("the exporter reports %v", got)
			}
			if last == shmlayout.ConnDraining {
				b.close() // the announced cause is that of the end
				reach(&b.out.stream, shmlayout.ConnReleased)
			}
		})
	}
}

// Whatever ends a link, it is released, with the cause.
func TestConnEndsByEachCause(t *testing.T) {
	leaves := Gone("the exporter leaves")
	for name, c := range map[string]struct {
		terms Terms
		end   func(b *bridge)
		cause error
	}{
		"its own process closes it":             {end: func(b *bridge) { b.out.Close() }, cause: ErrClosed},
		"its own process severs it":             {end: func(b *bridge) { b.out.Sever(leaves) }, cause: leaves},
		"its engine is closed":                  {end: func(b *bridge) { b.a.Close() }, cause: errLeaves},
		"the peer closes it":                    {end: func(b *bridge) { b.in.Close() }, cause: errPeerClosed},
		"the peer breaks the protocol":          {end: func(b *bridge) { b.in.sendControl(wire.Header{Type: wire.Detach}) }, cause: ErrProtocol},
		"the peer's end is announced, and came": {end: func(b *bridge) { b.out.ExpectEnd(leaves); b.first().Reset() }, cause: leaves},
		"it is drained":                         {end: func(b *bridge) { b.out.Drain(leaves); b.first().Reset() }, cause: leaves},
		"it is not resumed in time": {
			terms: Terms{ReconnectLimit: 50 * time.Millisecond, Redial: func(context.Context, uint64, uint64, uint32) (int, Cipher, wire.Answer, error) {
				return -1, nil, wire.Answer{}, errors.New("no exporter is there")
			}},
			end: func(b *bridge) { b.first().Reset() }, cause: ErrGone,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := bridged(t, t, c.terms, []*Target{{Handle: 1, Mem: memory(t, 64), Write: true}})
			defer b.close()
			c.end(b)
			eventually(t, "the link is not released", func() bool { return b.out.State() == shmlayout.ConnReleased })
			if err := b.out.Err(); !errors.Is(err, c.cause) {
				t.Errorf("it has ended by %v, want %v", err, c.cause)
			}
		})
	}
}
