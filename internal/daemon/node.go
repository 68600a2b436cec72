package daemon

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/drives"
	"github.com/vmmc-go/vmmc/internal/daemon/ingress"
	"github.com/vmmc-go/vmmc/internal/daemon/members"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/daemon/names/directory"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/daemon/statedir"
	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Config configures a node.
type Config struct {
	Name     string         // in Hosts, if there are any
	Socket   string         // path of the unix socket; "@name" is one without a file
	Hosts    []hosts.Host   // all nodes; empty: this one alone
	Listen   string         // TCP address for nodes and tools; empty: the one in Hosts
	Identity *cert.Identity // needed to listen
	// Directory that Identity is from, and that is looked at again; may be empty.
	Certs   string
	Version string // of the product, reported to clients
	Log     *slog.Logger
	Logs    string // directory for server.log and driver.log; empty: there are none

	HostsFile string      // that Hosts are from, and that is looked at again; may be empty
	HostsRead os.FileInfo // the file as Hosts were read from it; nil: that is not known

	// The address at which importers of another node dial this one; nil: the one in Hosts.
	DataFor func(node string) string

	Encrypt   bool     // all links of this node with others are encrypted
	SpawnRoot bool     // let other nodes start programs as root here
	Admins    []string // users who may administer the node, beside root and the daemon's own

	State      string   // directory for what outlives the daemon; empty: the node has no sessions
	Drives     string   // directory of the drives of sessions; empty: one in State
	Supervisor []string // the program, with arguments, that calls supervise.Main
}

// Node is a running node. Its parts have files of their names.
type Node struct {
	cfg         Config
	logs        systemlog.Logs
	incarnation uint64
	started     time.Time

	unix        *unixSocket
	tcp         *ingress.Ingress // nil when this node is alone
	identity    *ingress.Identity
	descriptors *ingress.Descriptors
	refusals    *ingress.Refusals
	accounts    users.Accounts
	cluster     *peers.Cluster
	network     network
	registry    registry
	children    children
	broker      broker
	names       names.Table
	directory   *directory.Directory
	listing     perUser // lists of names of this node
	// Lists of names of the cluster.
	clusterListing perUser
	lookups        remoteLookups
	sessions       sessions
	control        control
	disk           *statedir.Disk

	mu    sync.Mutex
	state nodeState // guarded by mu

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	stopWaiting chan struct{} // closed when Close no longer waits for killed children

	wg tasks
}

// nodeState is how far a node has come.
//
//	                              taken down
//	starting ---------------> up ------------> down
//	   |  sessions recovered  | <------------- ^ |
//	   |                      |   brought up   | |
//	   `----------------------|----------------' |
//	      as it was left down |                  |
//	                          `-----> stopping <-'  Close
//
// A node that is starting or stopping can be taken down as well, which ends its epoch (network)
// and is no other state.
type nodeState uint8

const (
	nodeStarting nodeState = iota
	nodeUp
	nodeDown
	nodeStopping
)

func (s nodeState) String() string {
	return [...]string{"starting", "up", "down", "stopping"}[s]
}

var nodeTransitions = state.Table[nodeState]{
	nodeStarting: {nodeUp, nodeDown},
	nodeUp:       {nodeDown, nodeStopping},
	nodeDown:     {nodeUp, nodeStopping},
}

// setState is the only writer of the state. mu is held.
func (n *Node) setState(to nodeState) {
	nodeTransitions.Check(n.state, to)
	n.state = to
}

// isStopping reports whether Close has begun.
func (n *Node) isStopping() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state == nodeStopping
}

// newNode composes a node, which does not serve yet.
func newNode(ctx context.Context, cfg Config) *Node {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Name = hosts.Canonical(cfg.Name)
	n := &Node{
		cfg: cfg, incarnation: random64(), started: time.Now(),
		broker: broker{pending: map[uint64]*pendingLink{}},
		registry: registry{
			processes: map[uint32]*process{}, conns: map[*nodeproto.Conn]struct{}{}, awaitedEnds: map[uint32]*process{},
		},
		accounts:    users.Accounts{Node: cfg.Name, SpawnRoot: cfg.SpawnRoot, Admins: cfg.Admins},
		disk:        statedir.NewDisk(cfg.State),
		stopWaiting: make(chan struct{}),
	}
	n.descriptors = ingress.NewDescriptors(cfg.Name, &n.logs)
	n.refusals = ingress.NewRefusals(&n.logs)
	n.identity = ingress.NewIdentity(cfg.Identity, cfg.Certs, &n.logs)
	n.registry.n, n.broker.n, n.sessions.n, n.children.n = n, n, n, n
	n.network.n, n.control.n = n, n
	n.sessions.dir = statedir.New("")
	n.sessions.drives = drives.New(drives.Config{
		Node: cfg.Name, Dir: cfg.Drives, State: cfg.State, Logs: &n.logs,
	})
	n.ctx, n.cancel = context.WithCancel(ctx)
	n.cluster = peers.New(peers.Config{
		Node: cfg.Name, Listen: cfg.Listen, HostsFile: cfg.HostsFile, Certified: cfg.Identity != nil,
		ClientTLS: n.identity.ClientTLS, Logs: &n.logs, Ping: n.control.ping, Ctx: n.ctx, Go: n.begin,
		Changed: func(nodes []string) { n.directory.SetView(directory.NewView(nodes)) },
	})
	return n
}

// begin starts a goroutine, unless Close has begun, which may not wait any more.
func (n *Node) begin(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != nodeStopping {
		n.wg.Go(f)
	}
}

// Start brings a node up. It serves until Close.
func Start(cfg Config) (*Node, error) {
	n := newNode(context.Background(), cfg)
	if err := n.configure(); err != nil {
		return nil, err
	}
	n.logs.Open(n.cfg.Log, n.cfg.Logs)
	n.network.restore()
	if err := n.serve(); err != nil {
		n.logs.Close()
		return nil, err
	}
	return n, nil
}

func (n *Node) serve() (err error) {
	cfg := n.cfg
	if n.unix, err = listenUnix(cfg.Socket); err != nil {
		return err
	}
	if err = n.registry.journal.Open(members.Config{
		Node: cfg.Name, OwnPID: n.cluster.OwnPID, Log: n.logs.Server, Ended: n.ctx.Done(), Go: n.wg.Go,
	}, cfg.Socket); err != nil {
		// Before a request can ask for earlier members.
		n.unix.hangUp()
		n.unix.unlock()
		return err
	}
	n.directory = n.newDirectory() // with the socket's lock, before another node can ask
	if cfg.State != "" {
		n.sessions.findCgroups() // before another node can ask for a session
	}
	if cfg.Identity != nil && n.cfg.Listen != "" {
		if n.tcp, err = ingress.Listen(ingress.Config{
			Addrs: n.cluster.ListenAddrs(cfg.Listen), TLS: n.identity.ServerTLS(),
			Handler:     n.control.handler(),
			Descriptors: n.descriptors, Refusals: n.refusals, ErrorLog: n.logs.HTTPErrors(),
			DataLink: n.broker.dataLink,
		}); err != nil {
			n.cancel()
			n.wg.Wait()
			n.unix.hangUp()
			n.leaveSocket()
			return err
		}
	}
	// Before programs rejoin that an earlier daemon started.
	if err := n.sessions.restore(); err != nil {
		n.logs.Server.Warn("the sessions cannot be used", "state", cfg.State, "err", err)
	}
	n.mu.Lock()
	n.setState(n.network.state())
	n.mu.Unlock()
	if err := n.sessions.checkPlace(); err != nil {
		n.Close()
		return err
	}
	n.cluster.Watch()
	n.wg.Go(n.registry.accept)
	if err := n.unix.ring(); err != nil {
		n.logs.Server.Warn("the processes of the daemon before this one cannot be woken: they come "+
			"back when they look next", "err", err)
	}
	n.wg.Go(n.registry.sampleLinks)
	n.logs.Server.Info("node is up", "node", cfg.Name, "socket", cfg.Socket, "listen", n.Addr())
	n.logs.DriverFile.Info("node is up", "node", cfg.Name, "listen", n.Addr(), "nodes",
		n.cluster.Roster().String())
	return nil
}

func (n *Node) configure() error {
	if err := hosts.CheckName(n.cfg.Name); err != nil {
		return code.New(code.BadConfig, "node name: %v", err)
	}
	if id := n.cfg.Identity; id != nil && (id.Kind != cert.Node || id.Name != n.cfg.Name) {
		return code.New(code.BadConfig, "the certificate is for %s %q, this node is %q", id.Kind, id.Name,
			n.cfg.Name)
	}
	if err := n.cluster.Begin(n.cfg.Hosts, n.cfg.HostsRead); err != nil {
		return err
	}
	if n.cfg.Listen == "" {
		n.cfg.Listen = n.cluster.Self().Control
	}
	return nil
}

// Addr is the TCP address that the node listens on, or "".
func (n *Node) Addr() string {
	if n.tcp == nil {
		return ""
	}
	return n.tcp.Addr()
}

// Began returns when the node started.
func (n *Node) Began() time.Time { return n.started }

// Socket is the path of the unix socket.
func (n *Node) Socket() string { return n.cfg.Socket }

// Close stops serving and waits until nothing of the node runs, which includes
// the programs that it has started: they are asked to end (SIGTERM), and soon
// killed. Those of sessions go on, as established links of others do.
func (n *Node) Close() {
	n.mu.Lock()
	if n.state == nodeStopping {
		n.mu.Unlock()
		return
	}
	n.setState(nodeStopping)
	n.mu.Unlock()
	n.children.end()
	n.sessions.hangUp() // before the calls of clients end: supervisors then know that these may come back
	n.cancel()
	n.registry.closeConns()
	n.unix.hangUp()
	if n.tcp != nil {
		n.tcp.Close()
	}
	late := time.AfterFunc(timeout.Stop, func() { close(n.stopWaiting) })
	n.wg.Wait()
	late.Stop()
	n.cluster.Close()
	n.sessions.close()
	n.leaveSocket()
	n.logs.Server.Info("node is down", "node", n.cfg.Name)
	n.logs.DriverFile.Info("node is down", "node", n.cfg.Name)
	n.logs.Close()
}

// leaveSocket lets the next daemon have the socket, and leaves beside it what that one needs: the
// count of logical pids, and what processes come back by if there are any (docs/administration.md).
func (n *Node) leaveSocket() {
	n.directory.Close()
	if awaited := n.registry.journal.Close(n.tcp != nil); !awaited {
		n.unix.removeBell()
	}
	n.unix.unlock()
}

func random64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return binary.LittleEndian.Uint64(b[:])
}

func ctxCause(ctx context.Context, what string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), context.Cause(ctx))
}

// Reload reads the hosts file and the certificate again, if there are any, whether
// they have changed or not. What cannot be taken changes nothing.
func (n *Node) Reload() {
	n.identity.Renew(true)
	if n.cfg.HostsFile == "" {
		n.logs.Server.Info("there is no hosts file to read again", "node", n.cfg.Name)
		return
	}
	n.cluster.Reload()
}

// Health is why the node does not serve all that it is for, or nil.
func (n *Node) Health() error {
	n.mu.Lock()
	s := n.state
	n.mu.Unlock()
	if s == nodeStarting || s == nodeStopping {
		return code.New(code.NoDaemon, "node %q is %v", n.cfg.Name, s)
	}
	if why := n.network.reason(); why != "" {
		return code.New(code.Unreachable, "%s", why)
	}
	return n.disk.Fault()
}
