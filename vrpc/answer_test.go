package vrpc

import (
	"bytes"
	"context"
	"net"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/xdr"
)

// FuzzAnswer: no bytes are too much for a server; what it answers is a reply to the call's number.
func FuzzAnswer(f *testing.F) {
	s := NewServer()
	if err := s.Register(&Service{Program: 7, Version: 2}); err != nil {
		f.Fatal(err)
	}
	for _, h := range []rpcmsg.Call{{XID: 1, Program: 7, Version: 2}, {Program: 7}, {Cred: rpcmsg.Auth{Flavor: 1, Body: make([]byte, 20)}}} {
		b, err := xdr.Marshal(&h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var out buffer
		if s.answer(&caller{base: context.Background()}, in, &out); out.none {
			return
		}
		var r rpcmsg.Reply
		if err := xdr.Unmarshal(out.b, &r); err != nil || !bytes.Equal(out.b[:4], in[:4]) {
			t.Fatalf("%x was answered %x: %v", in, out.b, err)
		}
	})
}

// A null call allocates nothing at a server, and nothing in the header of a client.
func TestNullAllocations(t *testing.T) {
	s := NewServer()
	if err := s.Register(&Service{Program: 7, Version: 2}); err != nil {
		t.Fatal(err)
	}
	c := &caller{base: context.Background()}
	h := &rpcmsg.Call{Program: 7, Version: 2}
	in, out := make([]byte, 0, 100), new(buffer)
	null := func() {
		call, err := appendCall(in, h, xdr.Void{}, 100)
		out.b = out.b[:0]
		s.answer(c, call, out)
		if err != nil || out.none || decodeReply(out.b, xdr.Void{}, 0) != nil {
			t.Fatalf("%x: %v", out.b, err)
		}
	}
	if null(); testing.AllocsPerRun(100, null) > 0 && !RaceEnabled {
		t.Error("a null call allocates")
	}
}

// word is a call with a text, which it answers, unless that is "no".
type word struct{ text string }

func (w *word) DecodeXDR(d *xdr.Decoder) { w.text = d.String(w.text, xdr.Unlimited) }

func (w *word) EncodeXDR(e *xdr.Encoder) { e.String(w.text, xdr.Unlimited) }

func (w *word) Do(context.Context) error {
	if w.text == "no" {
		return ErrGarbageArgs
	}
	return nil
}

// A goroutine that answers many calls reuses the Call of the last one if it is of the same
// procedure, and keeps none that failed or holds much memory.
func TestSpare(t *testing.T) {
	s := NewServer()
	made := 0
	v := &Service{Program: 7, Version: 2}
	for n := range uint32(3) {
		v.Procedures = append(v.Procedures, Procedure{Number: n, Values: n < 2, New: func() Call {
			made++
			return new(word)
		}})
	}
	if err := s.Register(v); err != nil {
		t.Fatal(err)
	}
	w, from, out := work{spare: callPool{owned: true}}, &caller{base: context.Background()}, new(buffer)
	call := func(procedure uint32, text string) {
		t.Helper()
		b, err := appendCall(nil, &rpcmsg.Call{Program: 7, Version: 2, Procedure: procedure}, &word{text}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		out.b = out.b[:0]
		w.answer(s, from, b, out)
		var back word
		if err := decodeReply(out.b, &back, 0); text == "no" != (err != nil) || err == nil && back.text != text {
			t.Fatalf("%q was answered %q, %v", text, back.text, err)
		}
	}
	for range 5 {
		call(0, "a")
	}
	if made != 1 || w.spare.of == nil {
		t.Errorf("5 calls of a procedure made %d Calls", made)
	}
	call(1, "b") // the one before goes to its pool
	if w.spare.of == nil || w.spare.of.number != 1 {
		t.Error("the Call of the procedure that came last is not there")
	}
	for _, text := range []string{"no", string(make([]byte, 10_000))} {
		call(1, text)
		if w.spare.of != nil {
			t.Errorf("a Call is kept after a text of %d bytes", len(text))
		}
		call(1, "b")
	}
	call(2, "c")
	if w.spare.of == nil || w.spare.of.number != 1 {
		t.Error("a Call that may not be used again took the place of one that may")
	}
}

// What is remembered of datagrams is what was sent last, and no more than may be.
func TestDuplicates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDuplicateCache()
		last := map[string][]byte{}
		for i := range rapid.IntRange(1, 50).Draw(t, "calls") {
			from := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: rapid.IntRange(1, 2).Draw(t, "port")}
			call := []byte{byte(rapid.IntRange(0, 3).Draw(t, "call"))}
			key := from.String() + string(call)
			name, reply, run := d.begin(from, 5, call)
			want, seen := last[key]
			if run == seen || !bytes.Equal(reply, want) {
				t.Fatalf("%s: run %v, %x, want %x", key, run, reply, want)
			}
			if run && rapid.Bool().Draw(t, "ends") {
				last[key] = []byte{byte(i)}
				d.end(name, last[key])
			} else if run {
				last[key] = nil
			}
		}
	})
	d := newDuplicateCache()
	for i := range uint32(3 * rememberCalls) {
		name, _, run := d.begin(&net.UnixAddr{Name: "x"}, i, nil)
		if !run {
			t.Fatal(i)
		}
		d.end(name, make([]byte, rememberBytes/500))
		if len(d.order) != len(d.calls) || len(d.calls) > rememberCalls || d.bytes > rememberBytes {
			t.Fatalf("%d calls, %d of %d bytes", len(d.calls), len(d.order), d.bytes)
		}
	}
}
