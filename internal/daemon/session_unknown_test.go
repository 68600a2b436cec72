//go:build linux

package daemon_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// deaf is a way to a node that loses the answers of some calls.
type deaf struct {
	http.RoundTripper
	to []string
}

func (d deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := d.RoundTripper.RoundTrip(r)
	if err == nil && slices.ContainsFunc(d.to,
		func(s string) bool { return strings.HasSuffix(r.URL.Path, s) }) {
		_ = a.Body.Close()
		return nil, errors.New("the answer is lost")
	}
	return a, err
}

// A node that has made a session, and was lost before it could say so, is asked to
// take it back; one of another call stays. Where that is not known either, the
// error names the node.
func TestSessionOfUnknownOutcome(t *testing.T) {
	c := newSessionCluster(t)
	a, b := c.as("user", me(t), "a", nil), c.as("user", me(t), "b", nil)
	id, err := cert.Load(c.at("user-" + me(t)))
	if err != nil {
		t.Fatal(err)
	}
	lossy := func(to ...string) *ask.Cluster {
		host, _ := hosts.Lookup(c.hosts, "b")
		tr := &http.Transport{TLSClientConfig: id.ClientTLS("b"), ForceAttemptHTTP2: true}
		t.Cleanup(tr.CloseIdleConnections)
		way := nodev1connect.NewSessionServiceClient(&http.Client{
			Transport: deaf{tr, to}, Timeout: bound,
		}, "https://"+host.Control)
		return &ask.Cluster{Chosen: []*ask.Node{{Name: "a", Client: a}, {Name: "b", Client: way}}}
	}
	r := &nodev1.AddSessionRequest{
		Name: "job", Drive: "-", Share: t.TempDir(), OutputDirectory: "/out",
	}
	there := func() (names string) {
		for _, s := range []nodev1connect.SessionServiceClient{a, b} {
			l, err := s.ListSessions(t.Context(), connect.NewRequest(&nodev1.ListSessionsRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range l.Msg.GetSessions() {
				names += s.GetName() + " "
			}
		}
		return names
	}
	if err := lossy("/AddSession").AddSession(t.Context(), r); !errors.Is(err, code.Unreachable) ||
		there() != "" {
		t.Errorf("made: %q, and %v", there(), err)
	}
	c.add(b, "job", t.TempDir()) // another one of that name
	if err := lossy("/AddSession").AddSession(t.Context(), r); err == nil || there() != "job " {
		t.Errorf("made: %q, and %v", there(), err)
	}
	if _, err := b.DeleteSession(t.Context(), connect.NewRequest(&nodev1.DeleteSessionRequest{
		Name: "job",
	})); err != nil {
		t.Fatal(err)
	}
	if err := lossy("/AddSession", "/DeleteSession").AddSession(t.Context(), r); err == nil ||
		!strings.Contains(err.Error(), `whether node "b" has made it is not known`) {
		t.Errorf("the error is %v", err)
	}
}
