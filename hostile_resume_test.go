package vmmc_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// robber is an outlaw of another node that was let into a buffer, and dials by itself.
type robber struct {
	*outlaw
	grant nodeproto.Grant
	nodeproto.Connected
}

func newRobber(t *testing.T, socket string, inc uint64, p *vmmc.Process, id uint32) *robber {
	t.Helper()
	r := &robber{outlaw: newOutlaw(t, socket, inc, nil)}
	r.grant = r.grab(t, p, id)
	var err error
	r.Connected, _, err = nodeproto.Ask[nodeproto.Connected](t.Context(), r.Conn, nodeproto.Connect, nodeproto.ConnectRequest{Exporter: r.grant.Exporter}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// dialled is what a hello has come to.
type dialled struct {
	*net.TCPConn
	raw, proof []byte
	answer     wire.Answer
	said       numbers
}

// dial says a hello for a link, proved by a key; a replay is said as it was before.
func (r *robber) dial(t *testing.T, h wire.Hello, key []byte, replay *dialled) (d dialled, err error) {
	t.Helper()
	c, err := net.Dial("tcp", r.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(bound))
	h.MinVersion, h.MaxVersion, h.Nonce = wire.MinVersion, wire.MaxVersion, wire.NewNonce()
	h.Capabilities |= wire.Resumes
	d = dialled{TCPConn: c.(*net.TCPConn), raw: h.Encode()}
	if replay != nil {
		d.raw = replay.raw
	}
	if _, err := c.Write(d.raw); err != nil {
		t.Fatal(err)
	}
	challenge := make([]byte, wire.ChallengeSize)
	if _, err := io.ReadFull(c, challenge); err != nil {
		return d, err
	}
	p := wire.Prove(key, wire.Importer, d.raw, challenge, nil)
	if d.proof = p[:]; replay != nil {
		d.proof = replay.proof
	}
	if _, err := c.Write(d.proof); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(c, answer); err != nil {
		return d, err
	}
	d.answer, err = wire.ParseAnswer(answer)
	return d, err
}

// acked is the last message that the exporter says it has applied.
func (d *dialled) acked(t *testing.T) uint64 {
	t.Helper()
	if _, err := d.Write(d.said.in(frame(wire.Header{Type: wire.Ping}, nil))); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, wire.HeaderSize); ; {
		if _, err := io.ReadFull(d, b); err != nil {
			t.Fatalf("the link has ended: %v", err)
		}
		var h wire.Header
		if err := parsed(&h, b); err != nil {
			t.Fatal(err)
		}
		if h.Type == wire.Ack {
			return h.Ack
		}
	}
}

// Only a process that has a link's key can resume it, and only with a new attempt number. A process
// that has the key gains nothing by false statements. None of it disturbs a link.
func TestHostileResume(t *testing.T) {
	near, far := nodes(t, "between nodes")
	b := join(t, far)
	events := make(chan vmmc.Event, 16)
	vmmc.SetEvents(b, func(e vmmc.Event) { events <- e })
	mem := alloc(t, b, 4096)
	if _, err := b.Export(7, mem); err != nil {
		t.Fatal(err)
	}
	r, other := newRobber(t, near, 1, b, 7), newRobber(t, near, 2, b, 7)
	first, err := r.dial(t, wire.Hello{Link: r.Link, Attempt: 1}, r.Key, nil)
	if err != nil || first.answer.Capabilities&wire.Resumes == 0 {
		t.Fatalf("%+v, %v", first.answer, err)
	}
	send := func(d *dialled, seq uint64, word uint32) {
		t.Helper()
		if _, err := d.Write(d.said.in(frame(wire.Header{Type: wire.Data, Flags: wire.Last, Handle: r.grant.Handle, Seq: seq, Size: 4, Word: word}, nil))); err != nil {
			t.Fatal(err)
		}
	}
	send(&first, 1, 5)
	if n := first.acked(t); n != 1 || mem[0] != 5 {
		t.Fatalf("%d messages were applied, the memory has %d", n, mem[0])
	}

	for _, c := range []struct {
		name   string
		hello  wire.Hello
		key    []byte
		replay *dialled
		want   error
	}{
		{"a hello that was heard, and its proof", wire.Hello{}, nil, &first, wire.RefusedProof},
		{"the number of an attempt that there was", wire.Hello{Link: r.Link, Attempt: 1}, r.Key, nil, wire.RefusedAttempt},
		{"no number", wire.Hello{Link: r.Link}, r.Key, nil, wire.RefusedAttempt},
		{"another process's link", wire.Hello{Link: r.Link, Attempt: 2}, other.Key, nil, wire.RefusedProof},
		{"a link that nobody has", wire.Hello{Link: r.Link + 1, Attempt: 2}, r.Key, nil, wire.RefusedLink},
		{"no key", wire.Hello{Link: r.Link, Attempt: 2}, make([]byte, wire.KeySize), nil, wire.RefusedProof},
	} {
		if _, err := r.dial(t, c.hello, c.key, c.replay); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if n := first.acked(t); n != 1 {
			t.Errorf("%s: then %d messages were applied", c.name, n)
		}
	}

	// Its own link goes on, and what is sent again is not applied again.
	second, err := r.dial(t, wire.Hello{Link: r.Link, Attempt: 7}, r.Key, nil)
	if err != nil || second.answer.Applied != 1 {
		t.Fatalf("resumed after message %d, %v", second.answer.Applied, err)
	}
	if _, err := io.ReadAll(&first); err != nil {
		t.Logf("the connection before: %v", err)
	}
	// The exporter has not seen that the connection before was given up, and says so all the same.
	for _, kind := range []vmmc.EventKind{vmmc.LinkDown, vmmc.LinkResumed} {
		select {
		case e := <-events:
			if e.Kind != kind {
				t.Errorf("the event is %q, want %q", e.Kind, kind)
			}
		case <-time.After(bound):
			t.Fatalf("no event %q", kind)
		}
	}
	send(&second, 2, 6)
	if n := second.acked(t); n != 2 || mem[0] != 6 {
		t.Fatalf("%d messages were applied, the memory has %d", n, mem[0])
	}
	send(&second, 2, 9) // again, though it has been acknowledged
	if _, err := io.ReadAll(&second); err != nil {
		t.Logf("a message that came twice: %v", err)
	}
	if mem[0] != 6 {
		t.Error("a message was applied twice")
	}
	if _, err := r.dial(t, wire.Hello{Link: r.Link, Attempt: 8}, r.Key, nil); !errors.Is(err, wire.RefusedGone) && !errors.Is(err, wire.RefusedLink) {
		t.Errorf("a link that its exporter has ended: %v", err)
	}

	// One that claims answers that there were not loses its link, and that is all.
	d, err := other.dial(t, wire.Hello{Link: other.Link, Attempt: 1}, other.Key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := d.acked(t); n != 0 {
		t.Fatal(n)
	}
	if a, err := other.dial(t, wire.Hello{Link: other.Link, Attempt: 2, Applied: 99}, other.Key, nil); err == nil {
		t.Errorf("answers to 99 messages were believed: %+v", a.answer)
	}
	if a, err := other.dial(t, wire.Hello{Link: other.Link, Attempt: 3}, other.Key, nil); err == nil {
		t.Errorf("the link goes on after that: %+v", a.answer)
	}
	if im, err := join(t, near).Import(within(t), b.Node(), b.PID(), 7); err != nil || im.Send(t.Context(), w32(1), 0) != nil {
		t.Errorf("others: %v", err)
	}
}
