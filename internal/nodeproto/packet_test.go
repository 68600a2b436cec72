//go:build linux

package nodeproto

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestPacketRoundTrip(t *testing.T) {
	want := header{kind: reply, fds: 3, method: Connect, id: 1<<63 + 5}
	b, err := encode(want, ExportRequest{ID: 7, Size: 8, Rights: MayRead})
	if err != nil {
		t.Fatal(err)
	}
	h, body, err := parse(b)
	if err != nil || h != want {
		t.Fatalf("%+v, %v, want %+v", h, err, want)
	}
	if r, err := Decode[ExportRequest](body); err != nil || !reflect.DeepEqual(r,
		ExportRequest{ID: 7, Size: 8, Rights: MayRead}) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestPacketRefuses(t *testing.T) {
	good, err := encode(header{kind: request, method: Import, id: 1}, Empty{})
	if err != nil {
		t.Fatal(err)
	}
	with := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		packet []byte
		says   string
	}{
		"nothing":              {nil, "0 bytes"},
		"half a header":        {good[:headerSize-1], "15 bytes"},
		"wrong magic":          {with(0, 'X'), "is the other end vmmc"},
		"kind 0":               {with(4, 0), "kind 0"},
		"unknown kind":         {with(4, byte(cancel)+1), "kind 5"},
		"too many descriptors": {with(5, MaxDescriptors+1), fmt.Sprint(MaxDescriptors+1, " descriptors")},
		"too large":            {append(bytes.Clone(good), make([]byte, MaxPacket)...), "at most"},
	} {
		if _, _, err := parse(c.packet); !errors.Is(err, ErrPacket) || !strings.Contains(err.Error(),
			c.says) {
			t.Errorf("%s: %v, want %q in it", name, err, c.says)
		}
	}
	if b, err := encode(header{kind: request}, strings.Repeat("x", MaxPacket)); !errors.Is(err,
		ErrPacket) {
		t.Errorf("a body that is too large became a packet of %d bytes: %v", len(b), err)
	}
	if _, err := Decode[Hello]([]byte(`{"Version":`)); !errors.Is(err, ErrPacket) {
		t.Errorf("half a body: %v", err)
	}
}

// FuzzPacket: nothing panics; what parses encodes to the same bytes; what
// decodes can be encoded and decodes to the same.
func FuzzPacket(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		h, body, err := parse(b)
		if err != nil {
			if !errors.Is(err, ErrPacket) {
				t.Fatalf("%v is not ErrPacket", err)
			}
			return
		}
		again, err := encode(h, nil)
		if err != nil || !bytes.Equal(again, b[:headerSize]) {
			t.Fatalf("%x parsed to %+v, which encodes to %x (%v)", b[:headerSize], h, again, err)
		}
		stable[Hello](t, body)
		stable[Welcome](t, body)
		stable[ExportRequest](t, body)
		stable[ImportRequest](t, body)
		stable[OfferRequest](t, body)
		stable[Grant](t, body)
		stable[ReleaseRequest](t, body)
		stable[ConnectRequest](t, body)
		stable[Connected](t, body)
		stable[AcceptRequest](t, body)
		stable[HandoverRequest](t, body)
		stable[SeverRequest](t, body)
		stable[wireError](t, body)
	})
}

func stable[T any](t *testing.T, body []byte) {
	v, err := Decode[T](body)
	if err != nil {
		if !errors.Is(err, ErrPacket) {
			t.Fatalf("%v is not ErrPacket", err)
		}
		return
	}
	one, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Decode[T](one)
	if err != nil {
		t.Fatalf("%s became %s, which does not decode: %v", body, one, err)
	}
	if two, err := json.Marshal(w); err != nil || !bytes.Equal(one, two) {
		t.Fatalf("%s, decoded and encoded again, became %s (%v)", one, two, err)
	}
}

// FuzzGrant decodes any grant: what passes for one has a label that an exporter may give.
func FuzzGrant(f *testing.F) {
	f.Add([]byte(`{"Handle":1,"Size":64}`)) // of a version that knows no labels
	f.Add([]byte(`{"Handle":1,"Size":64,"Label":"bGFiZWw="}`))
	f.Add([]byte(`{"Label":"` + strings.Repeat("AAAA", (MaxLabel+3)/3) + `"}`))
	f.Add([]byte(`{"Label":"?"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		g, err := Decode[Grant](body)
		if err != nil {
			return
		}
		if err := g.CheckLabel(); (err != nil) != (len(g.Label) > MaxLabel) {
			t.Fatalf("a label of %d bytes: %v", len(g.Label), err)
		}
		again, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := Decode[Grant](again); err != nil || !bytes.Equal(h.Label, g.Label) {
			t.Fatalf("the label %q became %q: %v", g.Label, h.Label, err)
		}
	})
}
