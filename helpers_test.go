package vmmc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/manual"
	"github.com/vmmc-go/vmmc/node"
)

// codeOf is that of an error, 0 of none.
func codeOf(err error) (c vmmc.Code) {
	var e *vmmc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	errors.As(err, &c)
	return c
}

// until fails the test unless cond becomes true.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

// awaitEvent skips events until one of a kind, before which the link may not fail.
func awaitEvent(t *testing.T, events <-chan vmmc.Event, kind vmmc.EventKind) vmmc.Event {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e.Kind == kind {
				return e
			}
			if e.Kind == vmmc.PeerGone {
				t.Fatal(e.Err)
			}
		case <-time.After(bound):
			t.Fatalf("no event %q", kind)
		}
	}
}

// shaky is a network between two nodes whose connections a test ends.
type shaky struct {
	mu    sync.Mutex
	conns []*simnet.Conn
	down  bool

	faults []simnet.Fault // of each connection, in what its dialler sends
	pause  time.Duration  // between a connection that has ended and the next
	seen   time.Time      // when it was seen that the last one has
}

// pausing reports whether the network is down for a while, a connection having ended. The caller
// has the lock.
func (s *shaky) pausing() bool {
	if s.pause == 0 || len(s.conns) == 0 {
		return false
	}
	<-s.conns[len(s.conns)-1].Over()
	if s.seen.IsZero() {
		s.seen = time.Now()
	}
	if time.Since(s.seen) < s.pause {
		return true
	}
	s.seen = time.Time{}
	return false
}

func (s *shaky) dial(ctx context.Context, address string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.pausing() {
		return nil, errors.New("the network is down")
	}
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	near, c, err := simnet.Before(far.(*net.TCPConn), s.faults, nil)
	if err != nil {
		return nil, err
	}
	s.conns = append(s.conns, c)
	return near, nil
}

// cut resets the connection that is there, and says whether the network is up after it.
func (s *shaky) cut(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = !up
	for _, c := range s.conns {
		c.Reset()
	}
}

func (s *shaky) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
}

// imported is a new buffer 7 of b, of n bytes, as a has imported it.
func imported(ctx context.Context, t *testing.T, a, b *vmmc.Process, n int) *vmmc.Import {
	t.Helper()
	if _, err := b.Export(7, alloc(t, b, n)); err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// surviving are an importer and an exporter on two nodes whose links survive, and what the
// importer is told.
func surviving(t *testing.T, limit time.Duration, more ...vmmc.Option) (a, b *vmmc.Process, s *shaky, events chan vmmc.Event) {
	t.Helper()
	far := vmmc.WithResume(limit)
	return shakily(t, append(more, far), far)
}

// shakily are two processes with their options, on nodes between which a test ends connections, and
// what a is told.
func shakily(t *testing.T, near []vmmc.Option, far ...vmmc.Option) (a, b *vmmc.Process, s *shaky, events chan vmmc.Event) {
	t.Helper()
	here, there := nodes(t, "between nodes")
	s = &shaky{}
	events = make(chan vmmc.Event, 1024)
	process := func(socket string, opts []vmmc.Option) *vmmc.Process {
		p, err := vmmc.Open(t.Context(), append(opts, vmmc.WithSocket(socket))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	t.Cleanup(s.close)
	a = process(here, append(near, vmmc.WithEvents(func(e vmmc.Event) { events <- e })))
	b = process(there, far)
	vmmc.SetDialer(a, s.dial)
	return a, b, s, events
}

// nodes starts the node or the two nodes of a way and says where to join them.
func nodes(t testing.TB, way string) (importer, exporter string) {
	t.Helper()
	if way != "between nodes" && way != encrypted {
		n, err := node.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		return n.Socket(), n.Socket()
	}
	sockets, clean, err := twoNodes(t.TempDir(), way == encrypted)
	t.Cleanup(clean)
	if err != nil {
		t.Fatal(err)
	}
	return sockets[0], sockets[1]
}

// twoNodes starts them, with their sockets in dir. clean ends them, also those that were started
// when there is an error.
func twoNodes(dir string, encrypt bool) (sockets []string, clean func(), err error) {
	for range 5 {
		sockets, clean, err = tryTwoNodes(dir, encrypt)
		// Another test binary may take a port before the daemon does.
		if err == nil || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			break
		}
		clean()
	}
	return sockets, clean, err
}

func tryTwoNodes(dir string, encrypt bool) (sockets []string, clean func(), err error) {
	var nodes []*daemon.Node
	clean = func() {
		for _, n := range nodes {
			n.Close()
		}
	}
	ids, err := cert.Ephemeral("test", "a", "b")
	if err != nil {
		return nil, clean, err
	}
	var hs []hosts.Host
	names := []string{"a", "b"}
	as, err := cluster.FreeAddresses(len(names))
	if err != nil {
		return nil, clean, err
	}
	for i, name := range names {
		hs = append(hs, hosts.Host{Name: name, Control: as[i], Data: as[i]})
	}
	for _, h := range hs {
		s := filepath.Join(dir, h.Name)
		n, err := daemon.Start(daemon.Config{Name: h.Name, Socket: s, Hosts: hs, Identity: ids[h.Name], Encrypt: encrypt && len(sockets) == 0})
		if err != nil {
			return nil, clean, err
		}
		nodes, sockets = append(nodes, n), append(sockets, s)
	}
	return sockets, clean, nil
}

// join opens a process at a socket.
func join(t testing.TB, socket string, opts ...vmmc.Option) *vmmc.Process {
	t.Helper()
	p, err := vmmc.Open(context.Background(), append(opts, vmmc.WithSocket(socket))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// buffers is one process's export as another one has it.
type buffers struct {
	a, b *vmmc.Process // b exports
	all  []byte        // of b: the export and what is around it
	exp  *vmmc.Export
	im   *vmmc.Import
}

// inDestSpace is a DestSpace with the import in it, at an address.
func inDestSpace(t testing.TB, im *vmmc.Import) (*manual.DestSpace, manual.ProxyAddr) {
	t.Helper()
	d := new(manual.DestSpace)
	a, err := d.Add(im)
	if err != nil {
		t.Fatal(err)
	}
	return d, a
}

// exported makes a buffer 7 of size bytes on a way, filled with guard bytes.
func exported(t testing.TB, way string, opts ...vmmc.ExportOption) *buffers {
	t.Helper()
	return exportedSize(t, way, size, opts...)
}

func exportedSize(t testing.TB, way string, size int, opts ...vmmc.ExportOption) *buffers {
	t.Helper()
	near, far := nodes(t, way)
	return exportedAt(t, near, far, way, size, opts...)
}

// exportedAt is exportedSize for processes of nodes that are there already.
func exportedAt(t testing.TB, near, far, way string, size int, opts ...vmmc.ExportOption) *buffers {
	t.Helper()
	s := &buffers{a: join(t, near), b: join(t, far)}
	n, from := size, 0
	if way != "mapped" { // the stream reaches part of an allocation, with something on either side
		n, from = 3*size, size
		opts = append(opts, vmmc.Unmapped())
	}
	m, err := s.b.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	s.all = m.Bytes()
	for i := range s.all {
		s.all[i] = guard
	}
	if s.exp, err = s.b.Export(7, s.all[from:from+size], opts...); err != nil {
		t.Fatal(err)
	}
	if s.im, err = s.a.Import(t.Context(), s.b.Node(), s.b.PID(), 7); err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(way, "between nodes", "stream", 1); s.im.Path().String() != want {
		t.Fatalf("the path is %s, want %s", s.im.Path(), want)
	}
	return s
}

// untouched fails the test if any byte of b's memory has changed. What was sent
// before has arrived when it looks.
func (s *buffers) untouched(t testing.TB) {
	t.Helper()
	for i, b := range s.all {
		if b != guard {
			t.Errorf("byte %d of the exporter's %d is %#x now", i, len(s.all), b)
			return
		}
	}
}

// wrong fails the test unless err is each of the codes and says all that a
// reader needs: with whom, which buffer, on which path.
func (s *buffers) wrong(t testing.TB, what string, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: %v, want %v", what, err, w)
		}
	}
	var e *vmmc.Error
	if !errors.As(err, &e) {
		t.Fatalf("%s: %v is a %T", what, err, err)
	}
	for _, say := range []string{s.b.ID().String(), "buffer 7", s.im.Path().String() + " link"} {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %q does not say %q", what, err, say)
		}
	}
}

// another exports one more buffer, and imports it.
func (s *buffers) another(t testing.TB, id uint32, opts ...vmmc.ExportOption) (*vmmc.Export, *vmmc.Import) {
	t.Helper()
	m, err := s.b.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	exp, err := s.b.Export(id, m.Bytes(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	im, err := s.a.Import(t.Context(), s.b.Node(), s.b.PID(), id)
	if err != nil {
		t.Fatal(err)
	}
	return exp, im
}

// eventually calls f until it fails, and gives the error.
func eventually(t testing.TB, f func() error) error {
	t.Helper()
	for end := time.Now().Add(bound); ; {
		if err := f(); err != nil {
			return err
		}
		if time.Now().After(end) {
			t.Fatal("it goes on without an error")
		}
	}
}

// within bounds what a test waits for.
func within(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(context.Background(), bound)
	t.Cleanup(stop)
	return ctx
}

func w32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
