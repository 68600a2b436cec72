// Package pair has two processes meet, each with an export that only the other one may import, so
// that every wait of either can end with the other one's death.
//
// The listener has a public export, the letterbox. The dialler makes an export for the listener
// alone, and sends its id as the word of a notification to the letterbox; the notification says
// which process it is from, which no process can pretend. The listener imports that export, makes
// one for this dialler alone, and sends the id of that as the answer. The dialler imports it.
//
//	dialler                          listener
//	export, rings the letterbox  ->  imports the dialler's export
//	imports the answered export  <-  exports a buffer for the dialler, answers
//
// A dialler whose context ends takes its ring back, as its export would be waited for.
package pair

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
)

// AnswerSize is how many bytes of the dialler's export, from its beginning, the answer takes.
const AnswerSize = 8

const stateOff = 4 // of the answer's last word, behind the id of the listener's export

// The states of an answer.
const (
	answered = 1
	refused  = 2
)

// Exports for a peer have ids of this range. Process.Publish has the other half of the library's.
const (
	firstID  = 0xE0000000
	idBits   = 0x0FFFFFFF
	maxRings = 1024 // diallers that are being answered; the rings of more are lost
)

// ErrRefused says that the listener has no room for another dialler.
var ErrRefused = errors.New("the listener refuses: it cannot make another buffer")

// Step is called at each step of the protocols of this package and of those above it, if a test has
// set it.
var Step func(step string)

// At calls Step.
func At(step string) {
	if Step != nil {
		Step(step)
	}
}

// Export calls export with an id of the library's that is free.
func Export[E any](export func(id uint32) (E, error)) (E, error) {
	for {
		e, err := export(firstID | rand.Uint32()&idBits) //nolint:gosec // an id is no secret
		if !errors.Is(err, vmmc.ErrBufAlreadyExists) {
			return e, err
		}
	}
}

// For lets only one process import.
func For(peer vmmc.ProcessID) vmmc.ExportOption {
	return vmmc.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{peer}})
}

// Listener answers diallers.
type Listener struct {
	p      *vmmc.Process
	accept func(theirs *vmmc.Import) (id uint32, err error)

	mu    sync.Mutex
	rings map[ring]context.CancelFunc // Guarded by mu; nil: the listener is closed.
	ctx   context.Context             //nolint:containedctx // ends with Close
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// ring is a dialler and its export.
type ring struct {
	from vmmc.ProcessID
	id   uint32
}

// NewListener returns a Listener whose accept makes the export for a dialler whose export it is
// given, and returns its id. accept owns the import, unless it returns an error. It may run several
// times at once.
func NewListener(p *vmmc.Process, accept func(theirs *vmmc.Import) (id uint32, err error)) *Listener {
	l := &Listener{p: p, accept: accept, rings: map[ring]context.CancelFunc{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Handle is the handler of the letterbox.
func (l *Listener) Handle(n vmmc.Notification) {
	r := ring{n.From, firstID | n.Word&idBits}
	l.mu.Lock()
	defer l.mu.Unlock()
	stop, known := l.rings[r]
	switch n.Word &^ idBits {
	case 0:
		if known {
			stop()
		}
	case firstID:
		if l.rings == nil || known || len(l.rings) >= maxRings {
			return
		}
		ctx, stop := context.WithCancel(l.ctx)
		l.rings[r] = stop
		l.wg.Go(func() {
			l.answer(ctx, r)
			stop()
			l.mu.Lock()
			delete(l.rings, r)
			l.mu.Unlock()
		})
	}
}

// answer answers a dialler. All errors are the dialler's end, or the listener's.
func (l *Listener) answer(ctx context.Context, r ring) {
	theirs, err := l.p.Import(ctx, r.from.Node, r.from.PID, r.id)
	if err != nil {
		return
	}
	At("accept.imported")
	if theirs.Size() < AnswerSize {
		_ = theirs.Close()
		return
	}
	var answer [AnswerSize]byte
	id, err := l.accept(theirs)
	binary.NativeEndian.PutUint32(answer[:], id)
	binary.NativeEndian.PutUint32(answer[stateOff:], answered)
	At("accept.exported")
	if err == nil {
		_ = theirs.Send(ctx, answer[:], 0)
		At("accept.answered")
		return
	}
	binary.NativeEndian.PutUint32(answer[stateOff:], refused)
	_ = theirs.Send(ctx, answer[:], 0)
	_ = theirs.Fence(ctx) // the import's end would overtake it
	_ = theirs.Close()
}

// Close ends all that is being answered, and waits for it. The letterbox must be closed before.
func (l *Listener) Close() {
	l.mu.Lock()
	l.rings = nil
	l.mu.Unlock()
	l.stop()
	l.wg.Wait()
}

// takeBackTime bounds how long a dialler whose context has ended waits for room in the link.
const takeBackTime = time.Second

// Dial rings at bell, the offset of a word of the letterbox, and returns the import of the export
// that the listener answers with. ours is the dialler's export for the listener alone.
func Dial(ctx context.Context, p *vmmc.Process, letterbox *vmmc.Import, bell int, ours *vmmc.Export) (*vmmc.Import, error) {
	state, err := ours.Word(stateOff)
	if err != nil {
		return nil, err
	}
	At("dial.exported")
	var word [4]byte
	binary.NativeEndian.PutUint32(word[:], ours.ID())
	if err := letterbox.SendNotify(ctx, word[:], bell); err != nil {
		return nil, err
	}
	At("dial.rung")
	im, err := join(ctx, p, letterbox, state, ours)
	if err != nil && ctx.Err() != nil {
		binary.NativeEndian.PutUint32(word[:], ours.ID()&idBits)
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), takeBackTime)
		defer stop()
		_ = letterbox.SendNotify(ctx, word[:], bell)
	}
	return im, err
}

// join waits for the answer and imports what it names.
func join(ctx context.Context, p *vmmc.Process, letterbox *vmmc.Import, state vmmc.Word, ours *vmmc.Export) (*vmmc.Import, error) {
	v, err := letterbox.WaitWord(ctx, state, 0)
	if err != nil {
		return nil, err
	}
	At("dial.answered")
	if v != answered {
		return nil, &vmmc.Error{
			Op: fmt.Sprintf("meet the exporter of buffer %d", letterbox.ID()), Peer: letterbox.Exporter().String(),
			Code: vmmc.ErrNoMem, Err: ErrRefused,
		}
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // a listener that has closed its exports would be waited for
		defer close(ended)
		select {
		case <-letterbox.Done():
			stop()
		case <-ctx.Done():
		}
	}()
	peer := letterbox.Exporter()
	im, err := p.Import(ctx, peer.Node, peer.PID, binary.NativeEndian.Uint32(ours.Bytes()))
	stop()
	<-ended
	if why := letterbox.Err(); err != nil && why != nil {
		return nil, why
	}
	return im, err
}
