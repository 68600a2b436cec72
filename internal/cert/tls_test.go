package cert

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"
)

type end struct {
	state tls.ConnectionState
	err   error
}

// connect runs a handshake and sends a byte from the server to the client: in TLS
// 1.3 a client learns only by reading that the server did not want it.
func connect(t *testing.T, server, client *tls.Config) (s, c end) {
	t.Helper()
	sp, cp := net.Pipe()
	for _, p := range []net.Conn{sp, cp} {
		defer p.Close()
		if err := p.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan end)
	go func() {
		conn := tls.Server(sp, server)
		err := conn.Handshake()
		if err == nil {
			_, err = conn.Write([]byte{1})
		}
		done <- end{conn.ConnectionState(), err}
	}()
	conn := tls.Client(cp, client)
	err := conn.Handshake()
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	c = end{conn.ConnectionState(), err}
	return <-done, c
}

// cluster makes an authority and identities of nodes and of users, by name.
func cluster(t *testing.T, name string, now func() time.Time) map[string]*Identity {
	t.Helper()
	a, err := newAuthority(name, now)
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]*Identity)
	for name, kind := range map[string]Kind{"a": Node, "b": Node, "ann": User} {
		if ids[name], err = a.issue(kind, name); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

func TestHandshake(t *testing.T) {
	ids := cluster(t, "c", time.Now)
	// By the same authority, as if it had issued for a cluster not its own.
	astray := func(id *Identity) *Identity {
		other := *id
		other.Cluster = "d"
		return &other
	}
	stranger := cluster(t, "c", time.Now)
	old := cluster(t, "c", clock(time.Now().AddDate(-2, 0, 0)))
	oldNow := func(id *Identity) *Identity {
		later := *id
		later.now = time.Now
		return &later
	}
	anonymous := ids["b"].ClientTLS("a")
	anonymous.Certificates = nil

	tests := []struct {
		name           string
		server, client *tls.Config
		serverSays     string // "" for no error; the other end then has an alert, or nothing
		clientSays     string
	}{
		{name: "node to node", server: ids["a"].ServerTLS(), client: ids["b"].ClientTLS("a")},
		{name: "user to node", server: ids["a"].ServerTLS(), client: ids["ann"].ClientTLS("a")},
		{name: "node to itself", server: ids["a"].ServerTLS(), client: ids["a"].ClientTLS("a")},
		{
			name: "another node answers", server: ids["b"].ServerTLS(), client: ids["ann"].ClientTLS("a"),
			clientSays: `the certificate is for node "b" of cluster "c", wanted node "a" of cluster "c"`,
		},
		{
			name: "a node's name has no case", server: ids["a"].ServerTLS(), client: ids["ann"].ClientTLS("A"),
		},
		{
			name: "a user answers", server: ids["ann"].ServerTLS(), client: ids["b"].ClientTLS("ann"),
			clientSays: `the certificate is for user "ann" of cluster "c", wanted node "ann"`,
		},
		{
			name: "server of another authority", server: stranger["a"].ServerTLS(), client: ids["b"].ClientTLS("a"),
			clientSays: `connect to node "a" of cluster "c": the certificate for node "a" of cluster "c" is not one of cluster "c" by our ca.pem`,
		},
		{
			name: "client of another authority", server: ids["a"].ServerTLS(), client: insecure(stranger["b"]),
			serverSays: "certificate signed by unknown authority", clientSays: "remote error",
		},
		{
			name: "server of another cluster", server: ids["a"].ServerTLS(), client: astray(ids["b"]).ClientTLS("a"),
			clientSays: `the certificate is for node "a" of cluster "c", wanted cluster "d"`,
		},
		{
			name: "client of another cluster", server: astray(ids["a"]).ServerTLS(), client: insecure(ids["b"]),
			serverSays: `the certificate is for node "b" of cluster "c", wanted cluster "d"`, clientSays: "remote error",
		},
		{
			name: "no client certificate", server: ids["a"].ServerTLS(), client: anonymous,
			serverSays: "client didn't provide a certificate", clientSays: "remote error",
		},
		{
			name: "server expired", server: old["a"].ServerTLS(), client: oldNow(old["b"]).ClientTLS("a"),
			clientSays: `the certificate for node "a" of cluster "c" is good from ` + date(old["a"].pair.Leaf.NotBefore),
		},
		{
			name: "client expired", server: oldNow(old["a"]).ServerTLS(), client: old["b"].ClientTLS("a"),
			serverSays: "certificate has expired", clientSays: "remote error",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, c := connect(t, tt.server, tt.client)
			if tt.serverSays == "" && tt.clientSays == "" {
				if s.err != nil || c.err != nil {
					t.Fatalf("server: %v; client: %v", s.err, c.err)
				}
				return
			}
			if s.err == nil || c.err == nil {
				t.Fatalf("server: %v; client: %v; wanted both to fail", s.err, c.err)
			}
			if !strings.Contains(s.err.Error(), tt.serverSays) {
				t.Errorf("server says %q, wanted %q", s.err, tt.serverSays)
			}
			if !strings.Contains(c.err.Error(), tt.clientSays) {
				t.Errorf("client says %q, wanted %q", c.err, tt.clientSays)
			}
		})
	}
}

// insecure is a client that does not verify the server, so that only the server's check
// decides.
func insecure(id *Identity) *tls.Config {
	c := id.ClientTLS("")
	c.VerifyConnection = nil
	return c
}

func TestPeerOf(t *testing.T) {
	ids, err := Ephemeral("c", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	s, c := connect(t, ids["a"].ServerTLS(), ids["b"].ClientTLS("a"))
	for who, state := range map[string]tls.ConnectionState{"a": c.state, "b": s.state} {
		if p, err := ids["a"].PeerOf(state); err != nil || p != ids[who].Peer {
			t.Errorf("PeerOf = %v, %v, wanted %v", p, err, ids[who])
		}
	}

	stranger := cluster(t, "c", time.Now)["a"]
	if p, err := stranger.PeerOf(s.state); err == nil {
		t.Errorf("an identity of another authority took the peer for %v", p)
	}
	half := s.state
	half.HandshakeComplete = false
	if p, err := ids["a"].PeerOf(half); err == nil {
		t.Errorf("before the handshake's end the peer is %v", p)
	}
	if p, err := ids["a"].PeerOf(tls.ConnectionState{HandshakeComplete: true}); err == nil {
		t.Errorf("without a certificate the peer is %v", p)
	}
	// The authority's own certificate is well signed but names neither a node nor a user.
	self := tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{ids["a"].ca}}
	if p, err := ids["a"].PeerOf(self); err == nil {
		t.Errorf("the authority passes for %v", p)
	}
}
