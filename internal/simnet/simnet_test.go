package simnet

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func pair(t interface{ Fatal(...any) }, there, back []Fault) (a, b *net.TCPConn, c *Conn) {
	a, b, c, err := Pair(there, back)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*net.TCPConn{a, b} {
		_ = e.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return a, b, c
}

// However the bytes are written, each fault happens at its byte.
func TestFaultsHappenAtTheirBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sent := rapid.SliceOfN(rapid.Byte(), 1, 300<<10).Draw(rt, "sent")
		flip := rapid.IntRange(0, len(sent)-1).Draw(rt, "flip")
		cut := rapid.IntRange(flip+1, len(sent)).Draw(rt, "cut")
		bit := rapid.Uint8Range(0, 7).Draw(rt, "bit")
		a, b, c := pair(rt, []Fault{{At: int64(flip), Kind: Flip, Bit: bit}, {At: int64(cut), Kind: Cut}}, nil)
		defer c.Close()
		defer func() { _, _ = a.Close(), b.Close() }()
		want := bytes.Clone(sent[:cut])
		want[flip] ^= 1 << bit
		go func() {
			for w := sent; len(w) > 0; {
				n := min(len(w), 1+cut/3)
				if _, err := a.Write(w[:n]); err != nil {
					return
				}
				w = w[n:]
			}
			_ = a.CloseWrite()
		}()
		got, err := io.ReadAll(b)
		if !bytes.Equal(got, want) {
			rt.Fatalf("%d bytes have come, want %d of %d, with bit %d of byte %d changed; %v", len(got), cut, len(sent), bit, flip, err)
		}
	})
}

func TestResetIsSeenByBothEnds(t *testing.T) {
	a, b, c := pair(t, []Fault{{At: 100, Kind: Reset}}, nil)
	defer c.Close()
	defer func() { _, _ = a.Close(), b.Close() }()
	if _, err := a.Write(make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]*net.TCPConn{"who wrote": a, "who reads": b} {
		if _, err := io.ReadAll(e); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPartIsSeenByNobody(t *testing.T) {
	a, b, c := pair(t, []Fault{{At: 4, Kind: Part}}, nil)
	defer c.Close()
	defer func() { _, _ = a.Close(), b.Close() }()
	if _, err := a.Write([]byte("12345678")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if n, err := io.ReadFull(b, got[:4]); err != nil {
		t.Fatal(n, err)
	}
	<-c.parted
	if _, err := b.Write([]byte("answer")); err != nil { // into the kernel
		t.Fatal(err)
	}
	for name, e := range map[string]*net.TCPConn{"who wrote": a, "who reads": b} {
		_ = e.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := e.Read(got); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
}

func TestStallPasses(t *testing.T) {
	a, b, c := pair(t, nil, []Fault{{At: 2, Kind: Stall, For: time.Millisecond}})
	defer c.Close()
	defer func() { _, _ = a.Close(), b.Close() }()
	if _, err := b.Write([]byte("back")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(a, got); err != nil || string(got) != "back" {
		t.Errorf("%q, %v", got, err)
	}
	c.Close()
	if there, back := c.Passed(); there != 0 || back != 4 {
		t.Errorf("%d and %d bytes were passed on", there, back)
	}
}
