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
	logs *systemLogs
	dir  string // "": it does not change

	mu     sync.Mutex
	now    *cert.Identity // nil: a node without others
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

// current is the node's identity as it is now.
func (id *identity) current() *cert.Identity { return id.renew(false) }

// renew looks at the files, with again whether or not they have changed.
func (id *identity) renew(again bool) *cert.Identity {
	id.mu.Lock()
	defer id.mu.Unlock()
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
			id.logs.driver.Warn("the certificate cannot be renewed, the former one stays in use", "certs", id.dir,
				"err", err)
		}
		return id.now
	}
	changed := !slices.EqualFunc(stamps, id.stamps, stamp.same)
	id.now, id.stamps, id.failed = next, stamps, ""
	if changed {
		id.logs.driver.Info("the certificate was renewed", "certs", id.dir, "until", next.Until())
	}
	return id.now
}

// serverTLS is for each handshake what the identity is then.
func (id *identity) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := id.current().ServerTLS()
			c.NextProtos = []string{"h2", "http/1.1"}
			return c, nil
		},
	}
}

// clientTLS is the same for connecting to another node.
func (id *identity) clientTLS(node string) *tls.Config {
	c := id.current().ClientTLS(node)
	c.Certificates = nil
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &id.current().ClientTLS(node).Certificates[0], nil
	}
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		return id.current().ClientTLS(node).VerifyConnection(cs)
	}
	return c
}
