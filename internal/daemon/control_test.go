//go:build linux

package daemon_test

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// trusting is a client configuration that takes any server, so that the test
// sees the server refuse.
func trusting(id *cert.Identity) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13}
	if id != nil {
		cfg = id.ClientTLS("b")
	}
	cfg.InsecureSkipVerify, cfg.VerifyConnection = true, nil
	return cfg
}

// client speaks to a node's control service.
func client(t *testing.T, addr string, cfg *tls.Config) nodev1connect.NodeServiceClient {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return nodev1connect.NewNodeServiceClient(&http.Client{Transport: tr, Timeout: bound},
		"https://"+addr)
}

// ownCode is the code that a node's answer carries.
func ownCode(err error) error {
	if e, ok := err.(*connect.Error); ok { //nolint:errorlint // the client returns it as it is
		if n, err := strconv.Atoi(e.Meta().Get("Vmmc-Code")); err == nil {
			return &code.Error{Code: code.Code(n), Text: e.Message()}
		}
	}
	return err
}

func TestUntrustedPeersOnTheControlPort(t *testing.T) {
	c := newCluster(t)
	tr := newTraffic(t, c.a, c.b)
	other, err := cert.Ephemeral("test", "a", "b") // another authority, all names alike
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]*tls.Config{
		"no certificate":                           trusting(nil),
		"another cluster's certificate":            trusting(other["a"]),
		"no TLS 1.3":                               {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12},
		"the node is not the one that is expected": c.ids["a"].ClientTLS("c"),
		"another cluster's node expected":          other["a"].ClientTLS("b"),
	} {
		conn, err := tls.Dial("tcp", c.b.Addr(), cfg)
		if err == nil { // a TLS 1.3 client hears the refusal of its certificate later
			_ = conn.SetDeadline(time.Now().Add(bound))
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "tls: ") && !strings.Contains(err.Error(),
			"certificate") {
			t.Errorf("%s: %v, want it refused", name, err)
		}
		if _, err := client(t, c.b.Addr(), cfg).Ping(t.Context(),
			connect.NewRequest(&nodev1.PingRequest{})); err == nil {
			t.Errorf("%s: got an answer", name)
		}
		tr.goesOn(t)
	}
}

func TestWhoMaySpeakForWhom(t *testing.T) {
	ids, ann := userIdentity(t)
	c := clusterOf(t, ids)
	tr := newTraffic(t, c.a, c.b)
	q := open(t, c.b)
	if _, err := q.Export(9, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	me := &nodev1.ProcessID{Node: "a", Pid: 1, Incarnation: 1}
	for name, cfg := range map[string]*tls.Config{
		"a user":       ann.ClientTLS("b"),
		"another node": ids["c"].ClientTLS("b"),
	} {
		cl := client(t, c.b.Addr(), cfg)
		if _, err := cl.Ping(t.Context(), connect.NewRequest(&nodev1.PingRequest{})); err != nil {
			t.Errorf("%s may not ping: %v", name, err)
		}
		_, err := cl.Import(t.Context(), connect.NewRequest(&nodev1.ImportRequest{
			Importer: me, TargetPid: uint32(q.PID()), BufferId: 9,
		}))
		check(t, name+" imports", ownCode(err), code.NoRights,
			"may not speak for a process of node \"a\"")
		_, err = cl.ImportName(t.Context(), connect.NewRequest(&nodev1.ImportNameRequest{
			Importer: me, Name: "x",
		}))
		check(t, name+" imports by name", ownCode(err), code.NoRights,
			"may not speak for a process of node \"a\"")
		_, err = cl.Connect(t.Context(), connect.NewRequest(&nodev1.ConnectRequest{
			Importer: me, TargetPid: uint32(q.PID()),
		}))
		check(t, name+" connects", ownCode(err), code.NoRights)
		_, err = cl.Release(t.Context(), connect.NewRequest(&nodev1.ReleaseRequest{
			Importer: me, TargetPid: uint32(q.PID()),
		}))
		check(t, name+" releases", ownCode(err), code.NoRights)
		_, err = cl.Import(t.Context(), connect.NewRequest(&nodev1.ImportRequest{
			TargetPid: uint32(q.PID()), BufferId: 9,
		}))
		check(t, name+" imports for no process", ownCode(err), code.NoRights)
	}
	tr.goesOn(t)
}

// The address of a node in the hosts file leads to another one.
func TestHostsFileWithAWrongAddress(t *testing.T) {
	c := newCluster(t)
	hs := slices.Clone(c.hosts)
	hs = append(hs, hs[0])
	hs[2].Name = "c"
	hs[2].Control, hs[2].Data = freePort(t), freePort(t)
	hs[1].Control = hs[0].Control // b's, it says, is where a is
	n := c.start(t, "c", hs)
	r := newRaw(t, n, 1, nil)
	ask := func(node string, pid uint32) error {
		_, _, err := nodeproto.Ask[nodeproto.Grant](t.Context(), r.Conn, nodeproto.Import,
			nodeproto.ImportRequest{Node: node, PID: pid, ID: 1}, nil)
		return err
	}
	check(t, "import from a node that is another", ask("b", 1), code.Unreachable, `"b"`, "wanted node")
	check(t, "import from an unknown process of a node", ask("a", 1234), code.NoSuchProcess, "1234",
		`"a"`)
	check(t, "import from an unknown node", ask("z", 1), code.NoSuchNode, `"z"`, "a, b, c")
	c.a.Close()
	check(t, "import from a node that is down", ask("a", 1), code.Unreachable, `"a"`, hs[0].Control)
}
