package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// soon is how long before its end a certificate is worth a warning.
const soon = 30 * 24 * time.Hour

// certificates looks at the identity: dates, name, authority.
func certificates(_ context.Context, n *Node) []Finding {
	const name = "certificates"
	if n.Certs == "" {
		if n.Hosts == "" {
			return nil // a node alone needs none
		}
		return bad(Failed, name, "make one with \"vmmc cert node\" and name its directory with --certs", "there is a hosts file and no certificate")
	}
	again := fmt.Sprintf("issue another one with \"vmmc cert node %s\", and put it into %s", n.Name, n.Certs)
	var out []Finding
	for _, file := range []string{"ca.pem", "cert.pem"} {
		path := filepath.Join(n.Certs, file)
		c, err := readCertificate(path)
		if err != nil {
			return bad(Failed, name, again, "%v", err)
		}
		out = append(out, dates(name, path, c, n.now(), again)...)
	}
	for _, f := range out {
		if f.Status == Failed {
			return out
		}
	}
	id, err := cert.Load(n.Certs)
	if err != nil {
		return bad(Failed, name, again, "%v", err)
	}
	if id.Kind != cert.Node || n.Name != "" && id.Name != n.Name {
		return bad(Failed, name, again+", or name the node as it is with --name", "%s is for %v, this is node %q", n.Certs, id.Peer, n.Name)
	}
	if n.Hosts != "" {
		if list, err := hosts.ReadFile(n.Hosts); err == nil {
			if _, ok := hosts.Lookup(list, id.Name); !ok {
				return bad(Failed, name, "add a line \""+id.Name+" host:port\" to it, the same on all nodes", "node %q is not in %s", id.Name, n.Hosts)
			}
		}
	}
	return append(out, good(name, "%s is for %v", n.Certs, id.Peer)...)
}

func readCertificate(path string) (*x509.Certificate, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// dates judges by the machine's clock, which may be what is wrong.
func dates(name, path string, c *x509.Certificate, now time.Time, again string) []Finding {
	until := c.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case now.Before(c.NotBefore):
		return bad(Failed, name, "set the clock; or else "+again, "%s is good from %s on, and it is %s here", path, c.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case now.After(c.NotAfter):
		return bad(Failed, name, again+"; or set the clock", "%s was good until %s, and it is %s here", path, until, now.UTC().Format(time.RFC3339))
	case c.NotAfter.Sub(now) < soon:
		return bad(Warning, name, again, "%s is good until %s, for %d days", path, until, int(c.NotAfter.Sub(now).Hours()/24))
	}
	return good(name, "%s is good until %s", path, until)
}

// keys finds users who can read or replace the certificate's files.
func keys(ctx context.Context, n *Node) []Finding {
	const name = "keys"
	if n.Certs == "" {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(n.Certs, "ca-key.pem")); err == nil {
		return bad(Failed, name, "move it to where only the administrator gets it: no node needs it", "%s has the authority's key, with which one can be any node and user", n.Certs)
	}
	key := filepath.Join(n.Certs, "key.pem")
	i, err := os.Stat(key)
	if errors.Is(err, fs.ErrNotExist) {
		return bad(Failed, name, "copy all files that \"vmmc cert node\" has made", "%s is not there", key)
	}
	if err != nil {
		return bad(Failed, name, "make it readable by user "+fmt.Sprint(os.Getuid()), "%v", err)
	}
	says := "its owner's alone"
	uid, known := unix.Owner(i)
	gid, _ := unix.Group(i)
	switch m := i.Mode().Perm(); {
	case m&0o077 == 0o040 && known && uid == 0 && runsAs() != 0: // root has it, the daemon reads it
		if err := system.alone(ctx, int(gid), runsAs()); err != nil {
			return bad(Failed, name, "give it to a group that only the daemon's user is in (chgrp)", "%s has mode %04o: %v", key, m, err)
		}
		says = "root's, and its group is the daemon's alone"
		if services := system.unseen(); services != "" {
			says += ", as far as can be seen: users of " + services + " need not be listed"
		}
	case m&0o077 != 0:
		return bad(Failed, name, "chmod 600 "+key+", and issue another one if another user may have read it", "%s has mode %04o: others can read it, and be this node", key, m)
	}
	if f := shared(name, n.Certs); f != nil {
		return f
	}
	f, err := os.Open(key)
	if err != nil {
		return bad(Failed, name, fmt.Sprintf("chown %d %s", os.Getuid(), key), "%v", err)
	}
	_ = f.Close()
	return good(name, "%s is %s", key, says)
}

// shared finds fault with a directory that others can write; certificates need
// not be writable for the node.
func shared(name, dir string) []Finding {
	i, err := os.Stat(dir)
	if err != nil {
		return bad(Failed, name, "name another directory", "%v", err)
	}
	if m := i.Mode().Perm(); m&0o022 != 0 {
		return bad(Failed, name, "chmod go-w "+dir, "%s has mode %04o: others can replace what is there", dir, m)
	}
	return nil
}
