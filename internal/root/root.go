// Package root is the layout of VMMC_ROOT, the directory that a node keeps its
// things in.
package root

import (
	"path/filepath"

	"github.com/vmmc-go/vmmc/internal/env"
)

// Env names the directory.
const Env = "VMMC_ROOT"

// Dir is such a directory; "" is none.
type Dir string

// FromEnv is the one that the environment names.
func FromEnv() Dir { return Dir(env.Get(Env)) }

// Hosts is the file that lists the cluster's nodes.
func (d Dir) Hosts() string { return d.below("vmmc-hosts.txt") }

// Certs is the directory with the node's certificate.
func (d Dir) Certs() string { return d.below("certs") }

// Logs is the directory of server.log and driver.log.
func (d Dir) Logs() string { return d.below("logs") }

// State is the directory of what outlives the daemon.
func (d Dir) State() string { return d.below("state") }

// Socket is where the daemon listens for the processes of its machine.
func (d Dir) Socket() string { return d.below("run", "node.sock") }

func (d Dir) below(names ...string) string {
	if d == "" {
		return ""
	}
	return filepath.Join(append([]string{string(d)}, names...)...)
}
