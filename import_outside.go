package vmmc

import (
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/link/redirect"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// The C library sends and gets on the mapped path, and reads the end of data, without Go. What it
// needs of an import and an export is no part of the API.
func init() {
	link.ImportsOutside.Of = func(im any) (o link.Outside, mayRead, mayWrite, ok bool) {
		i := im.(*Import)
		if i.mapped == nil {
			return o, false, false, false
		}
		return i.mapped.Outside(), i.rights&nodeproto.MayRead != 0, i.rights&nodeproto.MayWrite != 0, true
	}
	link.ImportsOutside.FinishSend = func(im any, off, n int) error {
		i := im.(*Import)
		if err := i.mapped.FinishSend(off, n); err != nil {
			return i.opError("send", n, off, err)
		}
		return nil
	}
	link.ProcessesOutside.Events = func(process any, add func(event any)) {
		tell := func(e Event) { add(e) }
		process.(*Process).outsideEvents.Store(&tell)
	}
	link.ProcessesOutside.SetGate = func(process any, g *link.Gate) {
		process.(*Process).engine.SetGate(g)
	}
	link.ProcessesOutside.GateOpened = func(process any) { process.(*Process).engine.GateOpened() }
	link.RequestsOutside.StoreWhenDone = func(request any, word *atomic.Uint64, value uint64) {
		q := request.(Request)
		q.r.StoreWhenDone(word, value)
	}
	link.ExportsOutside.End = func(ex any) (o redirect.EndOutside, ok bool) {
		e := ex.(*Export)
		if e.redirect == nil {
			return o, false
		}
		return e.redirect.Outside(), true
	}
}
