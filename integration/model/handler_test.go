package model_test

import (
	"context"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

var _ = declare(
	"calls in a handler", "Export", "Import", "ImportAsync", "Export.Close", "Import.Close", "Process.Close", "Word.Wait", "WaitUntil",
	"WaitAny", "WaitNotified", "Request.Wait", "UnblockNotifications", "BlockNotifications", "Get", "Send", "SendNotify without credit",
)

// script is what the handler of one notification does: that with this word.
type script struct {
	word uint32
	run  func()
}

// inHandler has the handler of an export run f, and returns when it has.
func (s *sequence) inHandler(im *imported, f func()) {
	s.fenceOf(im) // f may look at what was sent before
	s.drain()
	done := make(chan struct{})
	ctx, stop := s.within()
	defer stop()
	s.dispatch(notification(im), func(src []byte) error {
		im.exp.script.Store(&script{le(src), func() { f(); close(done) }})
		return im.im.SendNotify(ctx, src, 0)
	})
	select {
	case <-done:
	case <-time.After(bound):
		s.fail("a notification did not run")
	}
}

// calm reports whether a notification by an import is sure to run at once.
func (im *imported) calm() bool {
	e := im.exp
	return im.live() && e.handler && !e.discards && e.rights&mayWrite != 0 && e.owner.level == 0
}

// inside makes calls in a handler: most may not be made there.
func (s *sequence) inside() {
	im := s.anImport()
	if im == nil || !im.calm() {
		return
	}
	e := im.exp
	p := e.owner
	w, err := e.e.Word(0)
	s.expect("Export.Word", err, ok)
	var own *imported // by which the handler may get and send
	for _, o := range s.imports {
		if o.p == p && o.live() && o.exp.rights == mayRead|mayWrite {
			own = o
			break
		}
	}
	ctx, stop := s.within()
	defer stop()
	s.say("%s: a handler that calls all that it may not", p.name)
	type call struct {
		name string
		err  error
		want []result
	}
	var calls []call
	no := results(vmmc.ErrNotInHandler)
	var dst []byte
	sent := sending{im: own, call: "Send", n: 4}
	src := s.fill(4)
	data := append([]byte{}, src...)
	s.inHandler(im, func() {
		add := func(name string, err error, want ...result) { calls = append(calls, call{name, err, want}) }
		_, err := p.p.Export(77, make([]byte, 4))
		add("Export", err, no...)
		_, err = p.p.Import(ctx, p.id.Node, p.id.PID, e.id)
		add("Import", err, no...)
		_, err = manual.ImportAsync(ctx, p.p, p.id.Node, p.id.PID, e.id).Status()
		add("ImportAsync", err, no...)
		add("Export.Close", e.e.Close(), no...)
		add("Import.Close", im.im.Close(), no...)
		add("Process.Close", p.p.Close(), no...)
		_, err = w.Wait(ctx, w.Load())
		add("Word.Wait", err, no...)
		add("WaitUntil", p.p.WaitUntil(ctx, func() bool { return true }), no...)
		_, err = p.p.WaitAny(ctx, vmmc.Watch{Word: w, Old: w.Load()})
		add("WaitAny", err, no...)
		_, err = e.e.WaitNotified(ctx, e.e.Notified())
		add("WaitNotified", err, no...)
		_, err = p.p.UnblockNotifications()
		add("UnblockNotifications", err, no...)
		p.p.BlockNotifications()
		n, err := p.p.UnblockNotifications()
		if err == nil && n != 1 {
			err = vmmc.ErrProtocol
		}
		add("BlockNotifications", err, ok)
		if own == nil {
			return
		}
		dst = make([]byte, 4)
		add("Get", own.im.Get(ctx, dst, 0), ok)
		add("Send", own.im.Send(ctx, src, 0), ok)
		if r, err := own.im.GetAsync(ctx, make([]byte, 4), 0); err == nil {
			add("Request.Wait", r.Wait(ctx), no...)
			for r.Status() == error(vmmc.ErrInProgress) && ctx.Err() == nil { //nolint:errorlint // Status returns it as it is
				time.Sleep(10 * time.Microsecond)
			}
		}
	})
	for _, c := range calls {
		s.expect(c.name+" in a handler", c.err, c.want...)
		reach("calls in a handler", c.name)
	}
	if own != nil {
		s.fetched(own, dst, 0, true)
		s.sent(&sent, data, s.now)
	}
}

// noCredit has a handler of the sender send one notification more than there are
// credits: it may not wait for one.
func (s *sequence) noCredit(full *imported) {
	p := full.p
	if p == full.exp.owner || p.level > 0 || p.limit != 0 {
		return
	}
	e := &export{owner: p, id: 1 + ids, mem: s.allocate(p, 64, false), n: 64, rights: mayRead | mayWrite, mappable: true, handler: true}
	s.offer(e, []vmmc.ExportOption{s.handlerOf(e)})
	ctx, stop := s.within()
	defer stop()
	s.take(p, e, func() (*vmmc.Import, error) { return p.p.Import(ctx, p.id.Node, p.id.PID, e.id) })
	im := s.imports[len(s.imports)-1]
	if !full.live() { // it made room for the new one
		s.unexport(e)
		return
	}
	s.say("%s: a handler that sends a notification without credit", p.name)
	var err error
	s.inHandler(im, func() { err = full.im.SendNotify(context.Background(), make([]byte, 4), 0) })
	s.expect("SendNotify without credit in a handler", err, result{code: vmmc.ErrNoCredit})
	reach("calls in a handler", "SendNotify without credit")
	s.unexport(e)
}
