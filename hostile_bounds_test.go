package vmmc_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/wire"
	"github.com/vmmc-go/vmmc/manual"
	"github.com/vmmc-go/vmmc/node"
)

// short is the time of calls that wait for a peer.
const short = 50 * time.Millisecond

// allEnd makes calls at the same time, each with a context of its own, and fails the test unless
// each ends with its context.
func allEnd(t *testing.T, calls []contextCall) {
	t.Helper()
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() {
			testutil.Within(t, c.name, short, func() {
				ctx, stop := context.WithTimeout(t.Context(), short)
				defer stop()
				_ = c.do(ctx)
			})
			testutil.Within(t, c.name+" that is cancelled", 0, func() {
				ctx, stop := context.WithCancel(t.Context())
				defer time.AfterFunc(short, stop).Stop()
				_ = c.do(ctx)
			})
		})
	}
	all.Wait()
}

// closes fails the test unless a Close ends by itself. No peer is waited for, so its time is none.
func closes(t *testing.T, what string, f func() error) {
	t.Helper()
	testutil.Within(t, what, 0, func() {
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
}

// redirectable is an export of p into which an importer may be redirected.
func redirectable(t *testing.T, p *vmmc.Process, id uint32, target *vmmc.Memory) *vmmc.Export {
	t.Helper()
	e, err := p.Export(id, alloc(t, p, size), vmmc.Redirectable(target))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func memory(t *testing.T, p *vmmc.Process) *vmmc.Memory {
	t.Helper()
	m, err := p.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An exporter says nothing any more, at one step of its protocol after another: each call of its
// importer ends with its context, and closing waits for no exporter.
func TestCallsEndBesideASilentExporter(t *testing.T) {
	silence := func(t *testing.T) <-chan struct{} {
		over := make(chan struct{})
		t.Cleanup(func() { close(over) })
		return over
	}
	for name, step := range map[string]func(t *testing.T, y *hostileExporter, p *vmmc.Process) *vmmc.Import{
		"asked for a grant": func(t *testing.T, y *hostileExporter, _ *vmmc.Process) *vmmc.Import {
			over := silence(t)
			y.gives(func() (nodeproto.Grant, []int) { <-over; return nodeproto.Grant{}, nil })
			return nil
		},
		"asked for a link": func(t *testing.T, y *hostileExporter, _ *vmmc.Process) *vmmc.Import {
			over := silence(t)
			y.accepts(func(process, back int) []int { <-over; closeAll([]int{process, back}); return nil })
			return nil
		},
		"asked for a link, and given the grant back": func(t *testing.T, y *hostileExporter, _ *vmmc.Process) *vmmc.Import {
			over := silence(t)
			wait := func() { <-over }
			y.others.Store(&wait)
			y.accepts(func(process, back int) []int { <-over; closeAll([]int{process, back}); return nil })
			return nil
		},
		"given a grant back that is none": func(t *testing.T, y *hostileExporter, _ *vmmc.Process) *vmmc.Import {
			over := silence(t)
			wait := func() { <-over }
			y.others.Store(&wait)
			y.stall(t, nothing, func(process, back int) []int { return []int{back, process} })
			return nil
		},
		"on a link": func(t *testing.T, y *hostileExporter, p *vmmc.Process) *vmmc.Import {
			return y.imported(t, p)
		},
		"on a link that takes imports": func(t *testing.T, y *hostileExporter, p *vmmc.Process) *vmmc.Import {
			y.direct.Store(true)
			return y.imported(t, p)
		},
		"on a link that takes imports, and asked by the node": func(t *testing.T, y *hostileExporter, p *vmmc.Process) *vmmc.Import {
			y.direct.Store(true)
			im := y.imported(t, p)
			over := silence(t)
			y.gives(func() (nodeproto.Grant, []int) { <-over; return nodeproto.Grant{}, nil })
			return im
		},
		"in a frame": func(t *testing.T, y *hostileExporter, p *vmmc.Process) *vmmc.Import {
			im := y.imported(t, p)
			if err := (<-y.accepted).say(t, frame(wire.Header{Type: wire.Ack}, nil)[:17]); err != nil {
				t.Fatal(err)
			}
			return im
		},
		"with the socket full": func(t *testing.T, y *hostileExporter, p *vmmc.Process) *vmmc.Import {
			im := y.imported(t, p)
			ctx, stop := context.WithTimeout(t.Context(), short)
			defer stop()
			_ = eventually(t, func() error { return im.Send(ctx, make([]byte, 2048), 64) })
			return im
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVictim(t)
			y := newHostileExporter(t, w.socket, honestly)
			p := join(t, w.socket)
			im := step(t, y, p)
			pid := vmmc.PID(y.id.PID)
			calls := []contextCall{
				{"an import", func(ctx context.Context) error { _, err := p.Import(ctx, p.Node(), pid, 7); return err }},
				{"a wait for an import", func(ctx context.Context) error {
					_, err := manual.ImportAsync(t.Context(), p, p.Node(), pid, 7).Wait(ctx)
					return err
				}},
			}
			if im != nil {
				calls = append(calls, contextCalls(t, &buffers{a: p, im: im}, redirectable(t, p, 61, memory(t, p)), w.socket)...)
			}
			allEnd(t, calls)
			pending := manual.ImportAsync(t.Context(), p, p.Node(), pid, 7)
			testutil.Within(t, "Cancel of an import", 0, pending.Cancel)
			w.goesOn(t)
			if im != nil {
				closes(t, "Close of the import", im.Close)
			}
			left := manual.ImportAsync(context.Background(), p, p.Node(), pid, 7)
			closes(t, "Close of the importer", p.Close)
			testutil.Within(t, "an import by a closed process", 0, func() { _, _ = left.Wait(context.Background()) })
		})
	}
}

// An importer says nothing any more: the calls of the exporter end with their contexts, and closing
// waits for no importer.
func TestCallsEndBesideASilentImporter(t *testing.T) {
	for name, silent := range map[string]func(t *testing.T, o *outlaw, exporter nodeproto.ProcessID, claim shmlayout.Claim, handle uint32){
		"before it has a link": func(*testing.T, *outlaw, nodeproto.ProcessID, shmlayout.Claim, uint32) {},
		"on a link": func(t *testing.T, o *outlaw, exporter nodeproto.ProcessID, _ shmlayout.Claim, _ uint32) {
			o.attack(t, exporter)
		},
		"in a message": func(t *testing.T, o *outlaw, exporter nodeproto.ProcessID, _ shmlayout.Claim, handle uint32) {
			b := frame(wire.Header{Type: wire.Data, Seq: 1, Size: size, Chunk: 4096}, make([]byte, 100))
			if err := o.attack(t, exporter).say(t, addressed(b, handle)); err != nil {
				t.Fatal(err)
			}
		},
		"in a redirected message": func(t *testing.T, o *outlaw, exporter nodeproto.ProcessID, claim shmlayout.Claim, _ uint32) {
			o.attack(t, exporter)
			claim.Claimed().Store(1)
		},
		"with answers that it does not read": func(t *testing.T, o *outlaw, exporter nodeproto.ProcessID, _ shmlayout.Claim, handle uint32) {
			r := o.attack(t, exporter)
			b := r.said.in(addressed(frames(400, func(i int) wire.Header {
				return wire.Header{Type: wire.Get, Seq: uint64(i) + 1, Size: size}
			}), handle))
			_, _ = r.io.Send(r.fd, b, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVictim(t)
			target := memory(t, w.b)
			e := redirectable(t, w.b, 10, target)
			o := newOutlaw(t, w.socket, rand.Uint64(), nil)
			r := nodeproto.ImportRequest{Node: w.b.Node().String(), PID: uint32(w.b.PID()), ID: 10}
			g, fds, err := nodeproto.Ask[nodeproto.Grant](t.Context(), o.Conn, nodeproto.Import, r, nil)
			if err != nil || len(fds) != 4 { // the memory, two pages, and the target
				t.Fatal(fds, err)
			}
			claim, err := shmlayout.OpenClaim(fds[2])
			closeAll([]int{fds[0], fds[1], fds[3]})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(claim.Retire)
			if err := e.PostRedir(target.Bytes(), 0); err != nil {
				t.Fatal(err)
			}
			silent(t, o, g.Exporter, claim, g.Handle)
			own, err := w.b.Import(t.Context(), w.b.Node(), w.b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			allEnd(t, contextCalls(t, &buffers{a: w.b, im: own}, e, w.socket))
			w.goesOn(t)
			closes(t, "Close of the export", e.Close)
			closes(t, "Close of the exporter", w.b.Close)
		})
	}
}

// The daemon does not answer: calls end with their contexts, however many there are, and so does
// closing.
func TestCallsEndBesideASilentDaemon(t *testing.T) {
	over := make(chan struct{})
	w := newFakeDaemon(t)
	w.answers(func(nodeproto.Method) any { <-over; return nodeproto.Empty{} })
	defer close(over)
	var calls []contextCall
	for range 50 {
		calls = append(calls,
			contextCall{"Import", func(ctx context.Context) error { _, err := w.p.Import(ctx, w.p.Node(), 2, 7); return err }},
			contextCall{"Spawn", func(ctx context.Context) error { _, err := w.p.Spawn(ctx, w.p.Node(), "/bin/true"); return err }})
	}
	allEnd(t, calls)
	closes(t, "Close", w.p.Close)
}

// The end of an export is announced to the daemon, which is waited for as long as the documentation
// says.
func TestExportEndsBesideASilentDaemon(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	w := newFakeDaemon(t)
	e, err := w.p.Export(8, alloc(t, w.p, size))
	if err != nil {
		t.Fatal(err)
	}
	w.answers(func(nodeproto.Method) any { <-over; return nodeproto.Empty{} })
	defer close(over)
	testutil.Within(t, "Close of the export", timeout.Control, func() {
		if err := e.Close(); !errors.Is(err, vmmc.ErrTimeout) {
			t.Errorf("Close of the export: %v", err)
		}
	})
}

// No process answers at the address where an importer is to dial: an import that is given up dials
// no more.
func TestImportEndsBesideASilentNode(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	exporter := nodeproto.ProcessID{Node: "b", PID: 2, Incarnation: 6}
	for name, encrypted := range map[string]bool{"in clear": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			w := newFakeDaemon(t)
			w.answers(func(m nodeproto.Method) any {
				switch m {
				case nodeproto.Import:
					return nodeproto.Grant{Exporter: exporter, Handle: 1, Size: size, Rights: nodeproto.MayRead}
				case nodeproto.Connect:
					s := nodeproto.Secrecy{Encrypt: encrypted, Fingerprint: make([]byte, encrypt.PrintSize)}
					return nodeproto.Connected{Link: 1, Key: make([]byte, wire.KeySize), Address: l.Addr().String(), Epoch: 1, Secrecy: s}
				}
				return nodeproto.Empty{}
			})
			var node vmmc.NodeID
			if err := node.UnmarshalText([]byte(exporter.Node)); err != nil {
				t.Fatal(err)
			}
			allEnd(t, []contextCall{{"Import", func(ctx context.Context) error { _, err := w.p.Import(ctx, node, 2, 7); return err }}})
			left := manual.ImportAsync(context.Background(), w.p, node, 2, 7)
			closes(t, "Close", w.p.Close)
			var err error
			testutil.Within(t, "an import by a closed process", 0, func() { _, err = left.Wait(context.Background()) })
			if !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("an import by a closed process: %v", err)
			}
		})
	}
}

// A node that ends waits for none of its processes, nor for what one of them does not answer.
func TestNodeEndsBesideASilentProcess(t *testing.T) {
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	w := victimAt(t, n.Socket())
	asked, over := make(chan struct{}, 8), make(chan struct{})
	y := newHostileExporter(t, w.socket, honestly)
	y.gives(func() (nodeproto.Grant, []int) { asked <- struct{}{}; <-over; return nodeproto.Grant{}, nil })
	p := join(t, w.socket)
	pending := manual.ImportAsync(t.Context(), p, p.Node(), vmmc.PID(y.id.PID), 7)
	<-asked
	closes(t, "Close of the node", func() error { n.Close(); return nil })
	close(over)
	pending.Cancel()
}
