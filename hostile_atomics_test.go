package vmmc_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// atomic32 is the header of one on buffer 7 unless it says otherwise.
func atomic32(off uint64, more ...func(*wire.Header)) wire.Header {
	h := wire.Header{Type: wire.Atomic, Seq: 1, Off: off, Size: 4}
	h.SetOperands(wire.FetchAdd, 1, 0)
	for _, f := range more {
		f(&h)
	}
	return h
}

// Atomics that cannot be end the link, and change nothing; those of an import that
// is no more are refused in their turn.
func TestHostileAtomics(t *testing.T) {
	w := newVictim(t)
	odd := alloc(t, w.b, 72)
	if _, err := w.b.Export(10, odd[4:68], vmmc.Unmapped()); err != nil { // begins between two 64-bit words
		t.Fatal(err)
	}
	is := func(n, off uint64) func(*wire.Header) {
		return func(h *wire.Header) { h.Size, h.Off = n, off }
	}
	op := func(o wire.Op) func(*wire.Header) { return func(h *wire.Header) { h.Word = uint32(o) } }
	seq := func(n uint64) func(*wire.Header) { return func(h *wire.Header) { h.Seq = n } }
	begun := frame(wire.Header{Type: wire.Data, Seq: 1, Size: 8192, Chunk: 4096}, make([]byte, 4096))
	for name, c := range map[string]struct {
		buffer uint32 // 7 unless given
		bytes  []byte
		lives  bool
		writes bool // what comes before it is stored
	}{
		"at the end":            {bytes: frame(atomic32(size), nil)},
		"half over the end":     {bytes: frame(atomic32(0, is(8, size-4)), nil)},
		"wide at the end":       {bytes: frame(atomic32(0, is(8, size)), nil)},
		"far beyond":            {bytes: frame(atomic32(1<<40), nil)},
		"nearly around":         {bytes: frame(atomic32(^uint64(3)), nil)},
		"nearly around, wide":   {bytes: frame(atomic32(0, is(8, ^uint64(7))), nil)},
		"odd":                   {bytes: frame(atomic32(2), nil)},
		"half odd":              {bytes: frame(atomic32(0, is(8, 4)), nil)},
		"of no size":            {bytes: frame(atomic32(0, is(0, 0)), nil)},
		"of 3 bytes":            {bytes: frame(atomic32(0, is(3, 0)), nil)},
		"of 16 bytes":           {bytes: frame(atomic32(0, is(16, 0)), nil)},
		"of everything":         {bytes: frame(atomic32(0, is(^uint64(0), 0)), nil)},
		"no operation":          {bytes: frame(atomic32(0, op(0)), nil)},
		"an unknown operation":  {bytes: frame(atomic32(0, op(wire.CompareAndSwap+1)), nil)},
		"an absurd operation":   {bytes: frame(atomic32(0, op(^wire.Op(0))), nil)},
		"a number skipped":      {bytes: frame(atomic32(0, seq(2)), nil)},
		"a number twice":        {bytes: append(frame(wire.Header{Type: wire.Get, Seq: 1, Size: 4}, nil), frame(atomic32(0), nil)...)},
		"in a message's middle": {bytes: append(bytes.Clone(begun), frame(atomic32(0), nil)...), writes: true},
		"with a payload":        {bytes: frame(atomic32(0, func(h *wire.Header) { h.Chunk = 64 }), make([]byte, 64))},
		"on read-only":          {buffer: 8, bytes: frame(atomic32(0), nil)},
		"on write-only":         {buffer: 9, bytes: frame(atomic32(0), nil)},
		"without reading": {bytes: frames(20_000, func(i int) wire.Header {
			return atomic32(0, seq(uint64(i)+1), func(h *wire.Header) { h.Handle = 1 << 31 })
		})},
		"its result": {bytes: frame(wire.Header{Type: wire.Result, Seq: 1}, nil)},

		"on what is not granted":  {bytes: frame(atomic32(1<<50, func(h *wire.Header) { h.Handle = 1 << 31 }), nil), lives: true},
		"wide, on narrow memory":  {buffer: 10, bytes: frame(atomic32(0, is(8, 8)), nil), lives: true},
		"with all flags":          {bytes: frame(atomic32(8, func(h *wire.Header) { h.Flags = 0xff }), nil), lives: true},
		"of which nobody is told": {bytes: frames(60, func(i int) wire.Header { return atomic32(8, seq(uint64(i)+1)) }), lives: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutlaw(t, w.socket, rand.Uint64(), nil)
			id := c.buffer
			if id == 0 {
				id = 7
			}
			g := o.grab(t, w.b, id)
			r := o.attack(t, g.Exporter)
			before := bytes.Clone(w.all)
			_ = r.say(t, addressed(c.bytes, g.Handle)) // it may be cut off in the middle
			if c.lives {
				r.answers(t)
			} else {
				r.over(t)
			}
			w.goesOn(t)
			if !c.lives && !c.writes && !bytes.Equal(w.all, before) {
				t.Error("the memory has changed")
			}
			if !bytes.Equal(odd, make([]byte, 72)) {
				t.Error("the narrow memory has changed")
			}
		})
	}
}

// Answers that were not asked for, or not so, end the link, and the calls that wait
// say why; absurd figures in those that may come do no harm.
func TestHostileAnswers(t *testing.T) {
	w := newVictim(t)
	get := func(im *vmmc.Import, b []byte) error { return im.Get(t.Context(), b, 0) }
	add := func(im *vmmc.Import, _ []byte) error {
		_, err := im.FetchAdd64(t.Context(), 8, 1)
		return err
	}
	cas := func(im *vmmc.Import, _ []byte) error {
		_, ok, err := im.CompareAndSwap32(t.Context(), 8, 1, 2)
		if ok {
			t.Error("what was refused was done")
		}
		return err
	}
	send := func(im *vmmc.Import, _ []byte) error {
		r, err := im.SendAsync(t.Context(), word, 0)
		if err != nil {
			return err
		}
		return r.Wait(t.Context())
	}
	fence := func(im *vmmc.Import, _ []byte) error {
		if err := im.Send(t.Context(), word, 0); err != nil {
			return err
		}
		return im.Fence(t.Context())
	}
	says := func(h wire.Header) []byte { return frame(h, make([]byte, h.Chunk)) }
	ack := wire.Header{Type: wire.Ack, Ack: 1}
	for name, c := range map[string]struct {
		call  func(*vmmc.Import, []byte) error
		bytes []byte
		want  error // nil: none
	}{
		"a result of a get":            {get, says(wire.Header{Type: wire.Result, Handle: 1, Seq: 1}), vmmc.ErrProtocol},
		"a result of another number":   {add, says(wire.Header{Type: wire.Result, Handle: 1, Seq: 2}), vmmc.ErrProtocol},
		"a result of number 0":         {add, says(wire.Header{Type: wire.Result, Handle: 1}), vmmc.ErrProtocol},
		"a result with a payload":      {add, says(wire.Header{Type: wire.Result, Handle: 1, Seq: 1, Chunk: 8}), vmmc.ErrProtocol},
		"a result of nothing":          {fence, says(wire.Header{Type: wire.Result, Handle: 1, Seq: 1}), vmmc.ErrProtocol},
		"a reply to an atomic":         {add, says(wire.Header{Type: wire.Reply, Flags: wire.Last, Handle: 1, Seq: 1, Size: 8, Chunk: 4}), vmmc.ErrProtocol},
		"a reply to a swap, in bytes":  {cas, says(wire.Header{Type: wire.Reply, Flags: wire.Last | wire.Bytes, Handle: 1, Seq: 1, Size: 4, Chunk: 4}), vmmc.ErrProtocol},
		"a reply to a send":            {fence, says(wire.Header{Type: wire.Reply, Flags: wire.Last, Handle: 1, Seq: 1, Size: 4}), vmmc.ErrProtocol},
		"the question":                 {add, says(atomic32(8)), vmmc.ErrProtocol},
		"a strange refusal":            {add, says(wire.Header{Type: wire.Nak, Handle: 1, Seq: 1, Word: 1 << 20}), vmmc.ErrProtocol},
		"an atomic refused":            {add, says(wire.Header{Type: wire.Nak, Handle: 1, Seq: 1, Word: wire.CodeAlignment}), vmmc.ErrBadAlignment},
		"a swap refused":               {cas, says(wire.Header{Type: wire.Nak, Handle: 1, Seq: 1, Word: wire.CodeRights}), vmmc.ErrNoRights},
		"a get refused for alignment":  {get, says(wire.Header{Type: wire.Nak, Handle: 1, Seq: 1, Word: wire.CodeAlignment}), vmmc.ErrBadAlignment},
		"a revocation far ahead":       {send, append(says(wire.Header{Type: wire.Revoke, Handle: 1, Word: wire.CodeRevoked, Ack: ^uint64(0)}), says(ack)...), nil},
		"a revocation before a fence":  {fence, append(says(wire.Header{Type: wire.Revoke, Handle: 1, Word: wire.CodeRevoked, Ack: ^uint64(0)}), says(ack)...), vmmc.ErrRevoked},
		"a revocation and no result":   {add, says(wire.Header{Type: wire.Revoke, Handle: 1, Word: wire.CodeRevoked, Ack: ^uint64(0)}), vmmc.ErrRevoked},
		"a revocation for alignment":   {add, says(wire.Header{Type: wire.Revoke, Handle: 1, Word: wire.CodeAlignment}), vmmc.ErrBadAlignment},
		"a revocation of others":       {fence, append(says(wire.Header{Type: wire.Revoke, Handle: 99, Word: wire.CodeRevoked, Ack: ^uint64(0)}), says(ack)...), nil},
		"a send refused for alignment": {fence, append(says(wire.Header{Type: wire.Nak, Handle: 1, Seq: 1, Word: wire.CodeAlignment}), says(ack)...), nil},
		"a send refused that was not":  {fence, append(says(wire.Header{Type: wire.Nak, Handle: 99, Seq: 77, Word: wire.CodeRevoked}), says(ack)...), nil},
		"all of it acknowledged twice": {fence, append(says(ack), says(wire.Header{Type: wire.Ack, Ack: 1, Credits: 1 << 30})...), nil},
		"an acknowledgement back":      {get, append(says(ack), says(wire.Header{Type: wire.Ack})...), vmmc.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			p, im, r := w.attacked(t)
			around := bytes.Repeat([]byte{guard}, 24)
			errs := make(chan error, 1)
			go func() { errs <- c.call(im, around[8:16]) }()
			if _, err := r.hear(t); err != nil { // the question
				t.Fatal(err)
			}
			_ = r.say(t, c.bytes)
			err := first(t, errs, "the call")
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if g := bytes.Repeat([]byte{guard}, 8); !bytes.Equal(around[:8], g) || !bytes.Equal(around[16:], g) {
				t.Errorf("an answer went beyond its place: %x", around)
			}
			other, err := p.Import(t.Context(), w.b.Node(), w.b.PID(), 6)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.FetchAdd32(t.Context(), 128, 1); err != nil {
				t.Errorf("an atomic on an honest process's buffer: %v", err)
			}
			w.goesOn(t)
		})
	}
}

// first is what comes out of c, which must not take for ever.
func first[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-within(t).Done():
		t.Fatalf("%s waits for ever", what)
	}
	return v
}
