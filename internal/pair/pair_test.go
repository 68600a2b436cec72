package pair

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func TestMain(m *testing.M) { vmmctest.Main(m) }

// bound is a guard against hanging.
const bound = time.Minute

// world is a listener with a letterbox of one word, and a dialler's import of it.
type world struct {
	listens, dials, third *vmmc.Process
	l                     *Listener
	letterbox             *vmmc.Import
	accepted              chan *vmmc.Import
	refuse                error
}

func meet(t *testing.T) (context.Context, *world) {
	ctx, stop := context.WithTimeout(context.Background(), bound)
	t.Cleanup(stop)
	node := vmmctest.Nodes(t, 1)[0]
	w := &world{listens: node.Open(t), dials: node.Open(t), third: node.Open(t), accepted: make(chan *vmmc.Import, 1)}
	w.l = NewListener(w.listens, func(theirs *vmmc.Import) (uint32, error) {
		if w.refuse != nil {
			return 0, w.refuse
		}
		w.accepted <- theirs
		e, err := export(t, w.listens, 64, For(theirs.Exporter()))
		return e.ID(), err
	})
	t.Cleanup(w.l.Close)
	box, err := export(t, w.listens, 4, vmmc.WithHandler(w.l.Handle))
	if err != nil {
		t.Fatal(err)
	}
	w.letterbox, err = w.dials.Import(ctx, w.listens.Node(), w.listens.PID(), box.ID())
	if err != nil {
		t.Fatal(err)
	}
	return ctx, w
}

func export(t *testing.T, p *vmmc.Process, n int, opts ...vmmc.ExportOption) (*vmmc.Export, error) {
	mem, err := p.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return Export(func(id uint32) (*vmmc.Export, error) { return p.Export(id, mem.Bytes(), opts...) })
}

func (w *world) dial(ctx context.Context, t *testing.T) (*vmmc.Import, *vmmc.Export, error) {
	ours, err := export(t, w.dials, 64, For(w.letterbox.Exporter()))
	if err != nil {
		t.Fatal(err)
	}
	im, err := Dial(ctx, w.dials, w.letterbox, 0, ours)
	return im, ours, err
}

// Each side has an import from the other, which no third process can have.
func TestMeeting(t *testing.T) {
	ctx, w := meet(t)
	im, ours, err := w.dial(ctx, t)
	if err != nil {
		t.Fatal(err)
	}
	theirs := <-w.accepted
	if im.Exporter() != w.listens.ID() || theirs.Exporter() != w.dials.ID() || theirs.ID() != ours.ID() {
		t.Errorf("%v, %v", im.Exporter(), theirs.Exporter())
	}
	for _, e := range []*vmmc.Import{im, theirs} {
		if _, err := w.third.Import(ctx, e.Exporter().Node, e.Exporter().PID, e.ID()); !errors.Is(err, vmmc.ErrNoRights) {
			t.Errorf("a third process: %v", err)
		}
	}
	if err := im.Send(ctx, make([]byte, 8), 0); err != nil {
		t.Error(err)
	}
	if err := theirs.Send(ctx, make([]byte, 8), 0); err != nil {
		t.Error(err)
	}
}

func TestListenerRefuses(t *testing.T) {
	ctx, w := meet(t)
	w.refuse = errors.New("no room")
	if _, _, err := w.dial(ctx, t); !errors.Is(err, ErrRefused) || !errors.Is(err, vmmc.ErrNoMem) {
		t.Errorf("%v", err)
	}
}

// A dialler that gives up is not waited for.
func TestDialGivenUp(t *testing.T) {
	ctx, w := meet(t)
	w.listens.BlockNotifications()
	soon, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	_, ours, err := w.dial(soon, t)
	if !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("%v", err)
	}
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.listens.UnblockNotifications(); err != nil {
		t.Fatal(err)
	}
	// The next one's ring is heard after both of the first.
	if _, _, err := w.dial(ctx, t); err != nil {
		t.Fatal(err)
	}
	for left := 1; left > 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		w.l.mu.Lock()
		left = len(w.l.rings)
		w.l.mu.Unlock()
	}
	if ctx.Err() != nil {
		t.Error("the listener still waits for it")
	}
}

// A dialler's wait ends with the letterbox.
func TestListenerCloses(t *testing.T) {
	ctx, w := meet(t)
	w.l.Close() // the ring has no effect
	done := make(chan error, 1)
	go func() {
		_, _, err := w.dial(ctx, t)
		done <- err
	}()
	go w.listens.Close()
	if err := <-done; err == nil || errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("%v", err)
	}
}
