package vmmc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeconn"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// EventKind says what an [Event] is about.
type EventKind uint8

// The events.
const (
	// PeerGone: another process has ended or cannot be reached any more, which imported from this
	// one or exported to it. It is told once, after the links in both directions have ended:
	// imports from that process are over, and no message, atomic or notification of it arrives any
	// more. A process that lives has to import anew, and its links then begin after the event.
	PeerGone EventKind = iota + 1
	// ImportRevoked: an exporter has closed an export that this process imported.
	ImportRevoked
	// NodeGone: this process's node daemon has ended. Links go on; what needs the daemon waits for
	// the next one at the same socket. [NodeBack] follows if one comes. A node within a program,
	// without a socket file, ends with the program, and nothing can be imported or exported any
	// more.
	NodeGone
	// LinkDown: the connection with another process has broken, and the link is to be
	// resumed; see [WithResume]. [LinkResumed] or [PeerGone] follows.
	LinkDown
	// LinkResumed: the link goes on, and nothing was lost. There was a LinkDown before. While 1024
	// events of these two kinds wait for the handler, no more are added.
	LinkResumed
	// NodeBack: another daemon has taken the place of the one that had ended, and has this process
	// with its exports and links again.
	NodeBack
	// ExportFault: the memory of an export, which is not of [Process.Alloc], cannot be read or
	// written any more: the program has unmapped or protected it, or the file behind it is shorter
	// now. The export is closed, as by [Export.Close].
	ExportFault
	// NameLost: an export could not keep a name, because another process has it, which is then Peer.
	// That is so after a restart of the daemon, before [NodeBack], or for a name of the cluster when
	// this node or that process's comes back into the hosts files of others. The export stays, with
	// its other names.
	//
	// Experimental: it may change in any release.
	NameLost
)

// String is the event's name.
func (k EventKind) String() string {
	switch k {
	case PeerGone:
		return "peer gone"
	case ImportRevoked:
		return "import revoked"
	case NodeGone:
		return "node gone"
	case LinkDown:
		return "link down"
	case LinkResumed:
		return "link resumed"
	case NodeBack:
		return "node back"
	case ExportFault:
		return "export fault"
	case NameLost:
		return "name lost"
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Event is something that happened outside this process and that no call of it
// has asked for.
type Event struct {
	Kind   EventKind
	Peer   ProcessID // the other process, if one is concerned
	Import *Import   // of ImportRevoked
	Export *Export   // of ExportFault and NameLost
	Err    error     // what calls return from now on, or the cause

	// Name is that of NameLost, as [Process.ImportName] takes it.
	//
	// Experimental: it may change in any release.
	Name string
}

// eventListener is one handler of events.
type eventListener struct {
	h         func(Event)
	cancelled atomic.Bool
}

// eventListeners are handlers in the order of their subscription. A slice is never changed.
type eventListeners []*eventListener

// tell runs the handlers that were not cancelled meanwhile.
func (ls eventListeners) tell(e Event) {
	for _, l := range ls {
		if !l.cancelled.Load() {
			l.h(e)
		}
	}
}

// subscribers returns the present listeners.
func (m *member) subscribers() eventListeners {
	m.listenersMu.Lock()
	defer m.listenersMu.Unlock()
	return m.listeners
}

// subscribe adds a listener until cancel is called.
func (m *member) subscribe(h func(Event)) (cancel func()) {
	l := &eventListener{h: h}
	m.listenersMu.Lock()
	m.listeners = append(slices.Clone(m.listeners), l)
	m.listenersMu.Unlock()
	return func() {
		l.cancelled.Store(true)
		m.listenersMu.Lock()
		m.listeners = slices.DeleteFunc(slices.Clone(m.listeners), func(o *eventListener) bool { return o == l })
		m.listenersMu.Unlock()
	}
}

// tellOutside tells an event to the C library, which has a queue of its own that its program takes
// events from. That queue must not wait for notification handlers: they may be blocked, or the
// thread that waits for an event may be the one that runs them. It may be called under
// associations.mu.
func (m *member) tellOutside(e Event) {
	if add := m.outsideEvents.Load(); add != nil {
		(*add)(e)
	}
}

// dispatchEvent queues an event for the program's handlers. responder is the importer's link whose
// notifications run first, or nil.
func (m *member) dispatchEvent(e Event, responder *link.Responder) {
	m.tellOutside(e)
	if ls := m.subscribers(); len(ls) > 0 {
		m.engine.Event(responder, func() { ls.tell(e) })
	}
}

// maxPendingReports bounds the reports that wait for the node's answer. Further events are not
// reported: a peer can cause any number.
const maxPendingReports = 16

// reportToNode reports an event, with its reason, for the node's log, in the background.
func (m *member) reportToNode(e nodeproto.LinkEvent, why error) {
	for n := m.pendingReports.Load(); ; n = m.pendingReports.Load() {
		if n >= maxPendingReports {
			return
		}
		if m.pendingReports.CompareAndSwap(n, n+1) {
			break
		}
	}
	m.begin(func() {
		defer m.pendingReports.Add(-1)
		ctx, stop := context.WithTimeout(m.ctx, timeout.Control)
		defer stop()
		if why != nil {
			e.Why = why.Error()
		}
		_, fds, _ := nodeconn.Ask[nodeproto.Empty](ctx, &m.node, nodeproto.ReportEvent, e, nil)
		closeAll(fds)
	})
}

// dispatchPeerGone queues PeerGone after the notifications of the peer's links, unless this process
// is closed. associations.mu is held.
func (m *member) dispatchPeerGone(
	peer nodeproto.ProcessID, responders []*link.Responder, err error,
) {
	if m.closed.Load() {
		return
	}
	e := Event{Kind: PeerGone, Peer: processID(peer), Err: linkError(peer, err)}
	m.tellOutside(e)
	ls := m.subscribers()
	if len(ls) == 0 {
		return
	}
	tell := func() { ls.tell(e) }
	if len(responders) == 0 {
		m.engine.Event(nil, tell)
		return
	}
	for _, responder := range responders[1:] {
		next := tell
		tell = func() { m.engine.Event(responder, next) }
	}
	m.engine.Event(responders[0], tell)
}

// reportLinkEnd reports a link's end for the node's log.
func (m *member) reportLinkEnd(peer nodeproto.ProcessID, imports bool, err error) {
	kind := nodeproto.LinkDown
	if !errors.Is(err, link.ErrGone) && !errors.Is(err, link.ErrClosed) {
		kind = nodeproto.LinkFailed
	}
	m.reportToNode(nodeproto.LinkEvent{Kind: kind, Peer: peer, Imports: imports}, err)
}

// maxLinkEvents bounds the LinkDown and LinkResumed events that wait for the handler: a peer can
// cause any number while notifications are blocked.
const maxLinkEvents = 1024

// linkStateChanged reports that a link has lost its connection or was resumed. imports reports
// whether this process is the importer.
func (m *member) linkStateChanged(
	peer nodeproto.ProcessID, imports bool, to shmlayout.ConnState, why error,
) {
	e, kind, text := Event{Kind: LinkResumed, Peer: processID(peer)}, nodeproto.LinkResumed, "a link was resumed"
	if !to.Connected() {
		e.Kind, e.Err, kind, text = LinkDown, linkError(peer, why), nodeproto.LinkLost, "a link has lost its connection"
	}
	m.log.Info(text, "peer", peer, "state", to.String(), "why", why)
	m.reportToNode(nodeproto.LinkEvent{Kind: kind, Peer: peer, Imports: imports, State: to.String()}, why)
	m.tellOutside(e)
	ls := m.subscribers()
	if len(ls) == 0 {
		return
	}
	if m.pendingLinkEvents.Add(1) > maxLinkEvents {
		m.pendingLinkEvents.Add(-1)
		return
	}
	m.engine.Event(nil, func() {
		m.pendingLinkEvents.Add(-1)
		ls.tell(e)
	})
}

// linkError is what happened to a link with a process.
func linkError(peer nodeproto.ProcessID, why error) error {
	f := fail("link", why)
	f.Peer = processID(peer).String()
	return f
}

func processID(p nodeproto.ProcessID) ProcessID { return ProcessID{NodeID{p.Node}, PID(p.PID)} }

// inHandler returns an error when it is called in a notification handler.
func inHandler(op string) error {
	if link.InHandler() {
		return failf(op, ErrNotInHandler, "%v", ErrNotInHandler)
	}
	return nil
}
