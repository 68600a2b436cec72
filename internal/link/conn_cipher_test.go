package link

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// handshake is about how many bytes one has, either way; inside is a byte of the first long
// record of a message behind it.
const (
	handshake = 3 << 10
	inside    = 4 << 10
)

// secrets are those of both ends.
type secrets struct {
	near, far *encrypt.Identity
	// How long a handshake may take. It is short only where faults meet handshakes: on a busy machine
	// one that takes too long makes a connection more than the faults do.
	limit time.Duration
}

func newSecrets(t *testing.T) *secrets {
	t.Helper()
	s := secrets{limit: 30 * time.Second}
	for _, i := range []**encrypt.Identity{&s.near, &s.far} {
		var err error
		if *i, err = encrypt.NewIdentity(); err != nil {
			t.Fatal(err)
		}
	}
	return &s
}

func (s *secrets) shake(x, y *net.TCPConn) (near, far *encrypt.Conn, err error) {
	ctx, stop := context.WithTimeout(context.Background(), s.limit)
	defer stop()
	type end struct {
		c   *encrypt.Conn
		err error
	}
	other := make(chan end, 1)
	go func() {
		c, err := s.far.Server(ctx, y, s.near.Fingerprint())
		if err != nil {
			_ = y.Close()
		}
		other <- end{c, err}
	}()
	near, err = s.near.Client(ctx, x, s.far.Fingerprint())
	if err != nil {
		_ = x.Close()
	}
	e := <-other
	if err = errors.Join(err, e.err); err != nil {
		_, _ = x.Close(), y.Close()
		return nil, nil, err
	}
	near.Detach(true)
	e.c.Detach(true)
	return near, e.c, nil
}

// sealed joins two engines by an encrypted link.
func sealed(t *testing.T, terms Terms, target *Target, all ...faults) *bridge {
	t.Helper()
	b := bridgedBy(t, t, newSecrets(t), terms, []*Target{target}, all...)
	t.Cleanup(b.close)
	return b
}

func TestEncryptedLinkCarriesEverything(t *testing.T) {
	for _, checked := range []bool{false, true} {
		mem := memory(t, 1<<20)
		b := sealed(t, Terms{Checked: checked}, &Target{Handle: 1, Mem: mem, Write: true, Read: true})
		for i, n := range []int{4, 8, 448, 452, 456, 4096, 16 << 10, 16<<10 + 4, 64 << 10, 300 << 10, 1 << 20} {
			src := bytes.Repeat([]byte{byte(i + 1), 7, byte(n), byte(n >> 8)}, n/4)
			if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: src[:n/8*4], More: [][]byte{src[n/8*4:]}}); err != nil {
				t.Fatal(n, err)
			}
			dst := make([]byte, n)
			if err := b.out.Get(t.Context(), Read{Handle: 1, Dst: dst}); err != nil || !bytes.Equal(dst, src) {
				t.Fatalf("%d bytes: %v", n, err)
			}
			clear(src)
			r, err := b.out.SendAsync(t.Context(), Message{Handle: 1, Src: src})
			if err != nil {
				t.Fatal(n, err)
			}
			if done, err := r.Wait(t.Context()); !done || err != nil {
				t.Fatalf("%d bytes: %v, %v", n, done, err)
			}
		}
		if losses, _ := b.out.ConnStats(); losses != 0 || b.in.ChecksumErrors()+b.out.ChecksumErrors() != 0 {
			t.Errorf("%d connections were lost, %d frames damaged", losses, b.in.ChecksumErrors()+b.out.ChecksumErrors())
		}
	}
}

// A bit that is changed on the way, wherever, is never delivered: the link resumes by another
// connection.
func TestChangedBitOfAnEncryptedLink(t *testing.T) {
	for at := int64(inside); at < inside+12<<10; at += 1087 {
		mem := memory(t, 64<<10)
		b := sealed(t, Terms{}, &Target{Handle: 1, Mem: mem, Write: true, Read: true}, faults{there: []simnet.Fault{{At: at, Kind: simnet.Flip, Bit: uint8(at % 8)}}})
		want := bytes.Repeat([]byte{1, 2, 3, 4}, 16<<10)
		if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: want}); err != nil {
			t.Fatal(at, err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		if err := b.out.WaitApplied(ctx, nil); err != nil {
			t.Fatalf("at %d: %v; %s", at, err, b.out.state())
		}
		stop()
		if losses, resumed := b.out.ConnStats(); losses != 1 || resumed != 1 || b.in.ChecksumErrors() != 1 {
			t.Errorf("at %d: %d connections were lost, %d resumed, %d frames damaged", at, losses, resumed, b.in.ChecksumErrors())
		}
		b.in.rmu.Lock()
		if !bytes.Equal(mem, want) {
			t.Errorf("at %d: other contents", at)
		}
		b.in.rmu.Unlock()
	}
}

// A link that is not resumed ends with such a bit, and nothing of the message's last word is there.
func TestChangedBitEndsALink(t *testing.T) {
	mem := memory(t, 16<<10)
	target := &Target{Handle: 1, Mem: mem, Write: true}
	s := newSecrets(t)
	b := &bridge{pair: &pair{lost: make(chan error, 2)}, secrets: s}
	b.a, _ = engine(t)
	b.b, _ = engine(t)
	e, err := b.dial(faults{there: []simnet.Fault{{At: inside, Kind: simnet.Flip, Bit: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if b.in, err = NewResponder(b.b, e.far, nil, Terms{Cipher: e.farCipher}, []*Target{target}, nil, func(uint32) {}, func(err error) { b.lost <- err }); err != nil {
		t.Fatal(err)
	}
	if b.out, err = NewRequester(b.a, e.near, nil, Terms{Cipher: e.nearCipher}, func(uint32, uint64, error) {}, func(error) {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: bytes.Repeat([]byte{1}, 16<<10)}); err != nil && !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
	if err := <-b.lost; !errors.Is(err, wire.ErrCorrupt) || !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if loadLast(mem, 16<<10-4) != 0 {
		t.Error("the message has arrived")
	}
}

// No connection in clear takes the place of one that is encrypted, on neither side.
func TestEncryptedLinkIsNotResumedInClear(t *testing.T) {
	mem := memory(t, 64)
	b := sealed(t, Terms{}, &Target{Handle: 1, Mem: mem, Write: true})
	x, y, c, err := simnet.Pair(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	near, err := unix.TakeOver(x)
	if err != nil {
		t.Fatal(err)
	}
	far, err := unix.TakeOver(y)
	if err != nil {
		t.Fatal(err)
	}
	answered := func(error, uint64, uint64, uint32) error { return nil }
	if err := b.in.Resume(far, nil, 0, 0, answered); err == nil || !strings.Contains(err.Error(), "encrypted") {
		t.Errorf("the exporter: %v", err)
	}
	if err := b.out.resume(near, nil, &wire.Answer{}); err == nil || !strings.Contains(err.Error(), "encrypted") {
		t.Errorf("the importer: %v", err)
	}
}

// However much there is of an encrypted link, one turn takes out of the socket what one call
// brings, and of the rest an event tells: a peer whose records are all full is else read for as
// long as it sends, and others not at all.
func TestRecvQuantumOfAnEncryptedLink(t *testing.T) {
	const record, records = 16 << 10, 12
	mem := memory(t, 64)
	x, y, c, err := simnet.Pair(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := y.SetReadBuffer(1 << 20); err != nil {
		t.Fatal(err)
	}
	near, far, err := newSecrets(t).shake(x, y)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(near.Drop)
	fd, err := unix.TakeOver(x)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	to, err := unix.TakeOver(y)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := engine(t)
	rs, err := NewResponder(e, to, nil, Terms{Cipher: far}, []*Target{{Handle: 1, Mem: mem, Write: true}}, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	patience := time.Now().Add(20 * time.Second)
	late := func(what string) {
		t.Helper()
		if time.Now().After(patience) {
			t.Fatal("never: ", what)
		}
		time.Sleep(time.Millisecond)
	}
	for !rs.token.tryAcquire() {
		late("the link is let go")
	}
	all := make([]byte, records*record)
	for i := range len(all) / wire.HeaderSize {
		h := wire.Header{Type: wire.Data, Flags: wire.Last, Handle: 1, Seq: uint64(i + 1), Size: 4, Word: uint32(i + 1)}
		h.Put(all[i*wire.HeaderSize:], uint32(i))
	}
	for rest := all; len(rest) > 0; {
		n, err := near.Send(fd, rest[:min(len(rest), 4*record)])
		if err != nil {
			t.Fatal(err)
		}
		if rest = rest[n:]; n == 0 {
			late("there is room in the socket")
		}
	}
	there := make([]byte, 2*len(all))
	for {
		n, err := rs.rx.io.Peek(rs.fd, there)
		if err != nil {
			t.Fatal(err)
		}
		if n >= len(all) {
			break
		}
		late("all is in the other socket")
	}
	if !rs.receive(1) {
		t.Error("a turn has found nothing")
	}
	const each = record / wire.HeaderSize
	if n := rs.appliedSeq.Load() / each; n == 0 || n > records/2 {
		t.Errorf("of %d records one turn took %d", records, n)
	}
	rs.releaseArmed()
	for rs.appliedSeq.Load() < records*each {
		late("all has arrived")
	}
	if w := loadLast(mem, 0); w != records*each {
		t.Errorf("the last word is %d", w)
	}
}

// An encrypted link on which nothing arrives any more, without an error, is noticed after the
// silence limit. It then resumes by another connection; without one it ends, and says so.
func TestSilenceOfAnEncryptedLink(t *testing.T) {
	const silence = time.Second // a busy machine is silent for less
	never := func(context.Context, uint64, uint64, uint32) (int, Cipher, wire.Answer, error) {
		return -1, nil, wire.Answer{}, errors.New("no way there")
	}
	for _, resumed := range []bool{true, false} {
		mem := memory(t, 64<<10)
		terms := Terms{SilenceLimit: silence}
		if !resumed {
			terms.Redial, terms.ReconnectLimit = never, silence
		}
		b := sealed(t, terms, &Target{Handle: 1, Mem: mem, Write: true, Read: true})
		src := bytes.Repeat([]byte{1, 2, 3, 4}, 16<<10)
		if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: src}); err != nil {
			t.Fatal(err)
		}
		if err := b.out.WaitApplied(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		b.first().Part()
		begun := time.Now()
		dst := make([]byte, len(src))
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		err := b.out.Get(ctx, Read{Handle: 1, Dst: dst})
		stop()
		t.Logf("after %v: %v", time.Since(begun).Round(time.Millisecond), err)
		if d := time.Since(begun); d < silence/2 {
			t.Errorf("given up after %v", d)
		}
		switch losses, n := b.out.ConnStats(); {
		case resumed && (err != nil || !bytes.Equal(dst, src) || losses == 0 || n != losses):
			t.Errorf("a get: %v; %d connections were lost, %d resumed", err, losses, n)
		case !resumed && (!errors.Is(err, ErrGone) || errors.Is(err, context.DeadlineExceeded)):
			t.Errorf("a get of a link that cannot be resumed: %v", err)
		}
	}
}
