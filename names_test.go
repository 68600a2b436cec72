package vmmc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

func publish(t *testing.T, p *vmmc.Process, name string, opts ...vmmc.ExportOption) *vmmc.Export {
	t.Helper()
	e, err := p.Publish(within(t), name, alloc(t, p, 64), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func importName(t *testing.T, p *vmmc.Process, name string, opts ...vmmc.FindOption) *vmmc.Import {
	t.Helper()
	im, err := p.ImportName(within(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// reaches fails the test unless what is sent on im arrives in e.
func reaches(t *testing.T, im *vmmc.Import, e *vmmc.Export) {
	t.Helper()
	ctx := within(t)
	text := []byte(fmt.Sprintf("%08x", time.Now().Nanosecond()))
	if err := errors.Join(im.Send(ctx, text, 0), im.Fence(ctx)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(e.Bytes()[:len(text)], text) {
		t.Errorf("the export has %q, want %q", e.Bytes()[:len(text)], text)
	}
}

// listed lists names without the processes.
func listed(t *testing.T, p *vmmc.Process, pattern string) (all []string) {
	t.Helper()
	for n, err := range p.Names(within(t), pattern) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n.Name)
	}
	return all
}

func TestPublish(t *testing.T) {
	for _, way := range []string{"mapped", "stream"} {
		t.Run(way, func(t *testing.T) {
			near, _ := nodes(t, way)
			a, b := join(t, near), join(t, near)
			opts := []vmmc.ExportOption{vmmc.WithLabel([]byte("l"))}
			if way == "stream" {
				opts = append(opts, vmmc.Unmapped())
			}
			e := publish(t, b, "queue", opts...)
			for _, name := range []string{"queue", strings.ToUpper(b.Node().String()) + "/queue"} {
				for range 2 { // without a link, and with one
					im := importName(t, a, name)
					reaches(t, im, e)
					if im.Name() != name || im.ID() != e.ID() || im.Exporter() != b.ID() || im.Size() != 64 ||
						im.Path().String() != way || e.ID() < 0xE0000000 || string(im.Label()) != "l" {
						t.Errorf("import %q of buffer %#x of %v: %d bytes, %v, label %q", im.Name(), im.ID(), im.Exporter(), im.Size(), im.Path(), im.Label())
					}
				}
			}
			reaches(t, importName(t, b, "queue"), e)
			if by := must(t)(a.Import(within(t), b.Node(), b.PID(), e.ID())); by.Name() != "" {
				t.Errorf("an import by id has the name %q", by.Name())
			}

			// A cluster of one node knows its names alone; they are others than the node's.
			c := publish(t, b, "/queue")
			reaches(t, importName(t, a, "/queue"), c)
			reaches(t, importName(t, a, "queue"), e)

			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if all := listed(t, a, "*"); len(all) > 0 {
				t.Errorf("names of an export that is closed: %q", all)
			}
			reaches(t, importName(t, a, "/queue"), c)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			until(t, "the names of a process that left are gone", func() bool { return len(listed(t, a, "/*")) == 0 })
		})
	}
}

func must(t *testing.T) func(*vmmc.Import, error) *vmmc.Import {
	return func(im *vmmc.Import, err error) *vmmc.Import {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return im
	}
}

// A name has one owner, whom the error names, unless all share it.
func TestNameTaken(t *testing.T) {
	socket, _ := nodes(t, "mapped")
	a, b := join(t, socket), join(t, socket)
	e := publish(t, a, "x")
	ctx := within(t)
	if err := e.PublishAs(ctx, "x"); err != nil {
		t.Errorf("published again: %v", err)
	}
	own, err := a.Export(1, alloc(t, a, 64))
	if err != nil {
		t.Fatal(err)
	}
	mem := alloc(t, b, 64)
	_, err = b.Publish(ctx, "x", mem)
	_, with := b.Export(2, mem, vmmc.WithName("free"), vmmc.WithName("x"))
	_, set := b.Export(3, mem, vmmc.WithName("x", vmmc.InSet()))
	for what, err := range map[string]error{
		"Publish": err, "WithName": with, "InSet": set,
		"another export of the owner": own.PublishAs(ctx, "x"), "the owner, InSet": e.PublishAs(ctx, "x", vmmc.InSet()),
	} {
		var f *vmmc.Error
		if !errors.As(err, &f) || f.Code != vmmc.ErrNameTaken || f.Peer != a.ID().String() ||
			!strings.Contains(err.Error(), a.ID().String()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all := listed(t, a, "*"); len(all) != 1 {
		t.Errorf("there are %q", all)
	}
	if again, err := b.Export(2, mem); err != nil { // nothing stayed exported
		t.Error(err)
	} else if err := again.PublishAs(ctx, "free"); err != nil {
		t.Error(err)
	}
	if err := e.Unpublish(ctx, "y"); err != nil {
		t.Errorf("a name that is not there: %v", err)
	}
	im := importName(t, b, "x")
	if err := e.Unpublish(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	reaches(t, im, e)
	if err := own.PublishAs(ctx, "x"); err != nil {
		t.Error(err)
	}
	reaches(t, importName(t, b, "x"), own)
	if err := errors.Join(own.Close(), own.Close()); err != nil {
		t.Fatal(err)
	}
	if err := own.PublishAs(ctx, "x"); !errors.Is(err, vmmc.ErrRevoked) {
		t.Errorf("a name of a closed export: %v", err)
	}
}

// Of several exports under a name each has its turn.
func TestNameInSet(t *testing.T) {
	socket, _ := nodes(t, "mapped")
	a := join(t, socket)
	want := map[vmmc.ProcessID]int{}
	var first *vmmc.Process
	for range 3 {
		b := join(t, socket)
		if first == nil {
			first = b
		}
		if _, err := b.Export(7, alloc(t, b, 64), vmmc.WithName("x", vmmc.InSet())); err != nil {
			t.Fatal(err)
		}
		want[b.ID()] = 2
	}
	got := map[vmmc.ProcessID]int{}
	for range 6 {
		got[importName(t, a, "x").Exporter()]++
	}
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
		t.Error(diff)
	}
	// Processes that import once have turns, too, whatever else they look up.
	publish(t, a, "y")
	clear(got)
	for range 6 {
		once := join(t, socket)
		importName(t, once, "y")
		got[importName(t, once, "x").Exporter()]++
	}
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
		t.Error(diff)
	}
	for n, err := range a.Names(within(t), "x") {
		if err != nil || !n.Set || n.Name != "x" || n.Buffer != 7 || n.Size != 64 || want[n.Process] == 0 {
			t.Errorf("%+v, %v", n, err)
		}
		delete(want, n.Process)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if im := importName(t, a, "x"); im.Exporter() == first.ID() {
			t.Error("a process that has left is found")
		}
	}
}

// restartable is a process whose daemon answers as the test has it. restart ends that daemon and
// returns when the process has dialled the next one.
func restartable(t *testing.T, answer nodeproto.Handler, opts ...vmmc.Option) (p *vmmc.Process, restart func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	daemons := make(chan *nodeproto.Conn)
	go func() {
		defer close(daemons)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			daemons <- nodeproto.NewConn(c, answer)
		}
	}()
	opened := make(chan error, 1)
	go func() {
		var err error
		p, err = vmmc.Open(t.Context(), append(opts, vmmc.WithSocket(path))...)
		opened <- err
	}()
	d := <-daemons
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		d.Close()
		<-d.Done()
		_ = l.Close()
		for range daemons {
			t.Error("one more connection")
		}
	})
	return p, func() {
		d.Close()
		<-d.Done()
		d = <-daemons
	}
}

// A process whose names the next daemon cannot restore is told which, and why, before it is told
// that there is a daemon. It announces them no more.
func TestNameLost(t *testing.T) {
	self, other := nodeproto.ProcessID{Node: "a", PID: 1, Incarnation: 5}, nodeproto.ProcessID{Node: "a", PID: 2}
	announced := make(chan string, 9)
	answer := func(_ context.Context, m nodeproto.Method, body []byte, fds []int) (any, []int, error) {
		closeAll(fds)
		switch m {
		case nodeproto.Register, nodeproto.Rejoin:
			return nodeproto.Welcome{Process: self, Pass: "p", Names: true}, nil, nil
		case nodeproto.Again:
			r, err := nodeproto.Decode[nodeproto.AgainRequest](body)
			if err != nil {
				return nil, nil, err
			}
			a := nodeproto.AgainAnswer{Lost: []nodeproto.LostName{{At: -1}, {At: len(r.Names)}}}
			for i, n := range r.Names {
				announced <- n.Name
				switch n.Name {
				case "taken":
					a.Lost = append(a.Lost, nodeproto.LostName{At: i, Taken: &other})
				case "cluster":
					a.Lost = append(a.Lost, nodeproto.LostName{At: i, Code: code.NotImplemented, Why: "several nodes"})
				}
			}
			return a, nil, nil
		}
		return nodeproto.Empty{}, nil, nil
	}
	events := make(chan vmmc.Event, 9)
	p, again := restartable(t, answer, vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
	e, err := p.Export(7, make([]byte, 64), vmmc.WithName("taken"), vmmc.WithName("kept"), vmmc.WithName("/cluster"))
	if err != nil {
		t.Fatal(err)
	}
	restart := func(names ...string) {
		t.Helper()
		again()
		for _, want := range names {
			if got := <-announced; got != want {
				t.Errorf("%q is announced, want %q", got, want)
			}
		}
		awaitEvent(t, events, vmmc.NodeGone)
	}
	restart("taken", "kept", "cluster")
	lost := awaitEvent(t, events, vmmc.NameLost)
	if lost.Name != "taken" || lost.Export != e || lost.Peer.PID != 2 || !errors.Is(lost.Err, vmmc.ErrNameTaken) ||
		!strings.Contains(lost.Err.Error(), lost.Peer.String()) {
		t.Errorf("%+v", lost)
	}
	lost = awaitEvent(t, events, vmmc.NameLost)
	if lost.Name != "/cluster" || lost.Export != e || lost.Peer != (vmmc.ProcessID{}) || !errors.Is(lost.Err, vmmc.ErrNotImplemented) {
		t.Errorf("%+v", lost)
	}
	awaitEvent(t, events, vmmc.NodeBack)
	restart("kept")
	awaitEvent(t, events, vmmc.NodeBack)
	if err := e.PublishAs(within(t), "taken"); err != nil {
		t.Error(err)
	}
	restart("kept", "taken")
	awaitEvent(t, events, vmmc.NameLost)
	awaitEvent(t, events, vmmc.NodeBack)
	if len(events)+len(announced) > 0 {
		t.Errorf("%d more events, %d more names", len(events), len(announced))
	}
}

// Calls that wait while a daemon comes that is older than names say so.
func TestDaemonBecomesOlderThanNames(t *testing.T) {
	asked := make(chan struct{}, 9)
	var older atomic.Bool
	p, restart := restartable(t, func(ctx context.Context, m nodeproto.Method, _ []byte, fds []int) (any, []int, error) {
		closeAll(fds)
		switch m {
		case nodeproto.Register, nodeproto.Rejoin:
			return nodeproto.Welcome{Process: nodeproto.ProcessID{Node: "a", PID: 1, Incarnation: 5}, Pass: "p", Names: !older.Load()}, nil, nil
		case nodeproto.Import, nodeproto.Publish, nodeproto.ListNames:
			if older.Load() { // to it that is an import from node "", or unknown
				return nil, nil, code.New(code.BadArg, "request %d", m)
			}
			asked <- struct{}{}
			<-ctx.Done()
		}
		return nodeproto.Empty{}, nil, ctx.Err()
	})
	e, err := p.Export(1, make([]byte, 4))
	if err != nil {
		t.Fatal(err)
	}
	calls := []func() error{
		func() error { _, err := p.ImportName(within(t), "x"); return err },
		func() error { return e.PublishAs(within(t), "x") },
		func() (err error) {
			for _, err = range p.Names(within(t), "*") {
			}
			return err
		},
	}
	failed := make(chan error)
	for _, call := range calls {
		go func() { failed <- call() }()
	}
	for range calls {
		<-asked
	}
	older.Store(true)
	restart()
	for range calls {
		if err := <-failed; !errors.Is(err, vmmc.ErrNotImplemented) {
			t.Error(err)
		}
	}
}

// A member of a set that does not answer its node makes no import fail: the next one has its turn.
func TestSilentMemberOfSet(t *testing.T) {
	for _, way := range []string{"mapped", "between nodes"} {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b := join(t, near), join(t, far)
			asked := make(chan struct{}, 64)
			o := newOutlaw(t, far, 1, func(_ context.Context, m nodeproto.Method, _ []byte, fds []int) (any, []int, error) {
				closeAll(fds)
				if m == nodeproto.Offer {
					asked <- struct{}{}
				}
				return nil, nil, code.New(code.Timeout, "as if stopped")
			})
			_, _, err := nodeproto.Ask[nodeproto.Empty](t.Context(), o.Conn, nodeproto.Export, nodeproto.ExportRequest{ID: 1, Serial: 1, Size: 64, Rights: 3}, nil)
			if err == nil {
				_, _, err = nodeproto.Ask[nodeproto.Published](t.Context(), o.Conn, nodeproto.Publish, nodeproto.PublishRequest{Name: "x", Set: true, ID: 1, Serial: 1}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			e, err := b.Export(7, alloc(t, b, 64), vmmc.WithName("x", vmmc.InSet()))
			if err != nil {
				t.Fatal(err)
			}
			name := b.Node().String() + "/x"
			for range 4 {
				reaches(t, importName(t, a, name), e)
			}
			if len(asked) == 0 {
				t.Error("the silent one had no turn")
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(within(t))
			defer stop()
			for len(asked) > 0 {
				<-asked
			}
			go func() {
				for range 3 {
					<-asked
				}
				stop()
			}()
			if _, err := a.ImportName(ctx, name); !errors.Is(err, vmmc.ErrCanceled) {
				t.Errorf("a set without another member: %v", err)
			}
		})
	}
}

// An import waits for its name, and finds the export that has it next.
func TestImportWaitsForName(t *testing.T) {
	socket, _ := nodes(t, "mapped")
	defer vmmc.SetImportWaits(time.Millisecond)()
	lines := &logLines{came: make(chan struct{}, 1)}
	a := join(t, socket, vmmc.WithLogger(slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	b := join(t, socket)
	imports := make(chan *vmmc.Import)
	wait := func() {
		logged := strings.Count(lines.String(), "an import waits for a name")
		go func() {
			im, err := a.ImportName(within(t), "late")
			if err != nil {
				t.Error(err)
			}
			imports <- im
		}()
		for strings.Count(lines.String(), "an import waits for a name") == logged {
			select {
			case <-lines.came:
			case <-within(t).Done():
				t.Fatal("a wait is not logged")
			}
		}
	}
	wait()
	e := publish(t, b, "late")
	reaches(t, <-imports, e)
	if text := lines.String(); !strings.Contains(text, "an import waits for a name") || !strings.Contains(text, "name=late") {
		t.Errorf("the log: %s", text)
	}
	for range 3 {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		wait()
		e = publish(t, b, "late")
		reaches(t, <-imports, e)
	}
	// More than may wait at a time: each that was cancelled waits no longer.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				ctx, stop := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, stop)
				if _, err := a.ImportName(ctx, "never"); !errors.Is(err, vmmc.ErrCanceled) {
					t.Errorf("a cancelled import: %v", err)
				}
				stop()
			}
		})
	}
	all.Wait()
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if _, err := a.ImportName(ctx, "never"); !errors.Is(err, vmmc.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an import that is late: %v", err)
	}
	go func() {
		_, err := b.ImportName(context.Background(), "never")
		if !errors.Is(err, vmmc.ErrClosed) {
			t.Errorf("an import of a process that is closed: %v", err)
		}
		close(imports)
	}()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	<-imports
}

// Another export that has the id by now is not taken for the one that had the name.
func TestNameOfAnotherExport(t *testing.T) {
	for _, way := range []string{"mapped", "stream"} {
		for _, linked := range []bool{false, true} {
			t.Run(fmt.Sprint(way, linked), func(t *testing.T) {
				socket, _ := nodes(t, way)
				a, b := join(t, socket), join(t, socket)
				var opts []vmmc.ExportOption
				if way == "stream" {
					opts = append(opts, vmmc.Unmapped())
				}
				if linked {
					if _, err := b.Export(1, alloc(t, b, 64)); err != nil {
						t.Fatal(err)
					}
					must(t)(a.Import(within(t), b.Node(), b.PID(), 1))
				}
				export := func(more ...vmmc.ExportOption) *vmmc.Export {
					e, err := b.Export(7, alloc(t, b, 64), append(more, opts...)...)
					if err != nil {
						t.Error(err)
					}
					return e
				}
				e := export(vmmc.WithName("x"))
				var right *vmmc.Export
				steps := 0
				defer vmmc.SetNameFound(func() {
					if steps++; steps > 1 {
						return
					}
					if err := e.Close(); err != nil {
						t.Error(err)
					}
					export() // of the same id; it has no name
					right = publish(t, b, "x", opts...)
				})()
				im := importName(t, a, "x")
				if steps < 2 || im.ID() != right.ID() {
					t.Errorf("buffer %d was imported in step %d, want %d", im.ID(), steps, right.ID())
				}
				reaches(t, im, right)
			})
		}
	}
}

// Rejoin finds the process that has the name now.
func TestRejoinByName(t *testing.T) {
	socket, _ := nodes(t, "mapped")
	a, b, c := join(t, socket), join(t, socket), join(t, socket)
	publish(t, b, "x")
	im := importName(t, a, "x")
	if again, err := im.Rejoin(within(t)); again != im || err != nil {
		t.Errorf("an import that lives: %v, %v", again, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the import has ended", func() bool { return im.Err() != nil })
	rejoined := make(chan *vmmc.Import)
	go func() {
		again, err := im.Rejoin(within(t))
		if err != nil {
			t.Error(err)
		}
		rejoined <- again
	}()
	e := publish(t, c, "x")
	again := <-rejoined
	reaches(t, again, e)
	if again.Name() != "x" || again.Exporter() != c.ID() {
		t.Errorf("%q of %v", again.Name(), again.Exporter())
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(within(t), "x", alloc(t, c, 128)); err != nil {
		t.Fatal(err)
	}
	until(t, "the import has ended", func() bool { return again.Err() != nil })
	if _, err := again.Rejoin(within(t)); !errors.Is(err, vmmc.ErrStaleImport) {
		t.Errorf("another length: %v", err)
	}
}

// Names of another session are found where it says whose they are and the export lets the importer
// in, and otherwise the same error comes whether they are there or not.
func TestNamesOfSessions(t *testing.T) {
	socket, _ := nodes(t, "mapped")
	a, b := join(t, socket, vmmc.WithSession("a")), join(t, socket, vmmc.WithSession("b"))
	publish(t, a, "x")
	mine := publish(t, b, "x")
	open := publish(t, a, "open", vmmc.Permit(vmmc.Permission{Sessions: []string{"b"}}))
	reaches(t, importName(t, b, "x"), mine)
	if all := listed(t, b, "*"); len(all) != 1 {
		t.Errorf("session b has the names %q", all)
	}
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	me := u.Username
	reaches(t, importName(t, b, "open", vmmc.OwnedBy(me, "a")), open)
	reaches(t, importName(t, b, "x", vmmc.OwnedBy(me, "b")), mine)
	said := map[string]bool{}
	for _, name := range []string{"x", "z"} {
		_, err := b.ImportName(within(t), name, vmmc.OwnedBy(me, "a"))
		if !errors.Is(err, vmmc.ErrNoRights) {
			t.Errorf("%q of the other session: %v", name, err)
		}
		said[strings.ReplaceAll(fmt.Sprint(err), fmt.Sprintf("%q", name), "NAME")] = true
	}
	if len(said) != 1 {
		t.Errorf("a name that is not there and one that is not permitted are told apart: %v", said)
	}
	// One of the same session that the export does not let in is told at once, too.
	c := join(t, socket, vmmc.WithSession("a"))
	if err := open.PublishAs(within(t), "only b"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ImportName(within(t), "only b"); !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("an importer that is not permitted: %v", err)
	}
	if _, err := b.ImportName(within(t), "x", vmmc.OwnedBy("\xff", "")); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a user that cannot be: %v", err)
	}
}

func TestNames(t *testing.T) {
	socket, _ := nodes(t, "mapped")
	a, b := join(t, socket), join(t, socket)
	var want []string
	for i := range 130 { // three pages
		name := fmt.Sprintf("n%03d", i)
		want = append(want, name)
		if i%2 == 0 {
			publish(t, a, name)
		} else {
			publish(t, b, name)
		}
	}
	publish(t, a, ".hidden")
	publish(t, a, "/cluster")
	publish(t, a, "z*")
	node := a.Node().String()
	for pattern, want := range map[string][]string{
		"*": append(append([]string(nil), want...), "z*"), "n00[1-3]": {"n001", "n002", "n003"}, `z\*`: {"z*"}, "x*": nil,
		".*": {".hidden"}, "/*": {"/cluster"}, node + "/n000": {node + "/n000"},
	} {
		if diff := cmp.Diff(want, listed(t, b, pattern)); diff != "" {
			t.Errorf("%q: %s", pattern, diff)
		}
	}
	for _, err := range a.Names(within(t), "*") {
		if err != nil {
			t.Error(err)
		}
		break
	}
	for _, pattern := range []string{"", "/", "[", "n/[", strings.Repeat("*", 513)} {
		for _, err := range a.Names(within(t), pattern) {
			if !errors.Is(err, vmmc.ErrBadArg) {
				t.Errorf("%.9q: %v", pattern, err)
			}
		}
	}
}

// Names that cannot be are refused by each call, before it does anything.
func TestBadNames(t *testing.T) {
	socket, _ := nodes(t, "mapped")
	p := join(t, socket)
	e, err := p.Export(1, alloc(t, p, 64))
	if err != nil {
		t.Fatal(err)
	}
	mem := alloc(t, p, 64)
	ctx := within(t)
	for _, name := range []string{
		"", "/", "a/b/c", "//x", p.Node().String() + "/", "a\x00", "a\nb", "\u202ea", "\xff", " a", "a ",
		strings.Repeat("x", 129), "..//x",
	} {
		_, published := p.Publish(ctx, name, mem)
		_, exported := p.Export(2, mem, vmmc.WithName(name))
		_, imported := p.ImportName(ctx, name)
		for what, err := range map[string]error{
			"Publish": published, "WithName": exported, "ImportName": imported, "PublishAs": e.PublishAs(ctx, name),
			"Unpublish": e.Unpublish(ctx, name),
		} {
			if !errors.Is(err, vmmc.ErrBadName) {
				t.Errorf("%s %.9q: %v", what, name, err)
			}
		}
	}
	for _, err := range []error{e.PublishAs(ctx, "other/x"), e.Unpublish(ctx, "other/x")} {
		if !errors.Is(err, vmmc.ErrBadName) {
			t.Errorf("a name of another node: %v", err)
		}
	}
	if _, err := p.ImportName(ctx, "other/x"); !errors.Is(err, vmmc.ErrNoSuchNode) {
		t.Errorf("a name of no node: %v", err)
	}
	if err := e.PublishAs(ctx, "x", nil); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("an option that is nil: %v", err)
	}
	if _, err := p.ImportName(ctx, "x", nil); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("an option that is nil: %v", err)
	}
	for i := range 16 {
		if err := e.PublishAs(ctx, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.PublishAs(ctx, "x"); !errors.Is(err, vmmc.ErrNoMem) {
		t.Errorf("the 17th name: %v", err)
	}
}

// Many processes publish, import and close under few names: each import is of a live export that
// has the name.
func TestNamesAtOnce(t *testing.T) {
	socket, _ := nodes(t, "mapped")
	var all sync.WaitGroup
	for range 4 {
		p, q := join(t, socket), join(t, socket)
		mem := alloc(t, p, 64)
		all.Go(func() {
			for i := range 100 {
				e, err := p.Export(7, mem, vmmc.WithName(fmt.Sprint(i%3)), vmmc.WithLabel([]byte(fmt.Sprint(i%3))))
				if errors.Is(err, vmmc.ErrNameTaken) {
					continue
				}
				if err == nil {
					err = e.Close()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
		all.Go(func() {
			for i := range 100 {
				ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
				im, err := q.ImportName(ctx, fmt.Sprint(i%3))
				stop()
				switch {
				case err == nil:
					if string(im.Label()) != fmt.Sprint(i%3) {
						t.Errorf("name %d is of the export %s", i%3, im.Label())
					}
					_ = im.Close()
				case !errors.Is(err, vmmc.ErrTimeout):
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// Names of another node are found and listed there.
func TestNamesOfAnotherNode(t *testing.T) {
	near, far := nodes(t, "between nodes")
	a, b, c := join(t, near), join(t, far), join(t, far)
	of := func(name string) string { return b.Node().String() + "/" + name }
	mine := publish(t, a, "x")
	imports := make(chan *vmmc.Import)
	wait := func(name string) {
		go func() {
			im, err := a.ImportName(within(t), name)
			if err != nil {
				t.Error(err)
			}
			imports <- im
		}()
	}
	wait(of("x"))
	e := publish(t, b, "x", vmmc.WithLabel([]byte("l")))
	im := <-imports
	reaches(t, im, e)
	if im.Name() != of("x") || im.Exporter() != b.ID() || im.ID() != e.ID() || string(im.Label()) != "l" {
		t.Errorf("%q of %v, buffer %#x, label %q", im.Name(), im.Exporter(), im.ID(), im.Label())
	}
	reaches(t, importName(t, a, of("x")), e)
	reaches(t, importName(t, a, "x"), mine)

	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the import has ended", func() bool { return im.Err() != nil })
	e = publish(t, c, of("x"))
	im, err := im.Rejoin(within(t))
	if err != nil || im.Exporter() != c.ID() {
		t.Fatal(err)
	}
	reaches(t, im, e)

	if _, err := b.Export(7, alloc(t, b, 64), vmmc.WithName("set", vmmc.InSet())); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Export(7, alloc(t, c, 64), vmmc.WithName("set", vmmc.InSet())); err != nil {
		t.Fatal(err)
	}
	got := map[vmmc.ProcessID]int{}
	for range 4 {
		got[importName(t, a, of("set")).Exporter()]++
	}
	if got[b.ID()] != 2 || got[c.ID()] != 2 {
		t.Errorf("turns: %v", got)
	}
	want := []string{of("set"), of("set"), of("x")}
	if diff := cmp.Diff(want, listed(t, a, of("*"))); diff != "" {
		t.Error(diff)
	}
	for i := range 60 {
		publish(t, b, fmt.Sprintf("page%02d", i))
	}
	if n := len(listed(t, a, of("page*"))); n != 60 {
		t.Errorf("%d names are listed, want 60", n)
	}

	// Another session's names are refused at once.
	d := join(t, near, vmmc.WithSession("d"))
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, "open", vmmc.Permit(vmmc.Permission{Sessions: []string{"d"}}))
	importName(t, d, of("open"), vmmc.OwnedBy(u.Username, ""))
	for _, name := range []string{"x", "none"} {
		if _, err := d.ImportName(within(t), of(name), vmmc.OwnedBy(u.Username, "")); !errors.Is(err, vmmc.ErrNoRights) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if all := listed(t, d, of("*")); len(all) > 0 {
		t.Errorf("another session lists %q", all)
	}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, stop)
	if _, err := a.ImportName(ctx, of("none")); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("a cancelled import: %v", err)
	}
	for _, err := range a.Names(within(t), "nowhere/*") {
		if !errors.Is(err, vmmc.ErrNoSuchNode) {
			t.Errorf("names of no node: %v", err)
		}
	}
	// "/x" is another name than "x".
	if err := e.PublishAs(within(t), "/x"); err != nil {
		t.Error(err)
	}
	reaches(t, importName(t, a, "/x"), e)
	if all := listed(t, a, "/*"); !slices.Equal(all, []string{"/x"}) {
		t.Errorf("names of the cluster: %q", all)
	}
	wait(of("gone"))
	publish(t, b, "gone")
	<-imports
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the names of a process that left are gone", func() bool { return len(listed(t, a, of("*"))) == 2 })
}

// An import whose context ends when the other node has granted it gives the grant back.
func TestGrantOfANameIsGivenBack(t *testing.T) {
	near, far := nodes(t, "between nodes")
	a, b := join(t, near), join(t, far)
	publish(t, b, "x")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	defer vmmc.SetNameFound(stop)()
	if _, err := a.ImportName(ctx, b.Node().String()+"/x"); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("a cancelled import: %v", err)
	}
	until(t, "the grant is back", func() bool { return vmmc.Grants(b) == 0 })
}

// WithName is checked before anything is exported.
func TestWithNameIsCheckedFirst(t *testing.T) {
	w := newFakeDaemon(t)
	w.answers(func(m nodeproto.Method) any {
		if m == nodeproto.Export {
			t.Error("the daemon was told of an export")
		}
		return nodeproto.Empty{}
	})
	for want, o := range map[vmmc.Code]vmmc.ExportOption{
		vmmc.ErrBadName: vmmc.WithName("a/b/c"), vmmc.ErrBadArg: vmmc.WithName("x", nil),
	} {
		if _, err := w.p.Export(8, alloc(t, w.p, 64), o); !errors.Is(err, want) {
			t.Errorf("want %v: %v", want, err)
		}
	}
}

// An export whose name cannot be had ends, also if the daemon does not drop it.
func TestExportEndsWithoutItsName(t *testing.T) {
	w := newFakeDaemon(t)
	w.answers(func(m nodeproto.Method) any {
		switch m {
		case nodeproto.Publish:
			return nodeproto.Published{Taken: &nodeproto.ProcessID{Node: "n", PID: 3}}
		case nodeproto.Unexport:
			return code.New(code.NoMem, "not now")
		}
		return nodeproto.Empty{}
	})
	mem := alloc(t, w.p, 64)
	for range 2 { // the first one has left neither the id nor the memory taken
		_, err := w.p.Export(8, mem, vmmc.WithName("x"))
		var f *vmmc.Error
		if !errors.As(err, &f) || f.Code != vmmc.ErrNameTaken {
			t.Errorf("WithName: %v", err)
		}
		if _, err := w.p.Publish(within(t), "x", mem); !errors.Is(err, vmmc.ErrNameTaken) {
			t.Errorf("Publish: %v", err)
		}
	}
}
