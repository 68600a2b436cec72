//go:build linux

package daemon_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// dialPort makes an unauthenticated connection to a node's port.
func dialPort(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(bound))
	return c.(*net.TCPConn)
}

// over fails the test unless the node closes the connection. It returns what it
// said before.
func over(t testing.TB, c net.Conn) []byte {
	t.Helper()
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the node did not close the connection: %v", err)
	}
	return b
}

// greet plays a hello to its end: the bytes are what is sent, the proof made
// from the challenge that comes.
func greet(
	t testing.TB, addr string, hello []byte, proof func(challenge []byte) []byte,
) (*net.TCPConn, error) {
	t.Helper()
	c := dialPort(t, addr)
	if _, err := c.Write(hello); err != nil {
		t.Fatal(err)
	}
	challenge := make([]byte, wire.ChallengeSize)
	if _, err := io.ReadFull(c, challenge); err != nil {
		return c, err
	}
	if _, err := wire.ParseChallenge(challenge); err != nil {
		return c, err
	}
	if _, err := c.Write(proof(challenge)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(c, answer); err != nil {
		return c, err
	}
	_, err := wire.ParseAnswer(answer)
	return c, err
}

func helloFor(link, attempt uint64) []byte {
	h := wire.Hello{
		MinVersion: wire.MinVersion, MaxVersion: wire.MaxVersion, Link: link, Attempt: attempt,
		Nonce: wire.NewNonce(),
	}
	return h.Encode()
}

func prover(key, hello []byte) func([]byte) []byte {
	return func(challenge []byte) []byte {
		p := wire.Prove(key, wire.Importer, hello, challenge, nil)
		return p[:]
	}
}

// victim is a process of b whose buffer a raw process of a has imported, so that
// the test knows the link's key.
func victim(t testing.TB, c *cluster) nodeproto.Connected {
	t.Helper()
	q := open(t, c.b)
	if _, err := q.Export(5, make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	r := newRaw(t, c.a, 77, nil)
	g, _, err := nodeproto.Ask[nodeproto.Grant](t.Context(), r.Conn, nodeproto.Import,
		nodeproto.ImportRequest{Node: "b", PID: uint32(q.PID()), ID: 5}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := nodeproto.Ask[nodeproto.Connected](t.Context(), r.Conn, nodeproto.Connect,
		nodeproto.ConnectRequest{Exporter: g.Exporter}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if l.SameNode || len(l.Key) != wire.KeySize || l.Address != c.b.Addr() {
		t.Fatalf("link %+v", l)
	}
	return l
}

func TestHelloRefusals(t *testing.T) {
	c := newCluster(t)
	tr := newTraffic(t, c.a, c.b)
	l := victim(t, c)
	wrong := make([]byte, wire.KeySize)
	good := helloFor(l.Link, 3)
	var captured []byte // the proof that went with good

	steps := []struct {
		name  string
		hello []byte
		proof func([]byte) []byte
		want  error // nil: accepted
	}{
		{"unknown link", helloFor(l.Link+1, 1), prover(l.Key, nil), wire.RefusedLink},
		{"link 0", helloFor(0, 1), prover(wrong, nil), wire.RefusedLink},
		{"wrong key", helloFor(l.Link, 1), prover(wrong, nil), wire.RefusedProof},
		{"proof over another hello", good, prover(l.Key, helloFor(l.Link, 1)), wire.RefusedProof},
		{"the exporter's proof", good, func(ch []byte) []byte {
			p := wire.Prove(l.Key, wire.Exporter, good, ch, nil)
			return p[:]
		}, wire.RefusedProof},
		{
			"later version only",
			(&wire.Hello{MinVersion: 90, MaxVersion: 91, Link: l.Link, Attempt: 1}).Encode(), nil,
			wire.RefusedVersion,
		},
		{"version 0", (&wire.Hello{Link: l.Link, Attempt: 1}).Encode(), nil, wire.RefusedVersion},
		{"attempt 0", helloFor(l.Link, 0), nil, wire.RefusedAttempt},
		{"good", good, func(ch []byte) []byte {
			captured = prover(l.Key, good)(ch)
			return captured
		}, nil},
		{"replayed with its proof", good, func([]byte) []byte { return captured }, wire.RefusedProof},
		{"replayed by a peer that has the key", good, prover(l.Key, good), wire.RefusedAttempt},
		{"an earlier attempt", helloFor(l.Link, 2), nil, wire.RefusedAttempt},
	}
	for _, s := range steps {
		if s.proof == nil {
			s.proof = prover(l.Key, s.hello)
		}
		conn, err := greet(t, l.Address, s.hello, s.proof)
		if !errors.Is(err, s.want) || s.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", s.name, err, s.want)
		}
		if s.want != nil {
			if b := over(t, conn); len(b) > 0 {
				t.Errorf("%s: %d bytes after the refusal", s.name, len(b))
			}
		}
		tr.goesOn(t)
	}
}

// The exporter ends. An importer that dials afterwards is told, also if the process has only
// refused its daemon's handover.
func TestHelloToOneWhoIsGone(t *testing.T) {
	c := newCluster(t)
	tr := newTraffic(t, c.a, c.b)
	leak, w := pipe(t, 3)
	var served atomic.Int32
	exp := newRaw(t, c.b, 5, func(_ context.Context, m nodeproto.Method, _ []byte, fds []int) (any,
		[]int, error,
	) {
		closeAll(fds)
		served.Add(1)
		switch m {
		case nodeproto.Offer:
			return nodeproto.Grant{Handle: 1, Size: 4096, Rights: nodeproto.MayWrite}, nil, nil
		case nodeproto.Accept:
			return nodeproto.Empty{}, leak[:1], nil // descriptors that were not asked for
		case nodeproto.Handover:
			if served.Load() == 3 {
				return nodeproto.Empty{}, leak[1:], nil
			}
			return nil, nil, code.New(code.PeerGone, "no")
		}
		return nodeproto.Empty{}, nil, nil
	})
	if _, err := exp.Call(t.Context(), nodeproto.Export,
		nodeproto.ExportRequest{ID: 1, Size: 4096, Rights: nodeproto.MayWrite}, nil, nil); err != nil {
		t.Fatal(err)
	}
	imp := newRaw(t, c.a, 6, nil)
	g, _, err := nodeproto.Ask[nodeproto.Grant](t.Context(), imp.Conn, nodeproto.Import,
		nodeproto.ImportRequest{Node: "b", PID: exp.id.PID, ID: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := nodeproto.Ask[nodeproto.Connected](t.Context(), imp.Conn, nodeproto.Connect,
		nodeproto.ConnectRequest{Exporter: g.Exporter}, nil)
	if err != nil {
		t.Fatal(err)
	}
	say := func() error {
		h := helloFor(l.Link, 1)
		conn, err := greet(t, l.Address, h, prover(l.Key, h))
		over(t, conn)
		return err
	}
	if err := say(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		// It took the connection and closed it.
		t.Errorf("an exporter that says nothing: %v", err)
	}
	testutil.PipeClosed(t, w)
	if err := say(); !errors.Is(err, wire.RefusedGone) {
		t.Errorf("an exporter that refuses: %v, want %v", err, wire.RefusedGone)
	}
	exp.Close()
	<-exp.Done()
	// The daemon notices by itself, soon. Before, it closes the connection: it cannot
	// know whether the exporter has answered.
	for end := time.Now().Add(bound); ; {
		err := say()
		if errors.Is(err, wire.RefusedLink) {
			break
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) || time.Now().After(end) {
			t.Fatalf("an exporter that has ended: %v, want %v", err, wire.RefusedLink)
		}
	}
	tr.goesOn(t)
}

func TestGarbageOnThePort(t *testing.T) {
	c := newCluster(t)
	tr := newTraffic(t, c.a, c.b)
	for name, b := range map[string][]byte{
		"nothing":         nil,
		"http":            []byte("GET / HTTP/1.1\r\n\r\n"),
		"zeros":           make([]byte, 4096),
		"ssh":             []byte("SSH-2.0-OpenSSH_9.9\r\n"),
		"half a hello":    helloFor(1, 1)[:31],
		"V and garbage":   append([]byte("V"), make([]byte, 500)...),
		"reversed range":  (&wire.Hello{MinVersion: 5, MaxVersion: 1}).Encode(),
		"no proof":        helloFor(1, 1),
		"broken tls":      {0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0xff},
		"oversized tls":   append([]byte{0x16, 3, 3, 0xff, 0xff}, make([]byte, 1<<16)...),
		"half tls record": {0x16, 3, 1},
	} {
		conn := dialPort(t, c.b.Addr())
		_, _ = conn.Write(b) // the node may have closed it in the middle
		_ = conn.CloseWrite()
		over(t, conn)
		tr.goesOn(t)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// Silence, before the first byte or after some, holds up neither others nor the
// node's end.
func TestSilenceOnThePort(t *testing.T) {
	c := newCluster(t)
	tr := newTraffic(t, c.a, c.b)
	var conns []net.Conn
	for _, b := range [][]byte{
		nil, helloFor(1, 1)[:1], helloFor(1, 1)[:40], helloFor(1, 1), {0x16}, {0x16, 3, 1},
	} {
		conn := dialPort(t, c.b.Addr())
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	tr.goesOn(t)
	newTraffic(t, c.a, c.b).goesOn(t) // new links too
	done := make(chan struct{})
	go func() { c.b.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(bound):
		t.Fatal("silent connections keep the node from ending")
	}
	for _, conn := range conns {
		over(t, conn)
	}
	tr.goesOn(t) // links do not need the node
}

// FuzzHelloPort throws bytes at the port: no node dies of it, no connection stays, and none is
// admitted.
func FuzzHelloPort(f *testing.F) {
	c := newCluster(f)
	tr := newTraffic(f, c.a, c.b)
	f.Fuzz(func(t *testing.T, b []byte) {
		conn := dialPort(t, c.b.Addr())
		_, _ = conn.Write(b) // the node may have closed it in the middle
		_ = conn.CloseWrite()
		said := over(t, conn)
		if n := wire.ChallengeSize; len(said) >= n+wire.AnswerSize {
			if _, err := wire.ParseAnswer(said[n : n+wire.AnswerSize]); err == nil {
				t.Errorf("%x was let in", b)
			}
		}
		tr.goesOn(t)
	})
}
