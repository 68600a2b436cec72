// Package daemon is a node: it serves the processes of one machine over a unix
// socket and other nodes over one TCP port, checks rights, matches imports to
// exports, and hands over descriptors. Then it steps aside: it maps nothing and
// no data passes through it.
package daemon

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/local"
)

// Config is what a node needs to know.
type Config struct {
	Name     string         // in Hosts, if there are any
	Socket   string         // path of the unix socket; "@name" is one without a file
	Hosts    []hosts.Host   // all nodes; empty: this one alone
	Listen   string         // TCP address for nodes and tools; empty: the one in Hosts
	Identity *cert.Identity // needed to listen
	Version  string         // of the product, for who asks
	Log      *slog.Logger

	SpawnRoot bool     // let other nodes start programs as root here
	Admins    []string // users who may administer the node, beside root and the daemon's own

	State      string   // directory for what outlives the daemon; empty: the node has no sessions
	Drives     string   // directory of the drives of sessions; empty: one in State
	Supervisor []string // the program, with arguments, that calls supervise.Main
}

// Node is a running node.
type Node struct {
	cfg         Config
	log         *slog.Logger
	incarnation uint64
	started     time.Time
	peers       map[string]*peer // the other nodes
	unix        *unixSocket
	tcp         *front // nil when this node is alone

	mu        sync.Mutex
	processes map[uint32]*process
	links     map[uint64]*dialled
	conns     map[*local.Conn]struct{}
	children  children
	closed    bool
	sessions  sessions

	ctx    context.Context // ends when the node is closed
	cancel context.CancelFunc

	wg sync.WaitGroup
}

// Start brings a node up. It serves until Close.
func Start(cfg Config) (*Node, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	n := &Node{
		cfg: cfg, log: cfg.Log, incarnation: random64(), started: time.Now(),
		processes: map[uint32]*process{}, links: map[uint64]*dialled{}, peers: map[string]*peer{}, conns: map[*local.Conn]struct{}{},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if err := n.configure(); err != nil {
		return nil, err
	}
	var err error
	if n.unix, err = listenUnix(cfg.Socket); err != nil {
		return nil, err
	}
	if cfg.Identity != nil && n.cfg.Listen != "" {
		if n.tcp, err = n.listenTCP(); err != nil {
			n.unix.close()
			return nil, err
		}
	}
	// Before programs come that were started by a daemon before this one.
	if err := n.recallSessions(); err != nil {
		n.log.Warn("the sessions cannot be used", "state", cfg.State, "err", err)
	}
	n.wg.Go(n.acceptProcesses)
	n.log.Info("node is up", "node", cfg.Name, "socket", cfg.Socket, "listen", n.Addr())
	return n, nil
}

func (n *Node) configure() error {
	if err := hosts.CheckName(n.cfg.Name); err != nil {
		return code.New(code.BadConfig, "node name: %v", err)
	}
	if id := n.cfg.Identity; id != nil && (id.Kind != cert.Node || id.Name != n.cfg.Name) {
		return code.New(code.BadConfig, "the certificate is for %s %q, this node is %q", id.Kind, id.Name, n.cfg.Name)
	}
	if len(n.cfg.Hosts) == 0 {
		n.cfg.Hosts = []hosts.Host{{Name: n.cfg.Name, Control: n.cfg.Listen, Data: n.cfg.Listen}}
		return nil
	}
	self, ok := hosts.Lookup(n.cfg.Hosts, n.cfg.Name)
	if !ok {
		return code.New(code.BadConfig, "node %q is not in the hosts file, which names %s: use one of them", n.cfg.Name, names(n.cfg.Hosts))
	}
	if n.cfg.Listen == "" {
		n.cfg.Listen = self.Control
	}
	if n.cfg.Identity == nil && len(n.cfg.Hosts) > 1 {
		return code.New(code.BadConfig, "node %q has other nodes to talk to but no certificate: make one with `vmmc cert node`", n.cfg.Name)
	}
	for _, h := range n.cfg.Hosts {
		if h.Name != n.cfg.Name {
			n.peers[h.Name] = newPeer(n.cfg.Identity, h)
		}
	}
	return nil
}

// Addr is the TCP address that the node listens on, or "".
func (n *Node) Addr() string {
	if n.tcp == nil {
		return ""
	}
	return n.tcp.addr()
}

// Socket is the path of the unix socket.
func (n *Node) Socket() string { return n.cfg.Socket }

// Close stops serving and waits until nothing of the node runs, which includes
// the programs that it has started: they are asked to end (SIGTERM), and soon
// killed. Those of sessions go on, as established links of others do.
func (n *Node) Close() {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.closed = true
	n.mu.Unlock()
	n.endChildren()
	n.cancel()
	n.mu.Lock()
	for c := range n.conns {
		c.Close()
	}
	n.mu.Unlock()
	n.unix.close()
	if n.tcp != nil {
		n.tcp.close()
	}
	for _, p := range n.peers {
		p.close()
	}
	n.wg.Wait()
	n.sessions.close()
	n.log.Info("node is down", "node", n.cfg.Name)
}

func names(hs []hosts.Host) string {
	s := ""
	for i, h := range hs {
		if i > 0 {
			s += ", "
		}
		s += h.Name
	}
	return s
}

func random64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return binary.LittleEndian.Uint64(b[:])
}

// acceptProcesses serves local processes.
func (n *Node) acceptProcesses() {
	for {
		c, err := n.unix.l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			n.log.Warn("accept a process", "err", err)
			time.Sleep(10 * time.Millisecond) // out of descriptors: others may close some
			continue
		}
		if err := n.serveProcess(c); err != nil {
			n.log.Warn("a process was refused", "err", err)
			_ = c.Close()
		}
	}
}

// track keeps c until it ends; false when the node is closing.
func (n *Node) track(c *local.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.conns[c] = struct{}{}
	return true
}

func (n *Node) untrack(c *local.Conn) {
	n.mu.Lock()
	delete(n.conns, c)
	n.mu.Unlock()
}

// lookup finds a process of this node.
func (n *Node) lookup(pid uint32) (*process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.processes[pid]; p != nil {
		return p, nil
	}
	return nil, code.New(code.NoSuchProcess, "node %q has no process %d", n.cfg.Name, pid)
}

// peerNode finds another node.
func (n *Node) peerNode(name string) (*peer, error) {
	if p := n.peers[name]; p != nil {
		return p, nil
	}
	return nil, code.New(code.NoSuchNode, "no node %q: the nodes are %s", name, names(n.cfg.Hosts))
}

func ctxCause(ctx context.Context, what string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), context.Cause(ctx))
}
