package daemon

import (
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// peerTransport is the HTTP transport to another node. From the results of calls it notices when
// the node becomes unreachable and reachable again, and logs that.
type peerTransport struct {
	*http.Transport
	n    *Node
	host hosts.Host

	mu          sync.Mutex
	unreachable bool
	contacted   bool // a call was made before; the first answer is always logged
}

// idempotent lists the calls that may be repeated.
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

// RoundTrip sends a request to the node. A reused connection may break because the node was
// restarted since: an idempotent call is then repeated once on a new connection.
func (w *peerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	var kept atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { kept.Store(i.Reused) },
	})
	a, err := w.Transport.RoundTrip(r.WithContext(ctx))
	if err != nil && kept.Load() && idempotent[r.URL.Path] && r.GetBody != nil && ctx.Err() == nil {
		again := r.WithContext(r.Context())
		if again.Body, err = r.GetBody(); err == nil {
			a, err = w.Transport.RoundTrip(again)
		}
	}
	if err == nil || ctx.Err() == nil { // else the caller gave up, which says nothing about the node
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
		w.n.driverLog.Warn("another node is lost", "node", w.host.Name, "address", w.host.Control, "err",
			err)
	case err == nil && (first || changed):
		w.n.driverLog.Info("another node is found", "node", w.host.Name, "address", w.host.Control)
	}
}
