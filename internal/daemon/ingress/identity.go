package ingress

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Identity is the node's own, as its files have it: they may be renewed while it runs.
// They are looked at again at a handshake, but not more than once a second. What
// cannot be used changes nothing; connections that are there go on as they began.
type Identity struct {
	logs *systemlog.Logs
	dir  string // "": it does not change

	mu     sync.Mutex
	now    *cert.Identity // nil: a node without others
	looked time.Time
	stamps []stamp // of the files that now is from, or that could not be used
	failed string  // why they could not be; it was said
}

// NewIdentity returns the identity of a node, with the directory that it is from; "" if it does not
// change.
func NewIdentity(now *cert.Identity, dir string, logs *systemlog.Logs) *Identity {
	id := &Identity{logs: logs, dir: dir, now: now, looked: time.Now()}
	if dir != "" {
		id.stamps = stampsOf(dir)
	}
	return id
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

// Current is the node's identity as it is now.
func (id *Identity) Current() *cert.Identity { return id.Renew(false) }

// Renew looks at the files, with again whether or not they have changed.
func (id *Identity) Renew(again bool) *cert.Identity {
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
			id.logs.Driver.Warn("the certificate cannot be renewed, the former one stays in use", "certs", id.dir,
				"err", err)
		}
		return id.now
	}
	changed := !slices.EqualFunc(stamps, id.stamps, stamp.same)
	id.now, id.stamps, id.failed = next, stamps, ""
	if changed {
		id.logs.Driver.Info("the certificate was renewed", "certs", id.dir, "until", next.Until())
	}
	return id.now
}

// ServerTLS returns a configuration that uses, in each handshake, the certificate and the
// authorities of that moment.
func (id *Identity) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := id.Current().ServerTLS()
			c.NextProtos = []string{"h2", "http/1.1"}
			return c, nil
		},
	}
}

// ClientTLS is the same for connecting to another node.
func (id *Identity) ClientTLS(node string) *tls.Config {
	c := id.Current().ClientTLS(node)
	c.Certificates = nil
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &id.Current().ClientTLS(node).Certificates[0], nil
	}
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		return id.Current().ClientTLS(node).VerifyConnection(cs)
	}
	return c
}
