package daemon

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// identity is the node's own, as its files have it: they may be renewed while it runs.
// They are looked at again at a handshake, but not more than once a second. What
// cannot be used changes nothing; connections that are there go on as they began.
type identity struct {
	dir string // "": it does not change

	mu     sync.Mutex
	now    *cert.Identity
	looked time.Time
	stamps []stamp // of the files that now is from, or that could not be used
	failed string  // why they could not be; it was said
}

// stamp tells a file from the one that was there before.
type stamp struct {
	size int64
	at   time.Time
	file os.FileInfo
}

func stampsOf(dir string) (all []stamp) {
	for _, name := range []string{"ca.pem", "cert.pem", "key.pem"} {
		s := stamp{}
		if i, err := os.Stat(filepath.Join(dir, name)); err == nil {
			s = stamp{i.Size(), i.ModTime(), i}
		}
		all = append(all, s)
	}
	return all
}

func (s stamp) there() bool { return s.file != nil }

func (s stamp) same(o stamp) bool {
	return s.size == o.size && s.at.Equal(o.at) && (s.file == nil) == (o.file == nil) &&
		(s.file == nil || os.SameFile(s.file, o.file))
}

// currentIdentity is the node's identity as it is now.
func (n *Node) currentIdentity() *cert.Identity { return n.renewIdentity(false) }

// renewIdentity looks at the files, with again whether or not they have changed.
func (n *Node) renewIdentity(again bool) *cert.Identity {
	id := &n.identity
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.now == nil { // it has not been looked at yet
		id.now = n.cfg.Identity
	}
	if id.dir == "" || !again && time.Since(id.looked) < timeout.HostsFile {
		return id.now
	}
	id.looked = time.Now()
	stamps := stampsOf(id.dir) // before they are read: what changes meanwhile is seen the next time
	if !again && (slices.EqualFunc(stamps, id.stamps, stamp.same) && id.failed == "" ||
		!slices.ContainsFunc(stamps, stamp.there)) {
		return id.now // also where all were taken away, which renews nothing
	}
	next, err := cert.Load(id.dir)
	if err == nil && next.Peer != id.now.Peer {
		err = fmt.Errorf("it is for %v, this node is %v", next.Peer, id.now.Peer)
	}
	if err != nil {
		// One file may be there and the next one not yet: it is looked at again.
		if why := err.Error(); why != id.failed {
			id.failed = why
			n.driver.Warn("the certificate cannot be renewed, the one before goes on", "certs", id.dir,
				"err", err)
		}
		return id.now
	}
	changed := !slices.EqualFunc(stamps, id.stamps, stamp.same)
	id.now, id.stamps, id.failed = next, stamps, ""
	if changed {
		n.driver.Info("the certificate was renewed", "certs", id.dir, "until", next.Until())
	}
	return id.now
}

// serverTLS is for each handshake what the identity is then.
func (n *Node) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := n.currentIdentity().ServerTLS()
			c.NextProtos = []string{"h2", "http/1.1"}
			return c, nil
		},
	}
}

// clientTLS is the same for connecting to another node.
func (n *Node) clientTLS(node string) *tls.Config {
	c := n.currentIdentity().ClientTLS(node)
	c.Certificates = nil
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &n.currentIdentity().ClientTLS(node).Certificates[0], nil
	}
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		return n.currentIdentity().ClientTLS(node).VerifyConnection(cs)
	}
	return c
}
