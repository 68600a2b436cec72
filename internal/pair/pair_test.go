package pair

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// steps has tests act at the steps of the protocol.
var steps testutil.Steps

func TestMain(m *testing.M) {
	Step = steps.At
	vmmctest.Main(m)
}

// bound is a guard against hanging.
const bound = time.Minute

// world is a listener with a letterbox of one word, and a dialler.
type world struct {
	listens  *vmmc.Process
	l        *Listener
	box      *vmmc.Export
	accepted chan *vmmc.Import
	dials    dialling
}

// dialling is a process with an import of the letterbox.
type dialling struct {
	p         *vmmc.Process
	letterbox *vmmc.Import
}

// meet starts them on the first node and on the last one. Without accept the listener makes
// exports.
func meet(
	t *testing.T, nodes []*vmmctest.Node, accept Accept, opts ...vmmc.Option,
) (context.Context, *world) {
	ctx, stop := context.WithTimeout(context.Background(), bound)
	t.Cleanup(stop)
	w := &world{listens: nodes[0].Open(t, opts...), accepted: make(chan *vmmc.Import, 64)}
	if accept == nil {
		accept = func(theirs *vmmc.Import) (uint32, error) {
			w.accepted <- theirs
			e, err := export(t, w.listens, 64, For(theirs.Exporter()))
			if err != nil {
				return 0, err
			}
			return e.ID(), nil
		}
	}
	w.l = NewListener(w.listens, accept)
	t.Cleanup(w.l.Close)
	box, err := export(t, w.listens, 4, vmmc.WithHandler(w.l.Handle))
	if err != nil {
		t.Fatal(err)
	}
	w.box = box
	w.dials = w.find(ctx, t, nodes[len(nodes)-1].Open(t, opts...))
	return ctx, w
}

// find imports the letterbox.
func (w *world) find(ctx context.Context, t *testing.T, p *vmmc.Process) dialling {
	im, err := p.Import(ctx, w.listens.Node(), w.listens.PID(), w.box.ID())
	if err != nil {
		t.Fatal(err)
	}
	return dialling{p, im}
}

func export(t *testing.T, p *vmmc.Process, n int, opts ...vmmc.ExportOption) (*vmmc.Export, error) {
	mem, err := p.Alloc(n)
	if err != nil {
		t.Error(err)
		return nil, err
	}
	return Export(func(id uint32) (*vmmc.Export, error) { return p.Export(id, mem.Bytes(), opts...) })
}

func (d *dialling) dial(ctx context.Context, t *testing.T) (*vmmc.Import, *vmmc.Export, error) {
	ours, err := export(t, d.p, 64, For(d.letterbox.Exporter()))
	if err != nil {
		return nil, nil, err
	}
	im, err := Dial(ctx, d.p, d.letterbox, 0, ours)
	return im, ours, err
}

// request sends a word to the letterbox.
func (d *dialling) request(ctx context.Context, t *testing.T, word uint32) {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	if err := d.letterbox.SendNotify(ctx, b[:], 0); err != nil {
		t.Fatal(err)
	}
}

// settled waits until the listener has no requests.
func (w *world) settled(ctx context.Context, t *testing.T) {
	t.Helper()
	for n := 1; n > 0; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("the listener still has the requests of %d processes", n)
		}
		n = w.l.Diallers()
	}
}

// shortImports makes the listener go on with other requests soon.
func shortImports(t *testing.T) {
	was := importTime
	t.Cleanup(func() { importTime = was })
	importTime = 100 * time.Millisecond
}

// Each side has an import from the other, which no third process can have.
func TestMeeting(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	ctx, w := meet(t, nodes, nil)
	im, ours, err := w.dials.dial(ctx, t)
	if err != nil {
		t.Fatal(err)
	}
	theirs := <-w.accepted
	if im.Exporter() != w.listens.ID() || theirs.Exporter() != w.dials.p.ID() {
		t.Errorf("%v, %v", im.Exporter(), theirs.Exporter())
	}
	if theirs.ID() != ours.ID() {
		t.Errorf("buffer %d, want %d", theirs.ID(), ours.ID())
	}
	third := nodes[0].Open(t)
	for _, e := range []*vmmc.Import{im, theirs} {
		_, err := third.Import(ctx, e.Exporter().Node, e.Exporter().PID, e.ID())
		if !errors.Is(err, vmmc.ErrNoRights) {
			t.Errorf("a third process: %v", err)
		}
	}
	if err := im.Send(ctx, make([]byte, 8), 0); err != nil {
		t.Error(err)
	}
	if err := theirs.Send(ctx, make([]byte, 8), 0); err != nil {
		t.Error(err)
	}
	w.settled(ctx, t)
}

func TestListenerRefuses(t *testing.T) {
	refuse := func(*vmmc.Import) (uint32, error) { return 0, errors.New("no room") }
	ctx, w := meet(t, vmmctest.Nodes(t, 1), refuse)
	_, _, err := w.dials.dial(ctx, t)
	if !errors.Is(err, ErrRefused) || !errors.Is(err, vmmc.ErrNoMem) {
		t.Errorf("%v", err)
	}
}

// A dialler that gives up is not waited for.
func TestDialGivenUp(t *testing.T) {
	ctx, w := meet(t, vmmctest.Nodes(t, 1), nil)
	w.listens.BlockNotifications()
	soon, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	_, ours, err := w.dials.dial(soon, t)
	if !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("%v", err)
	}
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.listens.UnblockNotifications(); err != nil {
		t.Fatal(err)
	}
	// The handler gets the next request after the first one and its cancellation.
	if _, _, err := w.dials.dial(ctx, t); err != nil {
		t.Fatal(err)
	}
	w.settled(ctx, t)
}

// A dialler that gives up while its link is away does not hold up the next one, though its request
// may arrive without its cancellation. That request ends with the process.
func TestDialGivenUpWithoutALink(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	ctx, w := meet(t, nodes, nil, vmmc.WithResume(bound))
	nodes[0].Cut()
	soon, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	_, ours, err := w.dials.dial(soon, t)
	if err == nil {
		t.Error("a dial without a link")
	}
	nodes[0].Heal()
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	for err := errors.New("none"); err != nil; { // the nodes may not have found each other yet
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		_, _, err = w.dials.dial(ctx, t)
	}
	if err := w.dials.p.Close(); err != nil {
		t.Fatal(err)
	}
	w.settled(ctx, t)
}

// A process that requests what cannot be had delays no other one, nor its own next requests for
// long. Its requests end with it.
func TestFalseRequests(t *testing.T) {
	shortImports(t)
	nodes := vmmctest.Nodes(t, 1)
	ctx, w := meet(t, nodes, nil)
	lies := w.find(ctx, t, nodes[0].Open(t))
	for id := range uint32(4 * maxWorkers) {
		lies.request(ctx, t, dials|id)
	}
	for _, d := range []*dialling{&w.dials, &lies} {
		if _, _, err := d.dial(ctx, t); err != nil {
			t.Fatal(err)
		}
	}
	if w.l.Diallers() == 0 {
		t.Error("the listener has dropped requests of a process that lives")
	}
	if err := lies.p.Close(); err != nil {
		t.Fatal(err)
	}
	w.settled(ctx, t)
}

// What a process may send to the letterbox besides requests has no effect.
func TestOddRequests(t *testing.T) {
	shortImports(t)
	nodes := vmmctest.Nodes(t, 1)
	ctx, w := meet(t, nodes, nil)
	small, err := export(t, w.dials.p, 4)
	if err != nil {
		t.Fatal(err)
	}
	readOnly, err := export(t, w.dials.p, 64, vmmc.ReadOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []uint32{0, 1, 0x12345678, 0xF0000000, small.ID(), readOnly.ID()} {
		w.dials.request(ctx, t, word)
	}
	if _, _, err := w.dials.dial(ctx, t); err != nil {
		t.Fatal(err)
	}
	w.settled(ctx, t)
}

// A request that comes twice is answered once.
func TestSameRequest(t *testing.T) {
	accepted, goOn := make(chan uint32, 64), make(chan struct{})
	accept := func(theirs *vmmc.Import) (uint32, error) {
		accepted <- theirs.ID()
		<-goOn
		return 0, errors.New("no room")
	}
	ctx, w := meet(t, vmmctest.Nodes(t, 1), accept)
	ours, err := export(t, w.dials.p, 64, For(w.listens.ID()))
	if err != nil {
		t.Fatal(err)
	}
	other, err := export(t, w.dials.p, 64, For(w.listens.ID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint32{ours.ID(), ours.ID(), other.ID()} {
		w.dials.request(ctx, t, dials|id&idBits)
	}
	got := map[uint32]int{}
	for got[other.ID()] == 0 { // all requests were handled then
		select {
		case id := <-accepted:
			got[id]++
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	close(goOn)
	w.settled(ctx, t)
	for len(accepted) > 0 {
		got[<-accepted]++
	}
	if n := got[ours.ID()]; n != 1 {
		t.Errorf("accepted %d times", n)
	}
}

// A dialler's wait ends with the letterbox.
func TestListenerCloses(t *testing.T) {
	ctx, w := meet(t, vmmctest.Nodes(t, 1), nil)
	w.l.Close() // the request has no effect
	done := make(chan error, 1)
	go func() {
		_, _, err := w.dials.dial(ctx, t)
		done <- err
	}()
	go w.listens.Close()
	if err := <-done; err == nil || errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("%v", err)
	}
}

// A listener that answers with what it does not export holds up the dialler until it closes the
// letterbox.
func TestFalseAnswer(t *testing.T) {
	lie := func(*vmmc.Import) (uint32, error) { return firstID, nil }
	ctx, w := meet(t, vmmctest.Nodes(t, 1), lie)
	answered := make(chan struct{})
	steps.On(t, func(s string) {
		if s == "dial.answered" {
			close(answered)
		}
	})
	done := make(chan error, 1)
	go func() {
		_, _, err := w.dials.dial(ctx, t)
		done <- err
	}()
	<-answered
	go w.box.Close()
	if err := <-done; err == nil || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
}

// The ids that package group numbers its exports by stay free.
func TestExportIDs(t *testing.T) {
	for range 1 << 14 {
		id, err := Export(func(id uint32) (uint32, error) { return id, nil })
		if err != nil || id < firstID+1<<20 {
			t.Fatalf("%#x, %v", id, err)
		}
	}
}
