// Package node runs a vmmc node inside a program, so that the program and the
// processes it starts need no daemon. What it runs is the same node that vmmcd
// is.
package node

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Node is a node that runs in this program.
type Node struct {
	d      *daemon.Node
	socket string
}

// An Option changes what [Start] and [Embed] do.
type Option func(*options)

// options are what the options of one node say.
type options struct{ config daemon.Config }

// WithName names the node; it is "local" otherwise.
func WithName(name string) Option { return func(o *options) { o.config.Name = name } }

// WithSocket gives the node a socket in the file system. Otherwise it has one
// without a file, which nothing can leave behind and which only this user's
// processes can use.
func WithSocket(path string) Option { return func(o *options) { o.config.Socket = path } }

// WithLogger takes the node's log.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.config.Log = l } }

// Start runs a node of its own, which knows no others, until Close. Errors are of type
// *[vmmc.Error], for instance [vmmc.ErrBadConfig].
func Start(opts ...Option) (*Node, error) {
	o := options{daemon.Config{Name: "local", Socket: "@vmmc-" + strings.ToLower(rand.Text()), Version: vmmc.Release}}
	for _, f := range opts {
		if f == nil {
			return nil, startError(code.New(code.BadArg, "an option is nil"))
		}
		f(&o)
	}
	d, err := daemon.Start(o.config)
	if err != nil {
		return nil, startError(err)
	}
	return &Node{d: d, socket: o.config.Socket}, nil
}

func startError(err error) error {
	c := code.Unknown
	errors.As(err, &c)
	return &vmmc.Error{Op: "start a node", Code: vmmc.Code(c), Err: err}
}

// Close ends the node, and the programs that it was asked to spawn: they get
// SIGTERM, and SIGKILL two seconds later. Links between other processes that are
// made already go on.
func (n *Node) Close() { n.d.Close() }

// Socket is what processes connect to: give it to [vmmc.WithSocket].
func (n *Node) Socket() string { return n.socket }

// Environ is what a program started by this one needs in its environment to
// join the node.
func (n *Node) Environ() []string { return []string{nodeproto.Env + "=" + n.socket} }

// Embed makes [vmmc.Open] start a node's daemon inside this program, as [Start] does, and join it.
// The daemon has goroutines and a socket of its own, serves other processes that join it, and ends
// when the process is closed. If the environment names a daemon's socket already, no daemon is
// started and the process joins that one: a program that starts copies of itself can therefore
// just call it.
func Embed(opts ...Option) vmmc.Option {
	return vmmc.WithEmbedded(func(context.Context) (string, func(), error) {
		if s := nodeproto.FromEnv(); s != "" {
			return s, func() {}, nil
		}
		n, err := Start(opts...)
		if err != nil {
			return "", nil, err
		}
		return n.Socket(), n.Close, nil
	})
}
