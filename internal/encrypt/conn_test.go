package encrypt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

func identity(t *testing.T) *Identity {
	t.Helper()
	i, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// side is an end of an encrypted connection.
type side struct {
	*Conn
	fd  int
	err error
}

// shaken are both ends after a handshake with the certificates that each is told of.
func shaken(t *testing.T, a, b *Identity, toldA, toldB []byte, there []simnet.Fault) (near, far side) {
	t.Helper()
	testutil.Require(t, runtime.GOOS == "linux", "the library needs Linux")
	x, y, c, err := simnet.Pair(there, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	_, _ = x.SetWriteBuffer(16<<10), y.SetReadBuffer(16<<10) // and so there is no room now and then
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if far.Conn, far.err = b.Server(ctx, y, toldB); far.err != nil {
			_ = y.Close()
		}
	}()
	if near.Conn, near.err = a.Client(ctx, x, toldA); near.err == nil && toldA != nil {
		_, near.err = near.Write([]byte("first"))
	}
	if near.err != nil {
		_ = x.Close()
	}
	<-done
	if near.err != nil || far.err != nil {
		_, _ = x.Close(), y.Close()
		return near, far
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(far, first); err != nil || string(first) != "first" {
		t.Fatalf("%q, %v", first, err)
	}
	if !bytes.Equal(near.Binding(), far.Binding()) || len(near.Binding()) == 0 {
		t.Error("the two sides have other secrets of one connection")
	}
	for _, s := range []struct {
		*side
		take func() (int, error)
	}{{&near, func() (int, error) { return unix.TakeOver(x) }}, {&far, func() (int, error) { return unix.TakeOver(y) }}} {
		if s.fd, err = s.take(); err != nil {
			t.Fatal(err)
		}
		fd := s.fd
		t.Cleanup(func() { _ = unix.Close(fd) })
		s.Detach(true)
	}
	return near, far
}

func TestEachSideTakesOneCertificate(t *testing.T) {
	a, b, other := identity(t), identity(t), identity(t)
	if near, far := shaken(t, a, b, b.Fingerprint(), a.Fingerprint(), nil); near.err != nil || far.err != nil {
		t.Error(near.err, far.err)
	}
	if near, far := shaken(t, a, b, other.Fingerprint(), a.Fingerprint(), nil); !errors.Is(near.err, ErrOtherCertificate) || far.err == nil {
		t.Error(near.err, far.err)
	}
	if _, far := shaken(t, a, b, b.Fingerprint(), other.Fingerprint(), nil); !errors.Is(far.err, ErrOtherCertificate) {
		t.Error(far.err)
	}
	for _, print := range [][]byte{nil, {}, make([]byte, PrintSize), a.Fingerprint()[:PrintSize-1]} {
		if _, far := shaken(t, a, b, b.Fingerprint(), print, nil); !errors.Is(far.err, ErrOtherCertificate) {
			t.Errorf("%x: %v", print, far.err)
		}
	}
}

// What is sent arrives once and in order, however little the socket takes at a time, and what Send
// says to have gone is never more than what was given to it.
func TestSendsInPieces(t *testing.T) {
	a, b := identity(t), identity(t)
	near, far := shaken(t, a, b, b.Fingerprint(), a.Fingerprint(), nil)
	rng := rand.New(rand.NewPCG(3, 3))
	src := make([]byte, 16<<20)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	got := make([]byte, 0, len(src))
	buf := make([]byte, 16<<10)
	full, k := 0, 0
	for rest := src; len(got) < len(src); {
		if len(rest) > 0 {
			k = min(len(rest), k+rng.IntN(300<<10)+1) // what is under way, and maybe more
			n, err := near.Send(near.fd, rest[:k/3], rest[k/3:k])
			if err != nil || n > k {
				t.Fatal(n, k, err)
			}
			if n == 0 {
				full++
			}
			rest, k = rest[n:], k-n
			if n > 0 && full == 0 {
				continue // until there is no room
			}
		}
		for {
			n, err := far.Recv(far.fd, buf[:1+rng.IntN(len(buf))])
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, buf[:n]...)
			if n == 0 {
				if far.HasData() {
					t.Fatal("something is kept that is not given")
				}
				break
			}
		}
	}
	if !bytes.Equal(got, src) {
		t.Error("other contents")
	}
	if full == 0 {
		t.Error("the socket had room for all")
	}
}

func TestChangedBitIsFound(t *testing.T) {
	a, b := identity(t), identity(t)
	near, far := shaken(t, a, b, b.Fingerprint(), a.Fingerprint(), []simnet.Fault{{At: 5 << 10, Kind: simnet.Flip}})
	src := make([]byte, 16<<10)
	if n, err := near.Send(near.fd, src); err != nil || n != len(src) {
		t.Fatal(n, err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		n, err := far.Recv(far.fd, make([]byte, 16<<10))
		if n > 0 || time.Now().After(end) {
			t.Fatalf("%d bytes were given", n)
		}
		if err != nil {
			if !errors.Is(err, wire.ErrCorrupt) {
				t.Error(err)
			}
			return
		}
	}
}

// Keys are used for so much, where another connection can be had.
func TestWornKeys(t *testing.T) {
	a, b := identity(t), identity(t)
	near, far := shaken(t, a, b, b.Fingerprint(), a.Fingerprint(), nil)
	near.used, far.used, far.lasting = worn+1, worn+1, true
	if _, err := near.Send(near.fd, []byte{1}); !errors.Is(err, ErrWorn) {
		t.Error(err)
	}
	if n, err := far.Send(far.fd, []byte{1}); err != nil || n != 1 {
		t.Error(n, err)
	}
}
