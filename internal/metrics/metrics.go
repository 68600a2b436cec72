// Package metrics serves a node's metrics for Prometheus and its health.
// It is apart from the daemon so that programs with a node inside do without it.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Server answers GET /metrics and /healthz.
type Server struct {
	l    net.Listener
	http *http.Server
	done chan struct{}
}

// Check says why an address cannot be listened on. Clients are not authenticated there, so
// the address has to be a loopback address.
func Check(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is no address, wanted host:port: %w", address, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%q is not a loopback address, as 127.0.0.1:9464 is: what is told there is told to everybody who can reach it", address)
	}
	return nil
}

// Listen begins to answer about n.
func Listen(address string, n *daemon.Node, name, version string) (*Server, error) {
	if err := Check(address); err != nil {
		return nil, code.New(code.BadConfig, "metrics: %v", err)
	}
	l, err := net.Listen("tcp", address) //nolint:noctx // binding does not wait
	if err != nil {
		return nil, code.New(code.BadConfig, "listen for metrics at %s: %v", address, err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &node{n, name, version})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := n.Health(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	s := &Server{l: l, done: make(chan struct{}), http: &http.Server{
		Handler: mux, ReadHeaderTimeout: timeout.Hello, ReadTimeout: timeout.Hello, WriteTimeout: timeout.Control, IdleTimeout: timeout.Idle, MaxHeaderBytes: 16 << 10,
	}}
	s.http.SetKeepAlivesEnabled(false) // scrapes every ten seconds need none
	go func() {
		defer close(s.done)
		_ = s.http.Serve(newBoundedListener(l))
	}()
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.l.Addr().String() }

// Close ends it.
func (s *Server) Close() {
	ctx, stop := context.WithTimeout(context.Background(), timeout.Stop/10)
	defer stop()
	if err := s.http.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = s.http.Close()
	}
	<-s.done
}

// node is a collector of what a node says of itself.
type node struct {
	n       *daemon.Node
	name    string
	version string
}

var (
	info      = describe("node_info", "The node, and the version of its daemon.", "node", "version")
	up        = describe("node_up", "1 if the node serves all that it is for, 0 if it was taken down, starts or stops.")
	uptime    = describe("node_start_time_seconds", "When the daemon began, in seconds since 1970.")
	processes = describe("processes", "Processes that have joined the node.")
	ends      = describe("links", "Ends of links, by the side of the node's process and the path.", "role", "path")
	linkState = describe("links_by_state", "Ends of links, by the side of the node's process and the state of the connection.", "role", "state")
	sessions  = describe("sessions", "Sessions of the node, by their state.", "state")
	refused   = describe("unauthenticated_refused_total", "Unauthenticated connections that were refused, by why.", "why")
	strangers = describe("strangers_refused_total", "The former name of vmmc_unauthenticated_refused_total.", "why") // for one release

	counters = []struct {
		of   int
		desc *prometheus.Desc
	}{
		{shmlayout.Messages, total("messages", "Messages sent, by the end that counted them.")},
		{shmlayout.Bytes, total("bytes", "Bytes of messages and updates, by the end that counted them.")},
		{shmlayout.Notifications, total("notifications", "Notifications, by the end that counted them.")},
		{shmlayout.Gets, total("gets", "Gets, by the end that counted them.")},
		{shmlayout.GetBytes, total("get_bytes", "Bytes of gets, by the end that counted them.")},
		{shmlayout.Atomics, total("atomics", "Atomic operations, by the end that counted them.")},
		{shmlayout.Updates, total("updates", "Passes of automatic update that carried something.")},
		{shmlayout.Acks, total("acknowledgements", "Acknowledgements sent and received.")},
		{shmlayout.Resumes, total("resumes", "Times that a broken connection of a link was made anew.")},
		{shmlayout.Resent, total("resent", "Messages that were sent again.")},
		{shmlayout.ResentBytes, total("resent_bytes", "Bytes that were sent again.")},
		{shmlayout.Duplicates, total("duplicates", "Messages that a broken connection left unacknowledged, and that were not sent again because the exporter had them.")},
	}
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("vmmc_"+name, help, labels, nil)
}

func total(name, help string) *prometheus.Desc {
	return describe("link_"+name+"_total", help, "role")
}

// Describe lists what Collect gives.
func (c *node) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{info, up, uptime, processes, ends, linkState, sessions, refused, strangers} {
		out <- d
	}
	for _, d := range counters {
		out <- d.desc
	}
}

// Collect looks at the node.
func (c *node) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(info, 1, c.name, c.version)
	well := 1.0
	if c.n.Health() != nil {
		well = 0
	}
	gauge(up, well)
	gauge(uptime, float64(c.n.Began().UnixNano())/float64(time.Second))
	f := c.n.Figures()
	gauge(processes, float64(f.Processes))
	for _, s := range []daemon.Side{{}, {Imports: true}, {Encrypted: true}, {Imports: true, Encrypted: true}, {Mapped: true}, {Imports: true, Mapped: true}} {
		path := "stream"
		switch {
		case s.Mapped:
			path = "mapped"
		case s.Encrypted:
			path = "stream+tls"
		}
		gauge(ends, float64(f.Links[s]), roleOf(s.Imports), path)
	}
	for s, v := range f.LinkStates {
		gauge(linkState, float64(v), roleOf(s.Imports), s.State)
	}
	for state, v := range f.SessionStates {
		gauge(sessions, float64(v), state)
	}
	for why, v := range f.Refused {
		out <- prometheus.MustNewConstMetric(refused, prometheus.CounterValue, float64(v), why)
		out <- prometheus.MustNewConstMetric(strangers, prometheus.CounterValue, float64(v), why)
	}
	for _, d := range counters {
		for role, v := range map[string]uint64{"imports": f.Totals.Imports[d.of], "exports": f.Totals.Exports[d.of]} {
			out <- prometheus.MustNewConstMetric(d.desc, prometheus.CounterValue, float64(v), role)
		}
	}
}

func roleOf(imports bool) string {
	if imports {
		return "imports"
	}
	return "exports"
}
