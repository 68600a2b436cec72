package daemon

import (
	"net/http"
	"sync"

	"github.com/vmmc-go/vmmc/internal/hosts"
)

// way is how another node is reached. It notices when the node is lost, and found
// again, which is seen when somebody asks it something.
type way struct {
	*http.Transport
	n    *Node
	host hosts.Host

	mu   sync.Mutex
	lost bool
	used bool // before: the first answer finds nothing that was lost
}

// RoundTrip asks the node.
func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := w.Transport.RoundTrip(r)
	if err == nil || r.Context().Err() == nil { // else who asked has given up, which says nothing
		w.seen(err)
	}
	return a, err
}

func (w *way) seen(err error) {
	w.mu.Lock()
	first, changed := !w.used, w.lost != (err != nil)
	w.used, w.lost = true, err != nil
	w.mu.Unlock()
	switch {
	case err != nil && changed:
		w.n.driverLog.Warn("another node is lost", "node", w.host.Name, "address", w.host.Control, "err", err)
	case err == nil && (first || changed):
		w.n.driverLog.Info("another node is found", "node", w.host.Name, "address", w.host.Control)
	}
}
