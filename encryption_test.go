package vmmc_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// wiretap is between two nodes. It keeps all that passes, or does with a connection what a test
// wants.
type wiretap struct {
	mu     sync.Mutex
	heard  [2]bytes.Buffer // there, and back
	conns  []net.Conn
	meddle func(near, far net.Conn) // nil: it only listens
	wg     sync.WaitGroup
	closed bool
}

func (w *wiretap) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	far, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	mine, err := d.DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	near, err := l.Accept()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed { // a process that is not closed yet dials again
		_, _, _ = near.Close(), far.Close(), mine.Close()
		return nil, net.ErrClosed
	}
	w.conns = append(w.conns, near, far)
	if w.meddle != nil {
		w.wg.Go(func() {
			w.meddle(near, far)
			_, _ = near.Close(), far.Close()
		})
		return mine, nil
	}
	for i, c := range [][2]net.Conn{{near, far}, {far, near}} {
		w.wg.Go(func() {
			_, _ = io.Copy(io.MultiWriter(c[1], &recorder{w, i}), c[0])
			_, _ = near.Close(), far.Close()
		})
	}
	return mine, nil
}

type recorder struct {
	w   *wiretap
	way int
}

func (e *recorder) Write(b []byte) (int, error) {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	return e.w.heard[e.way].Write(b)
}

func (w *wiretap) close() {
	w.mu.Lock()
	w.closed = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.wg.Wait()
}

func openAt(t *testing.T, socket string, opts ...vmmc.Option) *vmmc.Process {
	t.Helper()
	p, err := vmmc.Open(t.Context(), append(opts, vmmc.WithSocket(socket))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// A link between nodes is encrypted if one of the two processes or one of their nodes asks for
// that, and only then. An eavesdropper between the nodes reads what is sent and got in clear, and
// nothing of it otherwise.
func TestEncryption(t *testing.T) {
	for _, c := range []struct {
		way                string
		importer, exporter bool
		want               int
	}{
		{"between nodes", false, false, 0},
		{"between nodes", true, false, 1},
		{"between nodes", false, true, 1},
		{"between nodes", true, true, 1},
		{encrypted, false, false, 1},
	} {
		t.Run(fmt.Sprintf("%s, importer %v, exporter %v", c.way, c.importer, c.exporter), func(t *testing.T) {
			near, far := nodes(t, c.way)
			process := func(socket string, asks bool) *vmmc.Process {
				if asks {
					return openAt(t, socket, vmmc.WithEncryption())
				}
				return openAt(t, socket)
			}
			a, b := process(near, c.importer), process(far, c.exporter)
			w := &wiretap{}
			t.Cleanup(w.close)
			vmmc.SetDialer(a, w.dial)
			mem := alloc(t, b, 1<<20)
			ran := make(chan uint32, 1)
			if _, err := b.Export(7, mem, vmmc.WithHandler(func(n vmmc.Notification) { ran <- n.Word })); err != nil {
				t.Fatal(err)
			}
			ctx := within(t)
			im, err := a.Import(ctx, b.Node(), b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			there, back := []byte("what is sent, of which nobody is to hear"), []byte("what is got, of which nobody is to hear!")
			if err := im.SendNotify(ctx, there, 0); err != nil {
				t.Fatal(err)
			}
			<-ran
			if !bytes.Equal(mem[:len(there)], there) {
				t.Error("other contents have arrived")
			}
			copy(mem[4096:], back)
			got := make([]byte, len(back))
			if err := im.Get(ctx, got, 4096); err != nil || !bytes.Equal(got, back) {
				t.Errorf("a get: %q, %v", got, err)
			}
			long := bytes.Repeat(there, len(mem)/len(there)/4*4)
			if err := im.Send(ctx, long, 0); err != nil || !bytes.Equal(mem[:len(long)], long) {
				t.Errorf("a long message: %v", err)
			}
			if old, err := im.FetchAdd64(ctx, 0, 1); err != nil || old == 0 {
				t.Error(old, err)
			}
			if n, m := vmmc.Encrypted(a), vmmc.Encrypted(b); n != c.want || m != c.want {
				t.Errorf("%d links are encrypted at the importer, %d at the exporter, want %d", n, m, c.want)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for i, secret := range [][]byte{there, back} {
				all := w.heard[i].Bytes()
				if heard := bytes.Contains(all, secret[:16]); heard != (c.want == 0) {
					t.Errorf("way %d: of %d bytes between the nodes %q is among them: %v", i, len(all), secret[:16], heard)
				}
			}
			if n := w.heard[0].Len(); n < len(long) {
				t.Errorf("only %d bytes were heard", n)
			}
		})
	}
}

// Links of one node are not concerned.
func TestEncryptionOnOneNode(t *testing.T) {
	socket, _ := nodes(t, "mapped")
	a, b := openAt(t, socket, vmmc.WithEncryption()), openAt(t, socket)
	if _, err := b.Export(7, alloc(t, b, 4096)); err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(within(t), b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.Send(within(t), w32(1), 0); err != nil || vmmc.Encrypted(a) != 0 {
		t.Error(err)
	}
}

// written is a connection that is written to alone: what one copies from another by itself goes
// through a pipe, which the runtime keeps until a collection, and which looks like a leak until
// then.
type written struct{ io.Writer }

// passHello lets the part of a hello pass that is in clear.
func passHello(t *testing.T, near, far net.Conn) {
	for _, step := range []struct {
		from, to net.Conn
		n        int64
	}{{near, far, wire.HelloSize}, {far, near, wire.ChallengeSize}, {near, far, wire.ProofSize}} {
		if _, err := io.CopyN(written{step.to}, step.from, step.n); err != nil {
			t.Error(err)
		}
	}
}

// Both sides refuse a man in the middle that has a certificate of its own, and it delivers nothing.
func TestManInTheMiddle(t *testing.T) {
	near, far := nodes(t, "between nodes")
	a, b := openAt(t, near, vmmc.WithEncryption()), openAt(t, far)
	mem := alloc(t, b, 4096)
	if _, err := b.Export(7, mem); err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify: true, NextProtos: []string{"vmmc-link/1"}, MinVersion: tls.VersionTLS13,
	}
	toImporter, toExporter := make(chan error, 1), make(chan error, 1)
	w := &wiretap{meddle: func(near, far net.Conn) {
		passHello(t, near, far)
		toExporter <- func() error {
			c := tls.Client(far, conf)
			if err := c.Handshake(); err != nil {
				return err
			}
			_, err := c.Read(make([]byte, 1)) // a client hears only here that its certificate was refused
			return err
		}()
		c := tls.Server(near, conf)
		err := c.Handshake()
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		toImporter <- err
	}}
	t.Cleanup(w.close)
	vmmc.SetDialer(a, w.dial)
	_, err = a.Import(within(t), b.Node(), b.PID(), 7)
	if !errors.Is(err, vmmc.ErrNoRights) || !strings.Contains(fmt.Sprint(err), "another certificate") {
		t.Errorf("an import: %v", err)
	}
	for side, err := range map[string]error{"importer": <-toImporter, "exporter": <-toExporter} {
		if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "remote error: tls") {
			t.Errorf("the %s has taken the certificate: %v", side, err)
		}
	}
	if n := vmmc.Encrypted(a) + vmmc.Encrypted(b); n != 0 {
		t.Errorf("%d links are there", n)
	}
}

// A man in the middle cannot make the two nodes do without encryption.
func TestNoDowngrade(t *testing.T) {
	for name, meddle := range map[string]func(t *testing.T, near, far net.Conn){
		"the importer's hello says that it is in clear": func(t *testing.T, near, far net.Conn) {
			hello := make([]byte, wire.HelloSize)
			if _, err := io.ReadFull(near, hello); err != nil {
				t.Error(err)
			}
			hello[8] &^= byte(wire.Encrypted)
			if _, err := far.Write(hello); err != nil {
				t.Error(err)
			}
			if _, err := io.CopyN(written{near}, far, wire.ChallengeSize); err != nil {
				t.Error(err)
			}
			if _, err := io.CopyN(written{far}, near, wire.ProofSize); err != nil {
				t.Error(err)
			}
			_, _ = io.CopyN(written{near}, far, wire.AnswerSize)
		},
		"an answer in clear": func(t *testing.T, near, far net.Conn) {
			passHello(t, near, far)
			a := wire.Answer{}
			if _, err := near.Write(a.Encode()); err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, near)
		},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := nodes(t, "between nodes")
			a, b := openAt(t, near), openAt(t, far, vmmc.WithEncryption())
			if _, err := b.Export(7, alloc(t, b, 4096)); err != nil {
				t.Fatal(err)
			}
			w := &wiretap{meddle: func(near, far net.Conn) { meddle(t, near, far) }}
			t.Cleanup(w.close)
			vmmc.SetDialer(a, w.dial)
			if _, err := a.Import(within(t), b.Node(), b.PID(), 7); err == nil {
				t.Error("a link came about")
			}
			if n := vmmc.Encrypted(a) + vmmc.Encrypted(b); n != 0 {
				t.Errorf("%d links are there", n)
			}
		})
	}
}

// A process that holds the key of an encrypted link gets nowhere in clear, nor does one that cannot
// encrypt.
func TestImporterInClear(t *testing.T) {
	near, far := nodes(t, "between nodes")
	b := openAt(t, far, vmmc.WithEncryption())
	if _, err := b.Export(7, alloc(t, b, 4096)); err != nil {
		t.Fatal(err)
	}
	r := &robber{outlaw: newOutlaw(t, near, 1, nil)}
	r.grant = r.grab(t, b, 7)
	connect := func(s nodeproto.Secrecy) (nodeproto.Connected, error) {
		c, _, err := nodeproto.Ask[nodeproto.Connected](t.Context(), r.Conn, nodeproto.Connect, nodeproto.ConnectRequest{Exporter: r.grant.Exporter, Secrecy: s}, nil)
		return c, err
	}
	for _, print := range [][]byte{nil, make([]byte, encrypt.PrintSize-1)} {
		if _, err := connect(nodeproto.Secrecy{Fingerprint: print}); !errors.Is(err, code.NotImplemented) {
			t.Errorf("without a certificate: %v", err)
		}
	}
	id, err := encrypt.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if r.Connected, err = connect(nodeproto.Secrecy{Fingerprint: id.Fingerprint()}); err != nil || !r.Encrypt {
		t.Fatal(r.Encrypt, err)
	}
	if _, err := r.dial(t, wire.Hello{Link: r.Link, Attempt: 1}, r.Key, nil); !errors.Is(err, wire.RefusedClear) {
		t.Errorf("a hello in clear: %v", err)
	}
	// It says that TLS comes, and goes on in clear.
	nc, _, _ := r.proved(t, wire.Hello{Link: r.Link, Attempt: 2, Capabilities: wire.Encrypted})
	if _, err := nc.Write(frame(wire.Header{Type: wire.Data, Flags: wire.Last, Handle: r.grant.Handle, Seq: 1, Size: 4, Word: 5}, nil)); err != nil {
		t.Fatal(err)
	}
	if said, _ := io.ReadAll(nc); bytes.HasPrefix(said, []byte(wire.Magic)) {
		t.Errorf("an answer in clear: %q", said)
	}
	// One that goes on is let in, with the attempt that it says.
	h := wire.Hello{Link: r.Link, Attempt: 3, Capabilities: wire.Encrypted}
	c := r.secret(t, h, id)
	answer := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(c, answer); err != nil {
		t.Fatal(err)
	}
	if a, err := wire.ParseAnswer(answer); err != nil || a.Capabilities&wire.Encrypted == 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

// proved dials as an importer does, up to its proof.
func (r *robber) proved(t *testing.T, h wire.Hello) (nc net.Conn, raw, challenge []byte) {
	t.Helper()
	nc, err := net.Dial("tcp", r.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	h.MinVersion, h.MaxVersion, h.Nonce = wire.MinVersion, wire.MaxVersion, wire.NewNonce()
	raw, challenge = h.Encode(), make([]byte, wire.ChallengeSize)
	if _, err := nc.Write(raw); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, challenge); err != nil {
		t.Fatal(err)
	}
	proof := wire.Prove(r.Key, wire.Importer, raw, challenge, nil)
	if _, err := nc.Write(proof[:]); err != nil {
		t.Fatal(err)
	}
	return nc, raw, challenge
}

// secret goes on with TLS, up to the answer.
func (r *robber) secret(t *testing.T, h wire.Hello, id *encrypt.Identity) *encrypt.Conn {
	t.Helper()
	nc, _, _ := r.proved(t, h)
	c, err := id.Client(within(t), nc, r.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
