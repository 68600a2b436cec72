package daemon

import (
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// peerTransport is how another node is reached. It notices when the node is lost, and found
// again, which is seen when somebody asks it something.
type peerTransport struct {
	*http.Transport
	n    *Node
	host hosts.Host

	mu          sync.Mutex
	unreachable bool
	contacted   bool // before: the first answer finds nothing that was lost
}

// idempotent are the calls that may be made twice.
var idempotent = map[string]bool{
	nodev1connect.NodeServicePingProcedure:             true,
	nodev1connect.ClusterServiceNodesProcedure:         true,
	nodev1connect.SessionServiceListSessionsProcedure:  true,
	nodev1connect.SessionServiceListProcessesProcedure: true,
	nodev1connect.SessionServiceSessionOriginProcedure: true,
	nodev1connect.SessionServiceReadLogProcedure:       true,
	nodev1connect.SystemServiceReadSystemLogProcedure:  true,
	nodev1connect.LinkServiceLinksProcedure:            true,
}

// RoundTrip asks the node. A connection that was kept may end under a call because
// the node has ended before, and it may have been started again: what is harmless
// is asked once more, on a new connection, and the answer is of the node as it is.
func (w *peerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	var kept atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { kept.Store(i.Reused) }})
	a, err := w.Transport.RoundTrip(r.WithContext(ctx))
	if err != nil && kept.Load() && idempotent[r.URL.Path] && r.GetBody != nil && ctx.Err() == nil {
		again := r.WithContext(r.Context())
		if again.Body, err = r.GetBody(); err == nil {
			a, err = w.Transport.RoundTrip(again)
		}
	}
	if err == nil || ctx.Err() == nil { // else who asked has given up, which says nothing
		w.noteResult(err)
	}
	return a, err
}

func (w *peerTransport) noteResult(err error) {
	w.mu.Lock()
	first, changed := !w.contacted, w.unreachable != (err != nil)
	w.contacted, w.unreachable = true, err != nil
	w.mu.Unlock()
	switch {
	case err != nil && changed:
		w.n.driverLog.Warn("another node is lost", "node", w.host.Name, "address", w.host.Control, "err", err)
	case err == nil && (first || changed):
		w.n.driverLog.Info("another node is found", "node", w.host.Name, "address", w.host.Control)
	}
}
