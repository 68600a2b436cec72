package via

// What the program has the NIC call: the error handler, and handlers of completions. One goroutine
// of the NIC makes the calls, one after another, without the lock.

// maxNotifies is how many handlers may be registered on one queue.
const maxNotifies = 1024

// call is one call that is to be made: of a handler of a descriptor, of one of an entry, or else of
// the error handler.
type call struct {
	descriptor func(*Descriptor)
	d          *Descriptor
	completion func(Completion)
	c          Completion
	failure    AsyncError
}

// enqueue has a call made. mu is held.
func (n *NIC) enqueue(c call) {
	n.calls = append(n.calls, c)
	if !n.dispatches {
		n.dispatches = true
		n.wg.Add(1)
		go n.dispatcher()
	}
}

// dispatch makes the calls until there are none.
func (n *NIC) dispatch() {
	defer n.wg.Done()
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.calls) > 0 {
		batch := n.calls
		n.calls, n.spareCalls = n.spareCalls[:0], nil
		for i := range batch {
			h := n.onError
			n.mu.Unlock()
			batch[i].do(h)
			n.mu.Lock()
		}
		clear(batch)
		n.spareCalls = batch[:0]
	}
	n.dispatches = false
}

func (c *call) do(onError func(AsyncError)) {
	switch {
	case c.descriptor != nil:
		c.d.posted.Store(false)
		c.descriptor(c.d)
	case c.completion != nil:
		c.completion(c.c)
	case onError != nil:
		onError(c.failure)
	default:
		logError(c.failure)
	}
}

// notifyList is handlers of a queue, each for one completion, in the order of their registration.
// Those of a NIC count among its sleepers: its links are not left to the program's polls then.
// Guarded by NIC.mu.
type notifyList[T any] []func(T)

func (l *notifyList[T]) add(n *NIC, h func(T)) {
	*l = append(*l, h)
	n.sleepers.Add(1)
	for _, o := range n.linkList() {
		o.attend()
	}
}

func (l *notifyList[T]) pop(n *NIC) func(T) {
	h := (*l)[0]
	*l = append((*l)[:0], (*l)[1:]...)
	n.sleepers.Add(-1)
	return h
}

// cancel forgets all handlers.
func (l *notifyList[T]) cancel(n *NIC) {
	n.sleepers.Add(-int32(len(*l)))
	*l = nil
}

// SendNotify has h called once, with the next descriptor of the send queue that is complete
// (VipSendNotify): it is taken from the queue as by [VI.SendDone], and its Status says how it was
// completed. If one is complete already it is that one. Several handlers may be registered, each for
// one descriptor; they are called in the order of their registration. Handlers are called one after
// another by a goroutine of the NIC, as the one of [NIC.OnError], and may register again. When the
// VI is destroyed, handlers that have no descriptor are forgotten. Errors: [ErrInvalidParameter] if
// h is nil, the queue is attached to a completion queue, or the VI is destroyed; [ErrResource] if
// the queue has 1,024 handlers.
//
// Experimental: it may change in any release.
func (vi *VI) SendNotify(h func(*Descriptor)) error {
	return vi.notify(&vi.send, h, "register a handler of SENDs")
}

// ReceiveNotify is SendNotify for the receive queue (VipRecvNotify).
//
// Experimental: it may change in any release.
func (vi *VI) ReceiveNotify(h func(*Descriptor)) error {
	return vi.notify(&vi.recv, h, "register a handler of receives")
}

func (vi *VI) notify(q *queue, h func(*Descriptor), op string) error {
	switch {
	case h == nil:
		return fail(op, ErrInvalidParameter, "it is nil")
	case q.cq != nil:
		return fail(op, ErrInvalidParameter,
			"the queue is attached to a completion queue: register it there")
	}
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	if err := vi.check(op); err != nil {
		return err
	}
	vi.n.progress()
	switch {
	case q.ready.n > 0:
		vi.n.enqueue(call{descriptor: h, d: vi.dequeue(q)})
	case len(q.notifies) >= maxNotifies:
		return fail(op, ErrResource, "the queue has %d handlers", maxNotifies)
	default:
		q.notifies.add(vi.n, h)
	}
	return nil
}

// Notify has h called once, with the next entry (VipCQNotify), which is taken as by
// [CompletionQueue.Done]. If there is an entry already it is that one. Otherwise as [VI.SendNotify];
// Destroy forgets the handlers that have no entry. Errors: [ErrInvalidParameter] if h is nil or the
// queue is destroyed; [ErrResource] if the queue has 1,024 handlers.
//
// Experimental: it may change in any release.
func (c *CompletionQueue) Notify(h func(Completion)) error {
	const op = "register a handler of completions"
	if h == nil {
		return fail(op, ErrInvalidParameter, "it is nil")
	}
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if err := c.check(op); err != nil {
		return err
	}
	c.n.progress()
	if e, ok := c.take(); ok {
		c.n.enqueue(call{completion: h, c: e})
		return nil
	}
	if len(c.notifies) >= maxNotifies {
		return fail(op, ErrResource, "the queue has %d handlers", maxNotifies)
	}
	c.notifies.add(c.n, h)
	return nil
}
