package handshake

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// serve is daemon and exporter of one link. It takes one connection, and returns what the daemon or
// the exporter says of it.
func serve(t *testing.T, key []byte, status wire.Status, own uint64, id *encrypt.Identity, importer []byte) (addr string, outcome <-chan error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan error, 1)
	go func() {
		defer l.Close()
		c, err := l.Accept()
		if err != nil {
			out <- err
			return
		}
		out <- func() error {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			var first [1]byte
			if _, err := io.ReadFull(c, first[:]); err != nil {
				return err
			}
			r, err := Receive(c, first[0])
			if err != nil {
				return err
			}
			if probe, err := r.ReadProof(c); probe || err != nil {
				return err
			}
			if !r.Proved(key) {
				Refuse(c, wire.RefusedProof)
				return wire.RefusedProof
			}
			var conn *encrypt.Conn
			if id != nil && status == wire.OK {
				if conn, err = id.Server(t.Context(), c, importer); err != nil {
					return err
				}
			}
			fd, err := unix.Borrow(c.(*net.TCPConn))
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			reply := NewReply(status, &r.Hello, own, fd, conn)
			if status == wire.OK {
				reply.Applied = 7
				reply.Prove(key, r.Raw, r.Challenge)
			}
			return reply.Send()
		}()
	}()
	return l.Addr().String(), out
}

func dial(t *testing.T, addr string) net.Conn {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func identities(t *testing.T) (importer, exporter *encrypt.Identity) {
	for _, id := range []**encrypt.Identity{&importer, &exporter} {
		var err error
		if *id, err = encrypt.NewIdentity(); err != nil {
			t.Fatal(err)
		}
	}
	return importer, exporter
}

// The importer learns what the exporter has answered, in clear and encrypted. Checksums need one
// side, resuming both.
func TestHandshake(t *testing.T) {
	importer, exporter := identities(t)
	key := []byte("the secret of this link")
	for name, c := range map[string]struct {
		encrypted bool
		own, peer uint64
		agreed    uint64
	}{
		"in clear":           {false, wire.Resumes, wire.Resumes | wire.Checked, wire.Resumes | wire.Checked},
		"one does not go on": {false, wire.Resumes, 0, 0},
		"encrypted":          {true, wire.Resumes, wire.Resumes, wire.Resumes | wire.Encrypted},
	} {
		t.Run(name, func(t *testing.T) {
			i := &Importer{Link: 42, Key: key, Capabilities: c.own}
			id := exporter
			if c.encrypted {
				i.Identity, i.Fingerprint = importer, exporter.Fingerprint()
			} else {
				id = nil
			}
			addr, outcome := serve(t, key, wire.OK, c.peer, id, importer.Fingerprint())
			conn, a, err := i.Run(t.Context(), dial(t, addr), wire.Hello{Attempt: 1})
			if err != nil {
				t.Fatal(err)
			}
			if (conn != nil) != c.encrypted || a.Capabilities != c.agreed || a.Applied != 7 {
				t.Errorf("encrypted %t, answer %+v", conn != nil, a)
			}
			if err := <-outcome; err != nil {
				t.Error(err)
			}
		})
	}
}

// Each refusal has its code, on encrypted links too, where it comes in clear.
func TestRefusals(t *testing.T) {
	importer, exporter := identities(t)
	key := []byte("the secret of this link")
	for status, want := range map[wire.Status]code.Code{
		wire.RefusedLink: code.BadRbufState, wire.RefusedGone: code.PeerGone, wire.RefusedClear: code.NoRights,
		wire.RefusedAttempt: code.NoRights, wire.RefusedLater: code.Unreachable, wire.RefusedVersion: code.Protocol,
	} {
		for _, id := range []*encrypt.Identity{nil, importer} {
			i := &Importer{Link: 42, Key: key, Identity: id, Fingerprint: exporter.Fingerprint()}
			addr, outcome := serve(t, key, status, 0, nil, nil)
			_, _, err := i.Run(t.Context(), dial(t, addr), wire.Hello{Attempt: 1})
			if !errors.Is(err, want) {
				t.Errorf("%v: %v, want %v", status, err, want)
			}
			if errors.As(err, new(RetryLaterError)) != (status == wire.RefusedLater) || errors.As(err, new(RefusedError)) == (status == wire.RefusedLater) || Broke(err) {
				t.Errorf("%v is told as %T", status, err)
			}
			if err := <-outcome; err != nil {
				t.Error(err)
			}
		}
	}
}

// An importer without the key, one that dialled another exporter, and one that finds its answer in
// clear get no link.
func TestWrongPeers(t *testing.T) {
	importer, exporter := identities(t)
	key := []byte("the secret of this link")
	addr, outcome := serve(t, key, wire.OK, 0, nil, nil)
	_, _, err := (&Importer{Link: 42, Key: []byte("another")}).Run(t.Context(), dial(t, addr), wire.Hello{Attempt: 1})
	if !errors.Is(err, code.NoRights) || !errors.Is(<-outcome, wire.RefusedProof) {
		t.Errorf("another key: %v", err)
	}
	addr, outcome = serve(t, key, wire.OK, 0, exporter, importer.Fingerprint())
	_, _, err = (&Importer{Link: 42, Key: key, Identity: importer, Fingerprint: importer.Fingerprint()}).Run(t.Context(), dial(t, addr), wire.Hello{Attempt: 1})
	if !errors.Is(err, code.NoRights) || <-outcome == nil {
		t.Errorf("another exporter's certificate: %v", err)
	}
	addr, outcome = serve(t, key, wire.OK, 0, nil, nil)
	_, _, err = (&Importer{Link: 42, Key: key, Identity: importer, Fingerprint: exporter.Fingerprint()}).Run(t.Context(), dial(t, addr), wire.Hello{Attempt: 1})
	if !errors.Is(err, code.Protocol) {
		t.Errorf("an answer in clear: %v", err)
	}
	if err := <-outcome; err != nil {
		t.Error(err)
	}
}

// A probe gets its challenge and is no error of the daemon's. A peer that hangs up has broken the
// handshake.
func TestProbe(t *testing.T) {
	addr, outcome := serve(t, nil, wire.OK, 0, nil, nil)
	c := dial(t, addr)
	if err := Probe(c); err != nil {
		t.Error(err)
	}
	_ = c.Close()
	if err := <-outcome; err != nil {
		t.Errorf("the daemon takes a probe for %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	if _, _, err := (&Importer{Link: 42}).Run(t.Context(), dial(t, l.Addr().String()), wire.Hello{Attempt: 1}); !Broke(err) {
		t.Errorf("a peer that hangs up: %v", err)
	}
}
