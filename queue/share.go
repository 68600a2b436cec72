package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// A take is a call to the process that shares the queue (package call). A taker numbers its requests,
// and the host numbers the batches that it gives to a taker:
//
//	taker                                           host
//	take: 1st request, batch 0 is finished    ->    gives batch 1
//	take: 2nd request, batch 1 is finished    ->    gives batch 2
//	its context ends; the answer is on its way
//	withdraw: 3rd request, 1 is finished      ->    takes batch 2 back
//
// The host keeps the values of a taker's last batch until a request says that the batch is finished.
// Requests of one taker may run in any order, so the host ignores one that is older than the last one.

// maxTaken is how many values a taker has at most, and maxTakenValue the bytes of one. An answer has
// room for as many.
const (
	maxTaken      = 16
	maxTakenValue = 4096
)

// takeRequest asks for up to Most values. If Most is 0 it withdraws an earlier request.
type takeRequest struct {
	Request  uint64 // its number
	Finished uint64 // the last batch whose values are finished
	Most     uint64
}

// takeAnswer has a batch. T's alignment is 16 at most, so nothing is padded.
type takeAnswer[T any] struct {
	Batch    uint64 // the last one that was given
	Values   uint32 // how many there are
	Status   uint32
	Attempts [maxTaken]uint32
	Value    [maxTaken]T
}

// The statuses of an answer.
const (
	takeGiven = iota // there are values, or none were requested
	takeEnded
	takeProducerLost
	takeClosed
	takeStale // a later request has come
)

// Taken is a value that a [Taker] has.
//
// Experimental: it may change in any release.
type Taken[T any] struct {
	Value   T
	Attempt int // how many takers have had the value, with this one: 1 unless others have ended
}

// Shared gives the values of a queue to several takers.
//
// Experimental: it may change in any release.
type Shared[T any] struct {
	c      *Consumer[T]
	server *call.Server
	ctx    context.Context //nolint:containedctx // of the pump; ends with Close
	stop   context.CancelFunc
	demand chan struct{} // Has an element when the pump is to look at the waiters.
	pumped chan struct{} // Closed when the pump has returned.

	// mu is locked by holders of the consumer's lock. Its holders may only try to take that lock.
	mu       sync.Mutex
	takers   map[context.Context]*takerState[T] // By the context of their calls. Guarded by mu.
	waiters  []*takeWaiter[T]                   // In the order in which they came. Guarded by mu.
	next     []unfinished[T]                    // Values for the next takers, by number. Guarded by mu.
	atTakers int                                // How many values takers have not finished. Guarded by mu.
	lost     []*LostError                       // Guarded by mu.
	// Why the queue gives no more values. It is nil again when the consumer may have some: see
	// lookAgain. Guarded by mu.
	end     error
	closing atomic.Bool // Takers get neither values nor the queue's end: Close ends their calls.
	closed  bool        // Close has taken all values back. Guarded by mu.
	fetched [maxTaken]T // Guarded by mu.

	sleeps    bool               // Reports whether the pump waits with sleep. Guarded by mu.
	sleep     context.Context    //nolint:containedctx // Ends when no take waits. Guarded by mu.
	stopSleep context.CancelFunc // Guarded by mu.
}

// unfinished is a value that was taken out of the queue and is not finished.
type unfinished[T any] struct {
	Taken[T]
	// number is in the order in which the values were taken out of the queue, by whichever sharing. A
	// value keeps it when it is given back.
	number uint64
}

func sortByNumber[T any](vs []unfinished[T]) {
	slices.SortFunc(vs, func(a, b unfinished[T]) int { return cmp.Compare(a.number, b.number) })
}

// takerState is what the host has of a taker. Guarded by Shared.mu.
type takerState[T any] struct {
	request uint64 // the last one
	batch   uint64 // the last one that was given
	taken   []unfinished[T]
}

// takeWaiter is a take that waits. Guarded by Shared.mu, but answer once done is closed.
type takeWaiter[T any] struct {
	taker  *takerState[T]
	most   int
	answer *takeAnswer[T]
	done   chan struct{} // Closed when there is an answer.
}

type shareOptions struct {
	takers int
	serve  []call.ServeOption
}

// ShareOption changes what [Share] does.
//
// Experimental: it may change in any release.
type ShareOption func(*shareOptions)

// MaxTakers is how many takers there may be at a time; without it that is 256. [DialTaker] of the
// next one fails with [vmmc.ErrNoMem].
//
// Experimental: it may change in any release.
func MaxTakers(n int) ShareOption { return func(o *shareOptions) { o.takers = n } }

// PermitTakers lets exactly the processes take that match one of perms, as [vmmc.Permit] does.
//
// Experimental: it may change in any release.
func PermitTakers(perms ...vmmc.Permission) ShareOption {
	return func(o *shareOptions) { o.serve = append(o.serve, call.Permit(perms...)) }
}

// Each taker has one slot for a take and one to withdraw it; more handlers than takers run while some
// of these end.
const (
	takerSlots    = 2
	spareHandlers = 8
)

// Share gives c's values to all that call [DialTaker] with a name, which must not be c's own. This
// process may go on taking values of c itself. Errors: a [*view.TypeError]; [vmmc.ErrBadArg] for an
// option that cannot be, or if a value has more than 4,096 bytes; those of [Listen].
//
// Experimental: it may change in any release.
func Share[T any](
	ctx context.Context, c *Consumer[T], name string, opts ...ShareOption,
) (*Shared[T], error) {
	op := fmt.Sprintf("share queue %q as %q", c.name, name)
	if err := checkCall(ctx, op); err != nil {
		return nil, err
	}
	o := shareOptions{takers: 256}
	for _, f := range opts {
		if f == nil {
			return nil, pair.BadArg(op, errors.New("an option is nil"))
		}
		f(&o)
	}
	switch {
	case o.takers < 1:
		return nil, pair.BadArg(op, fmt.Errorf("%d takers: at least 1", o.takers))
	case c.value > maxTakenValue:
		return nil, pair.BadArg(op, fmt.Errorf("values of %d bytes: at most %d", c.value, maxTakenValue))
	}
	s := &Shared[T]{
		c: c, demand: make(chan struct{}, 1), pumped: make(chan struct{}),
		takers: map[context.Context]*takerState[T]{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	serve := append([]call.ServeOption{
		call.MaxSlots(takerSlots), call.MaxClients(o.takers), call.Handlers(o.takers + spareHandlers),
	}, o.serve...)
	var err error
	if s.server, err = call.Serve(ctx, c.p, name, s.serve, serve...); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	c.addShared(s)
	go s.pump()
	return s, nil
}

// Lost returns the losses of producers that gets of this queue were told of, in a queue with
// [Producers]. [Consumer.Replace] takes them.
//
// Experimental: it may change in any release.
func (s *Shared[T]) Lost() []*LostError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lost)
}

// Unfinished is how many values were taken out of the queue and not finished by a taker. They are
// lost if this process ends. It may be called at any time. After Close it is 0, unless the consumer
// was closed before: then so many values are lost.
//
// Experimental: it may change in any release.
func (s *Shared[T]) Unfinished() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.next) + s.atTakers
}

// Close ends the sharing: calls of the takers fail with [vmmc.ErrRevoked]. It leaves the queue's
// consumer open, and gives it back the values that no taker has finished: the next gets return them,
// or the next sharing gives them to its takers, in the order in which they were in the queue and
// before all others. That holds for several sharings too. A taker of this sharing may have worked on
// them. A range over [Consumer.All] that has come to the end does not get them. Errors: those of
// [call.Server.Close].
//
// Experimental: it may change in any release.
func (s *Shared[T]) Close() error {
	// The server's end ends one taker after the other: else the values of the first would go to those
	// whose calls are still there.
	s.closing.Store(true)
	if err := s.server.Close(); err != nil {
		s.closing.Store(false)
		s.lookAgain()
		return fmt.Errorf("end the sharing of queue %s: %w", strconv.Quote(s.c.name), err)
	}
	s.stop()
	<-s.pumped
	s.c.removeShared(s)
	s.mu.Lock()
	s.closed = true
	for _, t := range s.takers {
		s.takeBack(t, true)
	}
	n := len(s.next)
	if s.c.giveBack(s.next) {
		s.next = nil
	}
	s.mu.Unlock()
	if n > 0 {
		s.c.sharesLookAgain()
	}
	return nil
}

// serve is a call of a taker.
func (s *Shared[T]) serve(ctx context.Context, q *takeRequest, a *takeAnswer[T]) error {
	w, err := s.begin(ctx, q, a)
	if err != nil || w == nil {
		return err
	}
	pair.At("share.waits")
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		s.mu.Lock() // the answer is w's until then
		defer s.mu.Unlock()
		s.removeWaiter(w.taker, takeStale)
		return context.Cause(ctx)
	}
}

// begin answers a request, or returns a waiter for its answer.
func (s *Shared[T]) begin(
	ctx context.Context, q *takeRequest, a *takeAnswer[T],
) (*takeWaiter[T], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.takerOf(ctx)
	switch {
	case s.closed: // a value that it got would reach no process
		return nil, closedError("take")
	case err != nil:
		return nil, err
	case q.Request <= t.request:
		a.Status = takeStale
		return nil, nil
	case q.Finished > t.batch || q.Most > maxTaken:
		return nil, fmt.Errorf("batch %d is finished, of %d; %d values are requested, of at most %d",
			q.Finished, t.batch, q.Most, maxTaken)
	}
	t.request = q.Request
	s.removeWaiter(t, takeStale)
	if q.Finished == t.batch {
		pair.At("share.finished")
		s.atTakers -= len(t.taken)
		t.taken = t.taken[:0]
	} else { // the taker has not seen the batch
		s.takeBack(t, false)
	}
	a.Batch = t.batch
	s.match()
	most := int(q.Most)
	if most == 0 {
		return nil, nil
	}
	if len(s.next) == 0 && len(s.waiters) == 0 && s.end == nil && !s.closing.Load() {
		s.tryFetch(most)
	}
	if len(s.next) > 0 && !s.closing.Load() { // then no take waits
		s.give(t, most, a)
		return nil, nil
	}
	w := &takeWaiter[T]{taker: t, most: most, answer: a, done: make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.match()
	return w, nil
}

// takerOf returns the state of the taker whose calls have a context. The caller holds mu.
func (s *Shared[T]) takerOf(ctx context.Context) (*takerState[T], error) {
	if t := s.takers[ctx]; t != nil {
		return t, nil
	}
	if err := context.Cause(ctx); err != nil { // it may have been forgotten
		return nil, err
	}
	t := &takerState[T]{}
	s.takers[ctx] = t
	context.AfterFunc(ctx, func() { s.takerGone(ctx, t) })
	return t, nil
}

// takerGone gives the values of a taker that has ended to others.
func (s *Shared[T]) takerGone(ctx context.Context, t *takerState[T]) {
	pair.At("share.gone")
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.takers, ctx)
	s.removeWaiter(t, takeStale)
	s.takeBack(t, true)
	s.match()
}

// takeBack takes the values of a taker back: they go before those that were taken out of the queue
// later. attempted reports whether the taker may have seen them. The caller holds mu.
func (s *Shared[T]) takeBack(t *takerState[T], attempted bool) {
	if !attempted {
		for i := range t.taken {
			t.taken[i].Attempt--
		}
	}
	s.addNext(t.taken)
	s.atTakers -= len(t.taken)
	t.taken = t.taken[:0]
}

// removeWaiter answers the take of a taker that waits, if there is one. The caller holds mu.
func (s *Shared[T]) removeWaiter(t *takerState[T], status uint32) {
	i := slices.IndexFunc(s.waiters, func(w *takeWaiter[T]) bool { return w.taker == t })
	if i < 0 {
		return
	}
	w := s.waiters[i]
	s.waiters = slices.Delete(s.waiters, i, i+1)
	w.answer.Status = status
	close(w.done)
	s.endSleep()
}

// endSleep has the pump give the consumer's lock back if no take waits. Otherwise it would hold up
// gets, and take a value for no taker. The caller holds mu.
func (s *Shared[T]) endSleep() {
	if len(s.waiters) == 0 && s.sleeps {
		s.stopSleep()
		s.sleep, s.sleeps = nil, false
	}
}

// match gives values to the takes that wait. If some are left it has the pump look for more. The
// caller holds mu.
func (s *Shared[T]) match() {
	if s.closing.Load() {
		return
	}
	for len(s.waiters) > 0 && len(s.next) > 0 {
		w := s.waiters[0]
		s.waiters = slices.Delete(s.waiters, 0, 1)
		s.give(w.taker, w.most, w.answer)
		close(w.done)
	}
	if len(s.waiters) == 0 {
		s.endSleep()
		return
	}
	switch {
	case s.end == nil:
		select {
		case s.demand <- struct{}{}:
		default: // it is to look already
		}
	case s.atTakers == 0 || s.endStatus() == takeClosed:
		status := s.endStatus()
		for len(s.waiters) > 0 {
			s.removeWaiter(s.waiters[0].taker, status)
		}
	}
}

// lookAgain has the pump look for values though there were no more: the consumer has let in another
// producer for a lost one, or has got values back.
func (s *Shared[T]) lookAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = nil // if the consumer is closed, the pump finds that again
	s.match()
}

// endStatus is the status that says why there are no more values. The caller holds mu.
func (s *Shared[T]) endStatus() uint32 {
	var lost *LostError
	switch {
	case errors.Is(s.end, ErrEnd):
		return takeEnded
	case errors.As(s.end, &lost):
		return takeProducerLost
	}
	return takeClosed
}

// give answers a take. The caller holds mu, and there are values.
func (s *Shared[T]) give(t *takerState[T], most int, a *takeAnswer[T]) {
	n := min(most, len(s.next))
	for i, v := range s.next[:n] {
		v.Attempt++
		t.taken = append(t.taken, v)
		a.Value[i], a.Attempts[i] = v.Value, uint32(v.Attempt)
	}
	s.next = slices.Delete(s.next, 0, n)
	s.atTakers += n
	t.batch++
	a.Batch, a.Values = t.batch, uint32(n)
	pair.At("share.given")
}

// tryFetch takes up to n values that are there out of the queue, unless another call has the
// consumer's lock. The caller holds mu.
func (s *Shared[T]) tryFetch(n int) {
	if !s.c.tryAcquire() {
		return
	}
	defer s.c.release()
	if s.c.closed.Load() {
		s.end = closedError(s.c.op())
		return
	}
	_, err := s.fetch(n)
	s.noteError(err)
}

// fetch takes up to n values out of the queue. The caller holds mu and the consumer's lock.
func (s *Shared[T]) fetch(n int) (int, error) {
	vs := s.c.takeReturned(n)
	if len(vs) == 0 {
		if err := s.c.lossError(); err != nil {
			return 0, err
		}
		n = s.c.takeByTurns(n, s.c.into(s.fetched[:n]))
		for _, v := range s.fetched[:n] {
			s.next = append(s.next, unfinished[T]{Taken[T]{Value: v}, s.c.nextFetch()})
		}
		return n, nil
	}
	s.addNext(vs)
	return len(vs), nil
}

// addNext adds values to those for the next takers. The caller holds mu.
func (s *Shared[T]) addNext(vs []unfinished[T]) {
	s.next = append(s.next, vs...)
	sortByNumber(s.next)
}

// noteError notes the error of a get. If the sharing closes, the consumer's next get tells of a
// producer that was lost: no take does. The caller holds mu.
func (s *Shared[T]) noteError(err error) {
	if err == nil {
		return
	}
	lost, ok := errors.AsType[*LostError](err)
	switch {
	case s.closing.Load() || s.ctx.Err() != nil:
		s.c.tellAgain(lost)
	case !ok:
		s.end = err
	case !slices.Contains(s.lost, lost):
		s.lost = append(s.lost, lost)
		pair.At("share.lost")
	case s.c.endsLost(): // otherwise a producer has been replaced since the get
		s.end = err
		pair.At("share.lost")
	}
}

// pump takes values out of the queue while takers wait for some.
func (s *Shared[T]) pump() {
	defer close(s.pumped)
	for {
		select {
		case <-s.demand:
		case <-s.ctx.Done():
			return
		}
		for s.ctx.Err() == nil && s.pumpSome() {
			continue
		}
	}
}

// pumpSome waits for values, and gives them to takes that wait. It returns false if none waits.
func (s *Shared[T]) pumpSome() bool {
	s.mu.Lock()
	if len(s.waiters) == 0 || s.end != nil || s.closing.Load() {
		s.mu.Unlock()
		return false
	}
	ctx := s.beginSleep()
	s.mu.Unlock()
	err := s.c.acquire(ctx)
	if err == nil {
		ctx, err = s.fetchOrWait()
		s.c.release() // a get of this process may have its turn
	}
	if err != nil && ctx.Err() == nil { // otherwise no take waits
		s.mu.Lock()
		s.noteError(err)
		s.match()
		s.mu.Unlock()
	}
	return true
}

// fetchOrWait gives values to takes that wait, and waits until there are some. An error is that of
// the wait with the context. The caller holds the consumer's lock.
func (s *Shared[T]) fetchOrWait() (ctx context.Context, err error) {
	for err == nil {
		if ctx = s.fetchForWaiters(); ctx == nil {
			break
		}
		err = s.c.wait(ctx)
	}
	return ctx, err
}

// beginSleep returns a context for the pump, that ends when no take waits: the last one if that goes
// on, so that a wait need not allocate. The caller holds mu.
func (s *Shared[T]) beginSleep() context.Context {
	if s.sleep == nil {
		s.sleep, s.stopSleep = context.WithCancel(s.ctx) //nolint:gosec // endSleep or Close ends it
	}
	s.sleeps = true
	return s.sleep
}

// fetchForWaiters takes values out of the queue and gives them to the takes that wait. It does both at
// once: so it takes no value that no take is for, and a take that comes later gets a later value. It
// returns a context for a wait if there are takes and no values, and otherwise nil. The caller holds
// the consumer's lock.
func (s *Shared[T]) fetchForWaiters() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sleeps = false
	if len(s.waiters) == 0 || s.end != nil || s.closing.Load() {
		return nil
	}
	n, err := s.fetch(s.waiters[0].most)
	if n == 0 && err == nil {
		if err = s.c.endError(); err == nil {
			return s.beginSleep()
		}
	}
	pair.At("share.got")
	s.noteError(err)
	s.match()
	return nil
}
