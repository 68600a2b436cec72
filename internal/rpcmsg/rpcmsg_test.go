package rpcmsg

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/xdr"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// message is what both headers and credentials are.
type message interface {
	xdr.Marshaler
	xdr.Unmarshaler
}

// back encodes a message and decodes it into another.
func back(t interface{ Fatalf(string, ...any) }, from, to message) {
	b, err := xdr.Marshal(from)
	if err != nil {
		t.Fatalf("%+v: %v", from, err)
	}
	if err := xdr.Unmarshal(b, to); err != nil {
		t.Fatalf("%+v is %x: %v", from, b, err)
	}
	if d := cmp.Diff(from, to); d != "" {
		t.Fatalf("%x: %s", b, d)
	}
	for n := range b {
		if err := xdr.Unmarshal(b[:n], to); err == nil {
			t.Fatalf("%d bytes of %x are a message", n, b)
		}
	}
}

func auth(t *rapid.T, name string) Auth {
	body := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 1, MaxAuth))
	return Auth{rapid.Uint32().Draw(t, name), body.Draw(t, name+" body")}
}

func TestCall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Uint32()
		c := Call{
			XID: u.Draw(t, "xid"), RPC: Version, Program: u.Draw(t, "program"), Version: u.Draw(t, "version"),
			Procedure: u.Draw(t, "procedure"), Cred: auth(t, "cred"), Verf: auth(t, "verf"),
		}
		back(t, &c, new(Call))
	})
}

func TestReply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Uint32()
		r := Reply{XID: u.Draw(t, "xid"), Outcome: Outcome(rapid.Uint8Max(uint8(AuthError)).Draw(t, "outcome"))}
		switch r.Outcome {
		case RPCMismatch, ProgMismatch:
			r.Low, r.High = u.Draw(t, "low"), u.Draw(t, "high")
		case AuthError:
			r.Why = u.Draw(t, "why")
		}
		if r.Outcome < RPCMismatch {
			r.Verf = auth(t, "verf")
		}
		back(t, &r, new(Reply))
	})
}

func TestSys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Uint32()
		s := Sys{
			Stamp: u.Draw(t, "stamp"), Machine: rapid.StringN(0, 60, MaxMachine).Draw(t, "machine"),
			UID: u.Draw(t, "uid"), GID: u.Draw(t, "gid"), GIDs: rapid.SliceOfN(u, 1, MaxGIDs).Draw(t, "gids"),
		}
		back(t, &s, new(Sys))
	})
}

// The bytes are those of RFC 5531, not only each other's.
func TestBytes(t *testing.T) {
	for _, c := range []struct {
		m    xdr.Marshaler
		want []byte
	}{
		{&Call{XID: 1, Program: 2, Version: 3, Procedure: 4}, []byte{
			0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4,
			0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		}},
		{&Reply{XID: 1}, []byte{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{&Reply{XID: 1, Outcome: ProgMismatch, Low: 2, High: 3}, []byte{
			0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3,
		}},
		{&Reply{XID: 1, Outcome: RPCMismatch, Low: 2, High: 2}, []byte{
			0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2,
		}},
		{&Reply{XID: 1, Outcome: AuthError, Why: 5}, []byte{
			0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5,
		}},
	} {
		if b, err := xdr.Marshal(c.m); err != nil || !bytes.Equal(b, c.want) {
			t.Errorf("%+v is %x, want %x: %v", c.m, b, c.want, err)
		}
	}
}

// FuzzHeader: whatever decodes is encoded to the same bytes, but for a version that is not this
// one's.
func FuzzHeader(f *testing.F) {
	for _, m := range []xdr.Marshaler{&Call{XID: 7, Cred: Auth{FlavorSys, make([]byte, 20)}}, &Reply{}, &Reply{Outcome: AuthError}, &Sys{GIDs: []uint32{1}}} {
		b, err := xdr.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var c Call
		for _, m := range []message{&c, new(Reply), new(Sys)} {
			d := xdr.NewDecoder(in, xdr.InPlace)
			if m.DecodeXDR(d); d.Err() != nil || m == message(&c) && c.RPC != Version {
				continue
			}
			b, err := xdr.Marshal(m)
			if err != nil || !bytes.Equal(b, in[:d.Offset()]) {
				t.Fatalf("%x was decoded, and encoded it is %x: %v", in, b, err)
			}
		}
	})
}
