package family

import (
	"errors"
	"os"

	"github.com/vmmc-go/vmmc/internal/cluster"
)

// Cluster brings n nodes up and returns their sockets. Their certificates are on disk only until
// both have read them, so that not even kill -9 of this process leaves a file.
func (f *Family) Cluster(n int) (sockets []string, err error) {
	dir, err := os.MkdirTemp("", "vmmc-"+f.of+"-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := cluster.Prepare(dir, n)
	if err != nil {
		return nil, err
	}
	l.Unlisted()
	for i, n := range l.Nodes {
		if err := f.node(l.Args(i)); err != nil {
			return nil, err
		}
		sockets = append(sockets, n.Socket)
	}
	for _, s := range sockets {
		if err := f.answers(s); err != nil {
			return nil, err
		}
	}
	return sockets, nil
}
