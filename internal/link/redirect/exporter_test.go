package redirect

import (
	"bytes"
	"context"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/wait"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// A redirection's state takes each transition of its table and no other.
func TestRedirectionStates(t *testing.T) {
	err := redirTransitions.Walk(orphaned, func(from, to redirState) redirState {
		r := &Exporter{state: from}
		r.transition(to)
		return r.state
	})
	if err != nil {
		t.Error(err)
	}
}

// arriving is a link on which a message has arrived up to pos.
type arriving struct {
	mem   []byte
	pos   uint64
	stops int
}

func (l *arriving) StopRedirect(r *Exporter) {
	if r.Stop(l, l.pos, l.mem) {
		l.stops++
	}
}

// The first message on the stream that meets the range claims it, until End stops it at a whole
// word: what has arrived of the next one goes to the export.
func TestStreamClaim(t *testing.T) {
	r := NewExporter(func(context.Context, wait.Cond) error { panic("nothing is waited for") }, 64)
	to, mem := make([]byte, 16), make([]byte, 64)
	if !r.Post(16, to) || r.Post(32, make([]byte, 4)) {
		t.Fatal("one redirection can be posted at a time")
	}
	l, other := &arriving{mem: mem, pos: 22}, &arriving{mem: mem}
	m := Message{Mem: mem, Size: 64}
	place := func(l *arriving, pos uint64, want []byte, claims bool) {
		t.Helper()
		got, claimed := r.Place(l, m, pos, 64)
		if &got[0] != &want[0] || len(got) != len(want) || claimed != claims {
			t.Fatalf("from %d on %d bytes are placed, want %d; claimed %v", pos, len(got), len(want), claimed)
		}
		m.Claimed = m.Claimed || claimed
	}
	place(l, 0, mem[:16], false)
	place(l, 16, to, true)
	place(l, 20, to[4:], false)
	place(l, 32, mem[32:], false)
	m.Claimed = false
	place(other, 20, mem[20:], false)
	copy(to, "word")
	copy(to[4:], "ab")
	n, first, ok, err := r.End(t.Context())
	if n != 4 || first != 0 || !ok || err != nil || !bytes.Equal(mem[20:22], []byte("ab")) {
		t.Errorf("%d bytes at %d were redirected, posted %v: %v; the export has %q", n, first, ok, err, mem[20:22])
	}
	place(l, 24, mem[24:], false)
}

// Drop stops the message that has claimed the range, and what arrives later goes to the export. So
// does what arrives when nothing had claimed it.
func TestDrop(t *testing.T) {
	for _, claims := range []bool{false, true} {
		r := NewExporter(func(context.Context, wait.Cond) error { panic("nothing is waited for") }, 64)
		mem := make([]byte, 64)
		if !r.Post(16, make([]byte, 16)) {
			t.Fatal("no redirection can be posted")
		}
		l, other := &arriving{mem: mem, pos: 24}, &arriving{mem: mem}
		m := Message{Mem: mem, Size: 64}
		stops := 0
		if claims {
			if _, m.Claimed = r.Place(l, m, 16, 64); !m.Claimed {
				t.Fatal("the message does not claim the range")
			}
			stops = 1
		}
		r.Drop()
		if l.stops != stops || other.stops != 0 {
			t.Errorf("claimed %v: the claimant is stopped %d times, another link %d times", claims, l.stops, other.stops)
		}
		for _, to := range []*arriving{l, other} {
			if got, claimed := r.Place(to, Message{Mem: mem, Size: 64}, 16, 64); &got[0] != &mem[16] || claimed {
				t.Errorf("claimed %v: after Drop data is redirected", claims)
			}
		}
	}
}
