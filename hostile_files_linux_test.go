package vmmc_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
	"github.com/vmmc-go/vmmc/node"
)

// hostileFiles are what a peer sends in the place of a descriptor that is awaited, or of none:
// closing one, or asking it something, takes as long as the peer likes. Each gives n of them, of
// which the sender keeps no copy that matters.
var hostileFiles = map[string]func(t testing.TB, n int) (fds []int, answer func()){
	"TCP sockets that linger": testutil.LingeringSockets,
	"TCP sockets with an error queue": func(t testing.TB, n int) (fds []int, answer func()) {
		for range n {
			fds = append(fds, withErrorQueue(t))
		}
		return fds, func() {}
	},
	"files whose file system does not answer": func(t testing.TB, n int) (fds []int, answer func()) {
		f := testutil.NewFUSE(t, false, testutil.FUSEFile{Name: "file", Data: make([]byte, 4096), Mode: 0o600})
		for range n {
			fds = append(fds, openFile(t, filepath.Join(f.Dir, "file")))
		}
		f.Hang("flush", "statfs", "getattr", "read", "write", "release")
		return fds, f.Answer
	},
	"unix sockets with a TCP socket in flight that lingers": func(t testing.TB, n int) (fds []int, answer func()) {
		sockets, let := testutil.LingeringSockets(t, n)
		for _, fd := range sockets {
			fds = append(fds, onItsWay(t, fd))
		}
		return fds, let
	},
	"unix sockets with a file in flight that is to be written": func(t testing.TB, n int) (fds []int, answer func()) {
		f := testutil.NewFUSE(t, true, testutil.FUSEFile{Name: "file", Data: make([]byte, 4096), Mode: 0o600})
		other := os.NewFile(uintptr(openFile(t, filepath.Join(f.Dir, "file"))), "file")
		t.Cleanup(func() { _ = other.Close() })
		for range n {
			fds = append(fds, onItsWay(t, openFile(t, filepath.Join(f.Dir, "file"))))
		}
		if _, err := other.WriteAt(make([]byte, 4096), 0); err != nil { // the kernel keeps it until the file is closed
			t.Fatal(err)
		}
		f.Hang("write", "flush", "release")
		return fds, f.Answer
	},
	"memory of huge pages": func(t testing.TB, n int) (fds []int, answer func()) {
		for range n {
			fds = append(fds, hugeMemory(t))
		}
		return fds, func() {}
	},
}

func openFile(t testing.TB, path string) int {
	t.Helper()
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// onItsWay returns a unix socket in which fd was sent and is not received.
func onItsWay(t testing.TB, fd int) int {
	t.Helper()
	a, b, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	var io unix.IO
	if n, ok, err := io.SendPassed(a, []byte{1}, fd); n != 1 || !ok || err != nil {
		t.Fatal(n, ok, err)
	}
	_, _ = unix.Close(a), unix.Close(fd)
	return b
}

// withErrorQueue is a connected TCP socket that tells of an error for ever, which no receive call
// gives.
func withErrorQueue(t testing.TB) int {
	t.Helper()
	fd := testutil.TCPSocket(t)
	const timestamping, sent, software = 37, 1 << 1, 1 << 4 // SO_TIMESTAMPING, of each packet that is sent
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, timestamping, sent|software); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Write(fd, []byte("anything")); err != nil {
		t.Fatal(err)
	}
	return fd
}

// hugeMemory is sealed memory of huge pages. It takes none of them: there need not be any.
func hugeMemory(t testing.TB) int {
	t.Helper()
	fd, err := unix.HugeMemfd("test", 2<<20)
	testutil.Require(t, err == nil, "the kernel has no memory of huge pages (hugetlbfs)")
	if err := unix.Seal(fd, false); err != nil {
		t.Fatal(err)
	}
	return fd
}

// In each step in which a peer may send descriptors it sends some that are slow to close, or to
// look at. It gains nothing: each call ends within its time, the other links go on, and all is
// closed in time.
func TestHostileFiles(t *testing.T) {
	type step struct {
		n      int // files that it takes
		attack func(t *testing.T, r *fileAttack)
	}
	inGrant := func(n int, g func(*nodeproto.Grant)) step {
		return step{n, func(t *testing.T, r *fileAttack) {
			y := newHostileExporter(t, r.w.socket, honestly)
			fds := r.files(n)
			y.gives(func() (nodeproto.Grant, []int) {
				grant := nodeproto.Grant{Handle: 1, Size: size, Rights: nodeproto.MayRead | nodeproto.MayWrite, Mapped: true, Memory: 2 << 20}
				if g(&grant); n > 1 {
					grant.Claims = 5
					grant.Targets = make([]int, n-3)
				}
				return grant, fds
			})
			r.refused(t, y)
		}}
	}
	inLink := func(at ...int) step {
		return step{len(at), func(t *testing.T, r *fileAttack) {
			fds := r.files(len(at))
			y := newHostileExporter(t, r.w.socket, func(process, back int) []int {
				link := []int{process, back, -1} // the socket is none of the exporter's
				for i, place := range at {
					_ = unix.Close(link[place])
					link[place] = fds[i]
				}
				return slices.DeleteFunc(link, func(fd int) bool { return fd < 0 })
			})
			r.refused(t, y)
		}}
	}
	steps := map[string]step{
		"the memory of a grant":       inGrant(1, func(*nodeproto.Grant) {}),
		"all that a grant brings":     inGrant(nodeproto.MaxDescriptors, func(*nodeproto.Grant) {}),
		"a grant that brings nothing": inGrant(1, func(g *nodeproto.Grant) { g.Mapped = false }),
		"the socket of a link":        inLink(2),
		"the pages of a link":         inLink(0, 1),
		"a whole link":                inLink(0, 1, 2),
		"a link that comes with its grant": {2, func(t *testing.T, r *fileAttack) {
			y := newHostileExporter(t, r.w.socket, honestly)
			fds := r.files(2)
			y.stall(t, nothing, func(process, back int) []int { closeAll([]int{process, back}); return fds })
			r.refused(t, y)
		}},
		"an answer to an import on a link": {2, func(t *testing.T, r *fileAttack) {
			y, link := r.linked(t)
			fds := r.files(2)
			imported := make(chan error, 1)
			go func() {
				_, err := r.p.Import(within(t), r.p.Node(), vmmc.PID(y.id.PID), 7)
				imported <- err
			}()
			var none unix.Passed
			h := link.listen(t, &none)
			h.SetGranted(h.Serial, &wire.Granted{Handle: 3, Size: size, Rights: uint8(nodeproto.MayRead | nodeproto.MayWrite), Mapped: true, Memory: 2 << 20})
			link.sendFiles(link.said.in(frame(h, nil)), fds)
			y.gives(func() (nodeproto.Grant, []int) { return nodeproto.Grant{}, nil }) // whatever it asks its node for then
			if err := first(t, imported, "the import"); err == nil {
				t.Error("it was imported")
			}
		}},
		"nothing that an importer awaits": {6, func(t *testing.T, r *fileAttack) {
			_, link := r.linked(t)
			for range 3 {
				link.sendFiles(link.said.in(frame(wire.Header{Type: wire.Ack}, nil)), r.files(2))
			}
		}},
		"the pages of an importer": {4, func(t *testing.T, r *fileAttack) {
			o := newOutlaw(t, r.w.socket, rand.Uint64(), nil)
			g := o.grab(t, r.w.b, 7)
			for _, m := range []struct {
				method nodeproto.Method
				about  any
			}{
				{nodeproto.Connect, nodeproto.ConnectRequest{Exporter: g.Exporter}},
				{nodeproto.Import, nodeproto.ImportRequest{Node: r.w.b.Node().String(), PID: uint32(r.w.b.PID()), ID: 7, Link: true}},
			} {
				fds := r.files(2)
				got, _ := o.Call(within(t), m.method, m.about, fds, nil)
				closeAll(got)
				r.drop(fds)
			}
		}},
		"nothing that an exporter awaits": {6, func(t *testing.T, r *fileAttack) {
			o := newOutlaw(t, r.w.socket, rand.Uint64(), nil)
			link := o.attack(t, o.grab(t, r.w.b, 7).Exporter)
			for range 3 {
				link.sendFiles(link.said.in(frame(wire.Header{Type: wire.Ping}, nil)), r.files(2))
			}
		}},
		"requests before joining": {50, func(t *testing.T, r *fileAttack) {
			for range 5 {
				c := r.unjoined(t)
				for _, m := range []nodeproto.Method{nodeproto.Export, nodeproto.Control, nodeproto.Register, nodeproto.Import, 12345} {
					fds := r.files(2)
					sendAway(fds, func() { _, _, _ = c.WriteMsgUnix(request(m, len(fds)), unix.Rights(fds), nil) })
				}
				_ = c.Close()
			}
		}},
		"what is no request": {136, func(t *testing.T, r *fileAttack) {
			for _, n := range []int{1, 2, 33, 100} {
				c := r.unjoined(t)
				fds := r.files(n)
				sendAway(fds, func() { _, _, _ = c.WriteMsgUnix([]byte("garbage"), unix.Rights(fds), nil) })
				_ = c.Close()
			}
		}},
	}
	for i, name := range slices.Sorted(maps.Keys(steps)) {
		step := steps[name]
		t.Run(name, func(t *testing.T) {
			for j, name := range slices.Sorted(maps.Keys(hostileFiles)) {
				if testutil.LeavesOut(i, j, len(hostileFiles)/2) { // with the race detector, two kinds
					continue
				}
				files := hostileFiles[name]
				t.Run(name, func(t *testing.T) {
					n, err := node.Start()
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(n.Close)
					r := &fileAttack{w: victimAt(t, n.Socket())}
					r.p = join(t, n.Socket())
					fds, answer := files(t, step.n)
					defer answer()
					r.left = fds // all at once: no program can be started while some of these are open
					threads := countThreads(t)
					step.attack(t, r)
					r.w.goesOn(t)
					testutil.Within(t, "a collection", 0, runtime.GC)
					im, err := r.p.Import(within(t), r.w.b.Node(), r.w.b.PID(), 6)
					if err != nil {
						t.Fatalf("import from an honest process: %v", err)
					}
					if err := im.Send(within(t), word, 0); err != nil {
						t.Error(err)
					}
					calls := contextCalls(t, &buffers{a: r.p, im: im}, redirectable(t, r.p, 61, memory(t, r.p)), r.w.socket)
					allEnd(t, slices.DeleteFunc(calls, func(c contextCall) bool {
						return c.name == "Process.Spawn" // no program can be started while some of the files are open
					}))
					if more := countThreads(t) - threads; more > 100 { // the sender's own wait, too
						t.Errorf("it costs %d threads", more)
					}
					closes(t, "Close of an import", im.Close)
					closes(t, "Close of the importer", r.p.Close)
					closes(t, "Close of the exporter", r.w.b.Close)
					closes(t, "Close of the node", func() error { n.Close(); return nil })
				})
			}
		})
	}
}

func countThreads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

// fileAttack is an attack with descriptors on a victim, and on p, which imports.
type fileAttack struct {
	w    *victim
	p    *vmmc.Process
	left []int // files that were not sent yet
}

func (r *fileAttack) files(n int) []int {
	fds := r.left[:n]
	r.left = r.left[n:]
	return fds
}

// unjoined is a connection to the node that has asked for something and was answered. Before that
// it takes no descriptors.
func (r *fileAttack) unjoined(t *testing.T) *net.UnixConn {
	t.Helper()
	c, err := nodeproto.Dial(t.Context(), r.w.socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(request(nodeproto.Control, 0)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, nodeproto.MaxPacket)); n == 0 || err != nil {
		t.Fatalf("a request before joining is not answered: %d bytes, %v", n, err)
	}
	return c
}

// drop closes what the sender has sent. It may wait for that itself.
func (r *fileAttack) drop(fds []int) {
	go closeAll(fds)
}

// refused fails the test unless an import from y fails within its time.
func (r *fileAttack) refused(t *testing.T, y *hostileExporter) {
	t.Helper()
	// What is refused is so at once, however long the context would let it wait; a link's answer to
	// an import is waited for before the node is asked.
	testutil.Within(t, "the import", timeout.Answer, func() {
		_, err := r.p.Import(within(t), r.p.Node(), vmmc.PID(y.id.PID), 7)
		if !errors.Is(err, vmmc.ErrProtocol) {
			t.Errorf("import: %v, want %v", err, vmmc.ErrProtocol)
		}
	})
}

// linked is an exporter that p has imported from, and takes imports on the link.
func (r *fileAttack) linked(t *testing.T) (*hostileExporter, *hostileLink) {
	t.Helper()
	y := newHostileExporter(t, r.w.socket, honestly)
	y.direct.Store(true)
	if _, err := r.p.Import(within(t), r.p.Node(), vmmc.PID(y.id.PID), 7); err != nil {
		t.Fatal(err)
	}
	return y, <-y.accepted
}

// sendFiles sends files with b, if the kernel lets it.
func (r *hostileLink) sendFiles(b []byte, fds []int) {
	sendAway(fds, func() { _ = unix.SendRights(r.fd, b, fds) })
}

// sendAway sends files and closes the sender's own at once: the receiver closes the last ones of
// those that it takes. Of others the sender does, and waits itself.
func sendAway(fds []int, send func()) {
	sent := make(chan struct{})
	go func() {
		send()
		close(sent)
		closeAll(fds)
	}()
	<-sent
}

// request is the packet of a request with n descriptors, by a client that waits for no answer.
func request(m nodeproto.Method, n int) []byte {
	b := append([]byte("VML1\x01"), byte(n))
	b = binary.LittleEndian.AppendUint16(b, uint16(m))
	return append(binary.LittleEndian.AppendUint64(b, uint64(m)), "{}"...)
}

// The daemon makes the sockets of a link, so an exporter has no descriptor of its importer's. It
// cannot send descriptors there that are not awaited: neither before the importer has its end nor
// afterwards, whatever it sets on its own.
func TestDescriptorsThatAreNotAwaited(t *testing.T) {
	a, b, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	has := unix.RefuseRights(a)
	closeAll([]int{a, b})
	testutil.Require(t, has, "the kernel has no SO_PASSRIGHTS for unix sockets: before Linux 6.16")
	refuses := func(t *testing.T, socket int) {
		t.Helper()
		unix.AwaitRights(socket) // of what it receives itself
		for _, fd := range []int{openFile(t, os.DevNull), emptyPage(t, true)} {
			if err := unix.SendRights(socket, []byte{0}, []int{fd}); !errors.Is(err, syscall.EPERM) {
				t.Errorf("descriptors are sent where none are awaited: %v", err)
			}
			_ = unix.Close(fd)
		}
	}
	for name, have := range map[string]func(y *hostileExporter, check func(socket int)){
		"with a grant": func(y *hostileExporter, check func(socket int)) {
			y.stall(t, nothing, func(process, back int) []int { check((<-y.accepted).fd); return honestly(process, back) })
		},
		"by itself": func(y *hostileExporter, check func(socket int)) {
			y.accepts(func(process, back int) []int { check((<-y.accepted).fd); return honestly(process, back) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVictim(t)
			y := newHostileExporter(t, w.socket, honestly)
			sockets := make(chan int, 1)
			have(y, func(s int) { refuses(t, s); sockets <- s })
			im := y.imported(t, join(t, w.socket))
			refuses(t, <-sockets)
			if err := im.Send(within(t), word, 0); err != nil {
				t.Errorf("a link on which descriptors were refused: %v", err)
			}
		})
	}
}
