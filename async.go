package vmmc

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Request is an asynchronous operation (the manual's vmmc_async_handle_t). It is a value: it may be
// copied, polled by several goroutines, and dropped; the operation completes in any case. Until
// then its memory belongs to it: do not write the source of a send, nor read the destination of a
// get. Requests to one process, sends and gets, complete in the order in which they were made.
// [Import.Close] ends those of its import: what was not over is over then, with [ErrClosed], also
// if the exporter does not answer.
type Request struct {
	im  *Import
	r   link.Request
	op  string
	n   int
	off int
}

// SendAsync begins a send and does not wait for it (vmmc_SendDataAsync). Only
// when the request is over may src be written again, and then the data has
// arrived: a request of a send that returned nil is a [Import.Fence] for it. Its
// place in the order of all sends to the exporter's process is that of the call.
// Up to 1024 requests of a process to another may wait for the connection; the
// next one then waits here. len(src) and off are in bytes, multiples of the word.
//
// Between nodes the transfer may start after the call has returned: within about 1 ms, later if the
// connection is full or all CPUs are busy. Waiting on or polling any Request to that process starts
// it at once.
//
// On one node a message of more than 64 KiB and at most 4 MiB is copied by a goroutine of this
// process that polls in a wait, or in the background. The copy starts when a Request is waited on
// or polled, else within about 1 ms, later if all CPUs are busy. A longer message, one to a
// redirectable buffer, and one behind another in flight start in the background at once. So a wait
// may return later by the time that a copy of 256 KiB takes, and a wait for data from another node
// by that of 4 MiB.
//
// Errors as [Import.Send]; when there is one, there is no request.
func (im *Import) SendAsync(ctx context.Context, src []byte, off int) (Request, error) {
	return im.sendAsync(ctx, "send", src, off, false)
}

// SendNotifyAsync is SendAsync with a notification (vmmc_SendDataAsyncNotify).
// Like [Import.SendNotify] it waits for a credit before it begins, and in a
// handler fails with [ErrNoCredit] instead. Errors as [Import.SendAsync].
func (im *Import) SendNotifyAsync(ctx context.Context, src []byte, off int) (Request, error) {
	return im.sendAsync(ctx, "send with notification", src, off, true)
}

func (im *Import) sendAsync(
	ctx context.Context, op string, src []byte, off int, notify bool,
) (Request, error) {
	if ctx == nil {
		return Request{}, im.opError("begin to "+op, len(src), off, errNilContext)
	}
	r := Request{im: im, op: op, n: len(src), off: off}
	notify = notify && im.notifiable()
	err := im.check(len(src), off, nodeproto.MayWrite)
	switch {
	case err != nil:
	case im.mapped != nil:
		r.r, err = im.mapped.SendAsync(ctx, off, src, notify)
	default:
		m := link.Message{Off: uint64(off), Src: src, Notify: notify}
		im.setTarget(&m)
		r.r, err = im.link.requester.SendAsync(ctx, m)
	}
	if err != nil {
		return Request{}, im.opError("begin to "+op, len(src), off, err)
	}
	return r, nil
}

// GetAsync begins a get and does not wait for it (vmmc_GetDataAsync). When the
// request is over dst has what the buffer held at some time between the call and
// then, with all that this process sent before the call; sends of this process to
// the same words that are made later are not in it. Gets that are under way at the
// same time read in no order. When the request fails, dst
// holds anything. len(dst) and off are in bytes, multiples of the word. Errors as
// [Import.Send]; when there is one, there is no request.
func (im *Import) GetAsync(ctx context.Context, dst []byte, off int) (Request, error) {
	if ctx == nil {
		return Request{}, im.opError("begin to get", len(dst), off, errNilContext)
	}
	r := Request{im: im, op: "get", n: len(dst), off: off}
	err := im.check(len(dst), off, nodeproto.MayRead)
	switch {
	case err != nil:
	case im.mapped != nil:
		r.r, err = im.mapped.GetAsync(ctx, off, dst)
	default:
		r.r, err = im.link.requester.GetAsync(ctx, im.readRequest(dst, off, false))
	}
	if err != nil {
		return Request{}, im.opError("begin to get", len(dst), off, err)
	}
	return r, nil
}

// Status says how the request stands (vmmc_AsyncStatus): nil when it is over,
// [ErrInProgress] when it is not, else why it failed. Asked again it says the
// same. [ErrBadAsyncHandle] is that of the zero Request. It never waits.
func (r Request) Status() error {
	if r.im == nil {
		return failf("ask for a request", ErrBadAsyncHandle, "this request was never begun")
	}
	done, err := r.r.ResultOf(&r.im.requests)
	if !done {
		return ErrInProgress
	}
	return r.outcome(err)
}

// outcome is the result of a request that is over.
func (r Request) outcome(err error) error {
	if seq := r.r.Seq(); err == nil && seq > 0 {
		err = r.im.checkDelivered(seq)
	}
	if err != nil {
		return r.im.opError(r.op, r.n, r.off, err)
	}
	return nil
}

// Done reports whether the request is over, well or not.
func (r Request) Done() bool { return r.Status() != error(ErrInProgress) } //nolint:errorlint // Status returns it as it is

// Wait returns when the request is over, with its outcome, or with the context's
// error; then the request goes on. It must not be called in a notification handler.
func (r Request) Wait(ctx context.Context) error {
	if r.im == nil {
		return r.Status()
	}
	if link.InHandler() {
		return r.im.opError("wait for a "+r.op, r.n, r.off, code.NotInHandler)
	}
	if ctx == nil {
		return r.im.opError("wait for a "+r.op, r.n, r.off, errNilContext)
	}
	done, err := r.r.WaitOf(ctx, &r.im.requests)
	if !done {
		return r.im.opError("wait for a "+r.op, r.n, r.off, err)
	}
	return r.outcome(err)
}
