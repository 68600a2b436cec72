package vrpc

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/xdr"
)

// replier is what a reply goes to.
type replier interface {
	// begin resets e to where the reply begins. It may be called again, for another reply instead.
	begin(e *xdr.Encoder)
	// end is called once, while all is there that e refers to, with nil where there is no reply:
	// for what is not a call, and for ErrNoReply.
	end(e *xdr.Encoder)
}

// work is what answering a call takes besides the Call.
type work struct {
	call  rpcmsg.Call
	reply rpcmsg.Reply
	d     xdr.Decoder
	e     xdr.Encoder
	none  bool // there is no reply
	spare callPool
}

// callPool keeps one used Call for a goroutine that has a work of its own. The next call is mostly
// of the same procedure, and putting the Call into a pool and taking it out again costs 250
// instructions. The garbage collector takes it when its owner ends.
type callPool struct {
	owned bool       // by one goroutine
	of    *procedure // nil: there is none
	call  Call
}

func (s *callPool) get(p *procedure) Call {
	if s.of != p {
		return p.newCall()
	}
	s.of = nil
	return s.call
}

// put takes c if it holds little: a pool lets go of the rest.
func (s *callPool) put(p *procedure, c Call, little bool) {
	if !s.owned || !p.values || !little {
		p.putCall(c)
		return
	}
	if s.of != nil {
		s.of.putCall(s.call)
	}
	s.of, s.call = p, c
}

var works = sync.Pool{New: func() any { return new(work) }}

// answer runs the call in. What the reply refers to may be part of it, if to gathers.
func (s *Server) answer(c *caller, in []byte, to replier) {
	w := works.Get().(*work)
	defer works.Put(w)
	w.answer(s, c, in, to)
}

// answer is [Server.answer] for a goroutine that has a work of its own. It resets w, but for the
// spare Call.
func (w *work) answer(s *Server, c *caller, in []byte, to replier) {
	defer func() {
		*w = work{e: w.e, spare: w.spare}
		w.e.Reset(nil)
	}()
	w.d.Reset(in, xdr.InPlace)
	if w.call.DecodeXDR(&w.d); w.d.Err() != nil {
		to.end(nil)
		return
	}
	w.reply.XID = w.call.XID
	switch {
	case s.run(c, w, to):
	case w.none:
		to.end(nil)
	default:
		to.begin(&w.e)
		w.reply.EncodeXDR(&w.e)
		to.end(&w.e)
	}
}

// run runs the call and has reply and results sent. If it returns false, they are not, and w.reply
// or w.none says how it failed.
func (s *Server) run(c *caller, w *work, to replier) (sent bool) {
	p := s.find(w)
	if p == nil {
		return false
	}
	ctx, err := c.context(&w.call.Cred)
	if err == nil && s.allow != nil {
		err = s.allow(ctx, p.service, p.number)
	}
	if err != nil {
		if !errors.Is(err, ErrAuth) {
			err = &AuthError{AuthTooWeak}
		}
		fault(&w.reply, err)
		return false
	}
	call := w.spare.get(p)
	defer func() {
		w.spare.put(p, call, sent && w.d.Offset() <= inline && w.e.Size() <= inline)
	}()
	if err := w.do(ctx, p, call, s.decoded); err != nil {
		w.none = errors.Is(err, ErrNoReply)
		fault(&w.reply, err)
		if !w.none {
			s.logFailure(ctx, c, w, p, err)
		}
		return false
	}
	to.begin(&w.e)
	from := w.e.Size()
	w.reply.EncodeXDR(&w.e)
	if call.EncodeXDR(&w.e); w.e.Err() != nil {
		s.logger.Error("vrpc: results cannot be sent", "service", p.service.Name, "procedure", p.name, "peer", c.addr, "err", w.e.Err())
		fault(&w.reply, w.e.Err())
		return false
	}
	if n := w.e.Size() - from; n > s.limit {
		s.logger.Error("vrpc: results are too long", "service", p.service.Name, "procedure", p.name, "peer", c.addr, "bytes", n)
		fault(&w.reply, ErrTooLarge)
		return false
	}
	to.end(&w.e)
	return true
}

// do decodes the arguments, into so much memory if decoded is not 0, and calls the procedure.
func (w *work) do(ctx context.Context, p *procedure, call Call, decoded int) error {
	w.d.Reset(w.d.Rest(), p.memory)
	if decoded > 0 {
		w.d.Limit(decoded)
	}
	if call.DecodeXDR(&w.d); w.d.Err() != nil || len(w.d.Rest()) > 0 {
		return ErrGarbageArgs
	}
	return call.Do(ctx)
}

// logFailure logs why a call failed, where the caller is told less than that.
func (s *Server) logFailure(ctx context.Context, c *caller, w *work, p *procedure, err error) {
	level, text := slog.LevelError, "vrpc: procedure failed"
	switch {
	case w.d.Err() != nil:
		// Client and server were made of different .x files, or the client is hostile.
		level, text, err = slog.LevelWarn, "vrpc: arguments cannot be decoded", w.d.Err()
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		level = slog.LevelDebug // no caller waits for the results any more
	case w.reply.Outcome != rpcmsg.SystemErr:
		return // the caller is told
	}
	s.logger.Log(ctx, level, text, "service", p.service.Name, "procedure", p.name, "peer", c.addr, "err", err)
}

// find finds the procedure, or says in w.reply what is wrong.
func (s *Server) find(w *work) *procedure {
	r := &w.reply
	if w.call.RPC != rpcmsg.Version {
		r.Outcome, r.Low, r.High = rpcmsg.RPCMismatch, rpcmsg.Version, rpcmsg.Version
		return nil
	}
	k := key{w.call.Program, w.call.Version}
	if p := w.spare.of; p != nil && p.number == w.call.Procedure && p.key == k {
		return p // tables only grow
	}
	t := s.table.Load()
	procs, ok := t.procedures[k]
	if !ok {
		r.Outcome = rpcmsg.ProgUnavail
		if low, high, ok := t.versions(w.call.Program); ok {
			r.Outcome, r.Low, r.High = rpcmsg.ProgMismatch, low, high
		}
		return nil
	}
	p := procs[w.call.Procedure]
	if p == nil {
		r.Outcome = rpcmsg.ProcUnavail
	}
	return p
}

// appendReply appends a reply without results.
func appendReply(b []byte, r *rpcmsg.Reply) []byte {
	b, _ = xdr.Append(b, r) // a reply of ours has a short verifier, or none
	return b
}
