package channel_test

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/channel"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// TestModel compares a channel on one node with slices: what each receive returns is known, as what
// is sent is there at once.
func TestModel(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p, spare := node.Open(t), node.Open(t)
	open := func(t *rapid.T) *vmmc.Process {
		q, err := vmmc.Open(t.Context(), vmmc.WithSocket(node.Socket()))
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	rapid.Check(t, func(t *rapid.T) {
		m := &model{open: open, spare: spare, got: tally{}}
		m.senders = rapid.IntRange(1, 3).Draw(t, "senders")
		m.places = m.senders
		var err error
		m.c, err = channel.Make[item](t.Context(), p, "model",
			channel.Senders(m.senders), channel.Buffer(8))
		if err != nil {
			t.Fatal(err)
		}
		defer m.end(t)
		t.Repeat(map[string]func(*rapid.T){
			"dial": m.dial, "send": m.send, "close": m.close, "die": m.die, "receive": m.recv,
			"replace": m.replace,
		})
	})
}

// sender is what the model knows of one.
type sender struct {
	s      *channel.Sender[item]
	p      *vmmc.Process
	number uint32
	sent   uint32
	closed chan error // of one that was closed
	dead   bool
	told   bool
}

type model struct {
	open    func(*rapid.T) *vmmc.Process
	spare   *vmmc.Process // dials when no sender may
	c       *channel.Chan[item]
	senders int
	places  int // that are left
	all     []*sender
	got     tally
	losses  []*channel.LostError // not replaced
}

// draw returns a sender that sends, or nil.
func (m *model) draw(t *rapid.T) *sender {
	var live []*sender
	for _, s := range m.all {
		if !s.dead && s.closed == nil {
			live = append(live, s)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[rapid.IntRange(0, len(live)-1).Draw(t, "sender")]
}

func (m *model) dial(t *rapid.T) {
	if m.places == 0 {
		if _, err := channel.Dial[item](t.Context(), m.spare, "model"); !errors.Is(err, vmmc.ErrNoMem) {
			t.Fatalf("a sender more: %v", err)
		}
		return
	}
	p := m.open(t)
	s, err := channel.Dial[item](t.Context(), p, "model")
	if err != nil {
		t.Fatal(err)
	}
	m.places--
	m.all = append(m.all, &sender{s: s, p: p, number: uint32(len(m.all))})
}

func (m *model) send(t *rapid.T) {
	if s := m.draw(t); s != nil && s.s.Pending() < 8 {
		if err := s.s.Send(t.Context(), newItem(s.number, s.sent)); err != nil {
			t.Fatal(err)
		}
		s.sent++
	}
}

func (m *model) close(t *rapid.T) {
	if s := m.draw(t); s != nil {
		s.closed = make(chan error, 1)
		go func() { s.closed <- s.s.Close(context.Background()) }()
	}
}

func (m *model) die(t *rapid.T) {
	if s := m.draw(t); s != nil {
		s.dead = true
		if err := s.p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// recv receives if that returns by itself.
func (m *model) recv(t *rapid.T) {
	left, untold, ended := uint32(0), 0, 0
	for _, s := range m.all {
		left += s.sent - m.got[s.number]
		if s.dead && !s.told {
			untold++
		}
		if s.dead || s.closed != nil {
			ended++
		}
	}
	replaced := 0
	for _, s := range m.all {
		if s.told {
			replaced++
		}
	}
	replaced -= len(m.losses)
	if left == 0 && untold == 0 && ended-replaced < m.senders {
		return
	}
	v, ok, err := m.c.Recv(t.Context())
	var lost *channel.LostError
	switch {
	case ok:
		if err != nil || left == 0 || v != newItem(v.From, m.got[v.From]) {
			t.Fatalf("%+v, %v; %d values are left", v, err, left)
		}
		m.got[v.From]++
	case errors.As(err, &lost):
		m.lost(t, lost, untold)
	case err != nil || left > 0 || untold > 0 || len(m.losses) > 0:
		t.Fatalf("the end: %v; %d values are left, %d losses untold", err, left, untold)
	}
}

func (m *model) lost(t *rapid.T, lost *channel.LostError, untold int) {
	if untold == 0 {
		if len(m.losses) == 0 || lost != m.losses[0] {
			t.Fatalf("another loss: %v", lost)
		}
		return
	}
	for _, s := range m.all {
		if s.p.ID() == lost.Producer {
			if !s.dead || s.told || uint64(s.sent) != lost.Values || m.got[s.number] != s.sent {
				t.Fatalf("sender %d, %d of %d values received: %v", s.number, m.got[s.number], s.sent, lost)
			}
			s.told = true
			m.losses = append(m.losses, lost)
			return
		}
	}
	t.Fatalf("no sender: %v", lost)
}

func (m *model) replace(t *rapid.T) {
	if len(m.losses) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.losses)-1).Draw(t, "loss")
	if !m.c.Replace(m.losses[i]) {
		t.Fatal("a loss is not replaced")
	}
	m.losses = append(m.losses[:i:i], m.losses[i+1:]...)
	m.places++
}

func (m *model) end(t *rapid.T) {
	if err := m.c.Close(); err != nil {
		t.Error(err)
	}
	for _, s := range m.all {
		if s.closed != nil {
			if err := <-s.closed; err != nil && !errors.Is(err, vmmc.ErrRevoked) {
				t.Error(err)
			}
		} else if !s.dead {
			_ = s.s.Close(t.Context())
		}
		if err := s.p.Close(); err != nil {
			t.Error(err)
		}
	}
}
