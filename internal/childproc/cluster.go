package childproc

import (
	"errors"
	"os"

	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Site is where a node is. The zero Site is on loopback, in this process's own network.
type Site struct {
	Host    string // the address that it listens at
	Network string // the name of a network namespace
}

// Cluster brings n nodes up on loopback and returns their sockets.
func (f *Group) Cluster(
	n int,
) (sockets []string, err error) {
	return f.ClusterAt(make([]Site, n)...)
}

// ClusterAt brings nodes up and returns their sockets, each of which is reached from its node's
// network alone. Their certificates are on disk only until all have read them, so that not even
// kill -9 of this process leaves a file.
func (f *Group) ClusterAt(sites ...Site) (sockets []string, err error) {
	dir, err := os.MkdirTemp(env.TempDir(), "vmmc-"+f.of+"-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	addrs, err := freePorts(sites)
	if err != nil {
		return nil, err
	}
	l, err := cluster.PrepareAt(dir, addrs)
	if err != nil {
		return nil, err
	}
	l.Unlisted()
	for i, n := range l.Nodes {
		if err := unix.InNetwork(sites[i].Network, func() error { return f.node(l.Args(i)) }); err != nil {
			return nil, err
		}
		sockets = append(sockets, n.Socket)
	}
	for i, s := range sockets {
		if err := unix.InNetwork(sites[i].Network, func() error { return f.awaitAnswer(s) }); err != nil {
			return nil, err
		}
	}
	return sockets, nil
}

// freePorts finds an address for each site; those of one host differ.
func freePorts(sites []Site) ([]string, error) {
	addrs := make([]string, len(sites))
	together := map[Site][]int{}
	for i, s := range sites {
		if s.Host == "" {
			s.Host = "127.0.0.1"
		}
		together[s] = append(together[s], i)
	}
	for s, those := range together {
		err := unix.InNetwork(s.Network, func() error {
			found, err := cluster.FreeAddressesOf(s.Host, len(those))
			for k, a := range found {
				addrs[those[k]] = a
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return addrs, nil
}
