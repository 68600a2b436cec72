// Package pair connects two processes by two exports, one of each, which only the other process may
// import. So every wait of either process can end with the other one's death.
//
// The listener has a public export, the letterbox. The dialler makes an export for the listener
// alone, and requests another one: it sends the id of its own as the word of a notification to the
// letterbox. The notification says which process it is from, which no process can pretend. The
// listener imports that export, makes one for this dialler alone, and sends the id of that as the
// answer. The dialler imports it.
//
//	dialler                          listener
//	exports a buffer, requests   ->  imports the dialler's export
//	imports the answered export  <-  exports a buffer for the dialler, answers
//
// A dialler whose context ends cancels its request. Otherwise the listener would wait for an export
// that is gone.
//
// The package also has what the packages above it share: exported buffers, the errors of calls, and
// the steps of protocols, for tests.
package pair

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

// Exports for a peer have ids of this range, with ownBit set: package group numbers its exports from
// firstID on. Process.Publish has the other half of the library's.
const (
	firstID = 0xE0000000
	idBits  = 0x0FFFFFFF
	ownBit  = 1 << 20
)

// What a word sent to the letterbox says of the dialler's export, in the bits beside idBits.
const (
	cancels = 0
	dials   = firstID
)

const (
	maxWorkers  = 16               // goroutines that answer one dialling process
	maxRequests = 1 << 16          // requests of one process: no process has more exports
	requestAge  = 10 * time.Minute // how long a request is tried again
)

// importTime is how long an import of a dialler's export may take before other requests of that
// process are answered. A variable for tests.
var importTime = 5 * time.Second

// ErrRefused says that the listener has no room for another dialler.
var ErrRefused = errors.New("the listener refuses: it has no room for another dialler")

// Step is called at each step of the protocols of this package and of those above it, if a test has
// set it before it has opened a process.
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
		e, err := export(firstID | ownBit | rand.Uint32()&idBits) //nolint:gosec // an id is no secret
		if !errors.Is(err, vmmc.ErrBufAlreadyExists) {
			return e, err
		}
	}
}

// For lets only one process import.
func For(peer vmmc.ProcessID) vmmc.ExportOption {
	return vmmc.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{peer}})
}

// Accept makes the export for a dialler, whose export it is given, and returns its id. It owns the
// import, unless it returns an error. It may run several times at once.
type Accept func(theirs *vmmc.Import) (id uint32, err error)

// Listener answers diallers.
type Listener struct {
	p      *vmmc.Process
	accept Accept

	mu       sync.Mutex
	diallers map[vmmc.ProcessID]*dialler // Guarded by mu; nil: the listener is closed.
	ctx      context.Context             //nolint:containedctx // ends with Close
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// dialler is a process with requests. So one that requests what cannot be had, or does not go on,
// delays no other process. Guarded by Listener.mu.
type dialler struct {
	id       vmmc.ProcessID
	requests map[uint32]*request // by the ids of the dialler's exports
	queue    []*request          // those that no worker has, in the order in which they are tried
	workers  int
}

// request is what a dialler waits for the answer to.
type request struct {
	id     uint32
	since  time.Time
	cancel context.CancelFunc // Set while a worker has it. Guarded by Listener.mu.
}

// NewListener returns a Listener for diallers that accept makes exports for.
func NewListener(p *vmmc.Process, accept Accept) *Listener {
	l := &Listener{p: p, accept: accept, diallers: map[vmmc.ProcessID]*dialler{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Handle is the handler of the letterbox.
func (l *Listener) Handle(n vmmc.Notification) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.diallers == nil {
		return
	}
	d, id := l.diallers[n.From], firstID|n.Word&idBits
	switch n.Word &^ idBits {
	case cancels:
		if d != nil {
			d.cancel(id)
		}
	case dials:
		if d == nil {
			d = &dialler{id: n.From, requests: map[uint32]*request{}}
			l.diallers[n.From] = d
		}
		if d.add(id) && d.workers < maxWorkers {
			d.workers++
			l.wg.Go(func() { l.work(d) })
		}
	}
}

// add queues a request, and reports whether it did.
func (d *dialler) add(id uint32) bool {
	if d.requests[id] != nil || len(d.requests) >= maxRequests {
		return false
	}
	r := &request{id: id, since: time.Now()}
	d.requests[id] = r
	d.queue = append(d.queue, r)
	return true
}

// cancel drops a request, and ends its worker's wait.
func (d *dialler) cancel(id uint32) {
	r := d.requests[id]
	if r == nil {
		return
	}
	delete(d.requests, id)
	if r.cancel != nil {
		r.cancel()
		return
	}
	d.queue = slices.DeleteFunc(d.queue, func(o *request) bool { return o == r })
}

// work answers requests of a dialler until none is queued.
func (l *Listener) work(d *dialler) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(d.queue) > 0 && l.diallers != nil {
		r := d.queue[0]
		d.queue = d.queue[1:]
		ctx, stop := context.WithCancel(l.ctx)
		r.cancel = stop
		l.mu.Unlock()
		again := l.answer(ctx, d.id, r.id)
		stop()
		l.mu.Lock()
		r.cancel = nil
		switch {
		case d.requests[r.id] != r: // cancelled
		case again && time.Since(r.since) < requestAge:
			d.queue = append(d.queue, r)
		default:
			delete(d.requests, r.id)
		}
	}
	if d.workers--; d.workers == 0 {
		delete(l.diallers, d.id)
	}
}

// answer answers a request. It reports whether the request is to be tried again: the dialler's
// export could not be imported in time, though the dialler may live. All other errors are the
// dialler's end, or the listener's.
func (l *Listener) answer(ctx context.Context, from vmmc.ProcessID, id uint32) (again bool) {
	soon, stop := context.WithTimeout(ctx, importTime)
	defer stop()
	theirs, err := l.p.Import(soon, from.Node, from.PID, id)
	switch {
	case err == nil:
	case errors.Is(err, vmmc.ErrTimeout), errors.Is(err, vmmc.ErrUnreachable),
		errors.Is(err, vmmc.ErrNoDaemon):
		<-soon.Done() // not at once again
		return true
	default:
		return false
	}
	At("accept.imported")
	if theirs.Size() < AnswerSize {
		_ = theirs.Close()
		return false
	}
	var answer [AnswerSize]byte
	export, err := l.accept(theirs)
	binary.NativeEndian.PutUint32(answer[:], export)
	binary.NativeEndian.PutUint32(answer[stateOff:], answered)
	At("accept.exported")
	if err == nil {
		_ = theirs.Send(ctx, answer[:], 0)
		At("accept.answered")
		return false
	}
	binary.NativeEndian.PutUint32(answer[stateOff:], refused)
	_ = theirs.Send(ctx, answer[:], 0)
	_ = theirs.Fence(ctx) // the import's end would overtake it
	_ = theirs.Close()
	return false
}

// Diallers is how many processes have requests.
func (l *Listener) Diallers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.diallers)
}

// Close ends all requests, and waits until no goroutine answers one. Those that arrive later have
// no effect.
func (l *Listener) Close() {
	l.mu.Lock()
	l.diallers = nil
	l.mu.Unlock()
	l.stop()
	l.wg.Wait()
}

// cancelTime bounds how long a dialler whose context has ended waits until it can cancel its
// request.
const cancelTime = time.Second

// Dial requests an export of the exporter of a letterbox, which has a word for that at offset bell,
// and returns the import of the export that it answers with. ours is the dialler's export for that
// process alone. Dial may return up to a second after its context has ended.
func Dial(
	ctx context.Context, p *vmmc.Process, letterbox *vmmc.Import, bell int, ours *vmmc.Export,
) (*vmmc.Import, error) {
	state, err := ours.Word(stateOff)
	if err != nil {
		return nil, err
	}
	At("dial.exported")
	var word [4]byte
	binary.NativeEndian.PutUint32(word[:], dials|ours.ID()&idBits)
	err = letterbox.SendNotify(ctx, word[:], bell)
	if err != nil && !errors.Is(err, vmmc.ErrOutcomeUnknown) {
		return nil, err
	}
	var im *vmmc.Import
	if err == nil {
		At("dial.requested")
		im, err = join(ctx, p, letterbox, state, ours)
	}
	if err != nil && ctx.Err() != nil {
		binary.NativeEndian.PutUint32(word[:], cancels|ours.ID()&idBits)
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
		defer stop()
		_ = letterbox.SendNotify(ctx, word[:], bell) // otherwise the listener finds out in time
	}
	return im, err
}

// join waits for the answer and imports what it names.
func join(
	ctx context.Context, p *vmmc.Process, letterbox *vmmc.Import, state vmmc.Word, ours *vmmc.Export,
) (*vmmc.Import, error) {
	v, err := letterbox.WaitWord(ctx, state, 0)
	if err != nil {
		return nil, err
	}
	At("dial.answered")
	if v != answered {
		return nil, &vmmc.Error{
			Op:   fmt.Sprintf("connect to the exporter of buffer %d", letterbox.ID()),
			Peer: letterbox.Exporter().String(), Code: vmmc.ErrNoMem, Err: ErrRefused,
		}
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // otherwise the import would wait for a listener that has closed its exports
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
