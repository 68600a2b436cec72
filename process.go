package vmmc

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/update"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Process is this program's membership of a node. A program may open several;
// each is a process of its own to all others.
type Process struct {
	id     local.ProcessID
	parent local.ProcessID
	user   string
	hosts  []string
	log    *slog.Logger

	session hostChoice
	party   string // the session that it has joined

	stop       func() // of an embedded node
	node       tie
	served     uint32      // the user that the daemon was
	pass       string      // by which the next one knows this process
	introduces atomic.Bool // the daemon, which makes links with imports
	page       shmlayout.Process
	engine     *link.Engine
	origin     uint64 // see Export.place

	imported     budget
	limit        time.Duration
	silence      time.Duration
	dialer       func(ctx context.Context, address string) (net.Conn, error)
	capabilities uint64 // of links with other nodes that this process asks for
	encrypt      bool   // it has them encrypted
	dumps        bool   // imported memory is in core dumps
	identity     func() (*encrypt.Identity, error)

	joins    sync.Mutex // one link of an importer begins at a time; taken before mu
	mu       sync.Mutex
	closed   bool
	memories shm.Spans[*Memory]
	exports  map[uint32]*Export
	laid     shm.Spans[*Export] // the same, by where they lie
	redirs   map[*Export]bool   // of them, those that are redirectable
	slots    []uint32           // free slots of the page's state table
	slotTop  uint32             // slots from here on were never used
	last     uint32             // the last one given to an import
	wrapped  bool               // last has begun anew: handles may be in use
	serial   uint64             // the last one given to an export
	lost     uint64             // how often grants have gone with a link
	peers    map[local.ProcessID]*importer
	waiting  map[uint64]*importer // by link, until its importer has dialled
	gone     []local.ProcessID    // of which an event has told; the last ones
	links    map[local.ProcessID]*outLink

	associations map[local.ProcessID]*association // by the other process

	near     map[uint32]local.ProcessID // of links, those to processes of this node, by their pids
	firsts   map[uint32]chan struct{}   // closed when the first import from a process of this node, which makes the link, is over
	bindings map[*Binding]struct{}
	severed  uint64 // the last epoch of the node that is over
	refused  uint64 // the last one whose links importers are refused
	why      error  // what its links ended with

	duty    update.Duty // of all bindings
	dest    destSpace
	events  func(Event)
	begun   sync.WaitGroup  // asynchronous imports, and who watches the daemon
	telling atomic.Int32    // see tell
	news    atomic.Int32    // see linkNews
	life    context.Context // until Close
	die     context.CancelFunc
}

// An Option changes what [Open] does.
type Option func(*options)

type options struct {
	socket  string
	session string
	log     *slog.Logger
	embed   func(context.Context) (socket string, stop func(), err error)
	events  func(Event)

	importLimit  int64
	capabilities uint64
	encrypt      bool
	dumps        bool
	limit        time.Duration
	silence      time.Duration
}

// WithSocket names the node daemon's socket. Without it, $VMMC_SOCKET is used,
// else the system's default. It cannot stand beside [WithEmbedded].
func WithSocket(path string) Option { return func(o *options) { o.socket = path } }

// WithSession joins a session; without it, $VMMCSESSION is used. Processes of
// one user and one session may import from each other, and who else may, each
// export can say ([Permit]).
func WithSession(name string) Option { return func(o *options) { o.session = name } }

// WithLogger takes what the library has to say, which is little: a link that
// was lost, a peer that broke the protocol. At slog.LevelDebug it is more: see
// [SetDebugLevel].
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithPayloadChecksums makes every link with a process on another node carry a
// checksum (CRC32C) of each payload besides those of the frames' headers, which are always
// there. It is enough that one of the two processes asks for it. Damage that the checksums of the
// network did not find is found before the last word of a message is stored. It costs
// both sides a copy and a sum of all data. Memory that processes of one node share is not concerned.
func WithPayloadChecksums() Option { return func(o *options) { o.capabilities |= wire.Checked } }

// WithEncryption has every link with a process on another node encrypted: TLS 1.3 between the two
// processes, each with a certificate that it has made for itself, of which the other learns by the control
// connections of their nodes. It is enough that one of the two processes asks for it, or one of
// their nodes (vmmcd --encrypt); a link is then never made or resumed in clear, and an import from a
// process that cannot encrypt fails. What is sent then can be neither read nor changed on the way, at a
// cost that docs/performance.md states; that messages pass, when, and how long they are can still be seen.
// Memory that processes of one node share is not concerned.
func WithEncryption() Option { return func(o *options) { o.encrypt = true } }

// WithResume is how long links with processes on other nodes may be without a connection. A link whose
// connection breaks is made anew: what was sent arrives once and in order, atomics and notifications
// included, and calls wait meanwhile, as long as their contexts let them. If that has not come about within the limit,
// the link fails with [ErrPeerGone]. Both processes hear of it by [LinkDown] and [LinkResumed]. The limit is counted from when
// something that was sent is late, so a connection that breaks again and again is not waited for longer, if
// nothing arrives between.
//
// The default is 30 s. With 0, or where the other process has said 0, a link fails with its connection.
// A process that ends is not waited for if its node says so; one whose node is gone, too, is waited
// for until the limit, by exporters longer by 5 s and by what they have for [WithSilence], because an importer
// may see a loss that much later. Choose the same for both; where silences have no end, an importer may see it
// still later, and be refused.
func WithResume(limit time.Duration) Option {
	return func(o *options) {
		o.limit = limit
		if o.capabilities &^= wire.Resumes; limit > 0 {
			o.capabilities |= wire.Resumes
		}
	}
}

// WithSilence is how long nothing may be heard of a process on another node before the
// connection with it is given up: when its node has died and nobody is left to end the connection, or when it
// is stopped and owes an answer. Pending calls fail with [ErrPeerGone] then, or after the limit of [WithResume]
// if the link is not resumed within that. The default is 10 s; 0 waits for ever. The time in which
// this process itself did not run is not counted.
func WithSilence(d time.Duration) Option { return func(o *options) { o.silence = d } }

// WithImportsDumped has memory that is imported from other processes of this node, and mapped, in
// core dumps of this process. Otherwise it is left out: it is the exporter's, and a user who may
// read the dump need not be let see it. Debuggers that look at the live process see it in any case.
func WithImportsDumped() Option { return func(o *options) { o.dumps = true } }

// WithEmbedded runs a node for as long as the process is open; package node has
// one to give: vmmc.Open(ctx, node.Embed()). start returns the socket that it
// serves and what ends it.
func WithEmbedded(start func(context.Context) (socket string, stop func(), err error)) Option {
	return func(o *options) { o.embed = start }
}

// Open joins the local node. The context bounds joining only. The error is
// [ErrNoDaemon] when no daemon answers, [ErrNoRights] when another user may have put
// a daemon there, [ErrTimeout] when the context ends, or
// [ErrBadArg] for an option or a socket's path that cannot be. The process lives
// until [Process.Close].
func Open(ctx context.Context, opts ...Option) (*Process, error) {
	if ctx == nil {
		return nil, fail("open", errNilContext)
	}
	o := options{session: env.Get(local.SessionEnv), silence: timeout.Silence, limit: timeout.Resume, capabilities: wire.Resumes}
	for _, f := range opts {
		if f == nil {
			return nil, failf("open", ErrBadArg, "an option is nil")
		}
		f(&o)
	}
	if o.embed != nil && o.socket != "" {
		return nil, failf("open", ErrBadArg, "WithEmbedded runs a node and WithSocket names another one: give one of them")
	}
	if o.importLimit < 0 {
		return nil, failf("open", ErrBadArg, "the import limit is %d bytes, want at least 0", o.importLimit)
	}
	if o.limit < 0 {
		return nil, failf("open", ErrBadArg, "links are to be resumed within %v, want at least 0", o.limit)
	}
	if o.silence < 0 {
		return nil, failf("open", ErrBadArg, "nothing may be heard for %v, want at least 0", o.silence)
	}
	if !utf8.ValidString(o.session) || strings.ContainsRune(o.session, 0) { // which would be another session's name on its way
		return nil, failf("open", ErrBadArg, "the session's name %q (WithSession, or %s) is not valid UTF-8, or has a zero byte: name one as \"vmmc session ls\" shows it",
			o.session, local.SessionEnv)
	}
	p := &Process{
		events: o.events, silence: o.silence,
		log: withDebug(o.log), exports: map[uint32]*Export{}, redirs: map[*Export]bool{}, peers: map[local.ProcessID]*importer{},
		waiting: map[uint64]*importer{}, associations: map[local.ProcessID]*association{}, links: map[local.ProcessID]*outLink{}, near: map[uint32]local.ProcessID{}, firsts: map[uint32]chan struct{}{}, bindings: map[*Binding]struct{}{},
		imported: budget{limit: o.importLimit}, capabilities: o.capabilities, limit: o.limit, dialer: dialTCP,
		encrypt: o.encrypt, dumps: o.dumps, identity: sync.OnceValues(encrypt.NewIdentity),
	}
	p.life, p.die = context.WithCancel(context.Background())
	if err := p.open(ctx, &o); err != nil {
		p.release()
		return nil, fail("open", err)
	}
	return p, nil
}

func (p *Process) open(ctx context.Context, o *options) (err error) {
	if o.embed != nil {
		if o.socket, p.stop, err = o.embed(ctx); err != nil {
			return err
		}
	}
	if p.node.socket = o.socket; p.node.socket == "" {
		p.node.socket = local.DefaultPath()
	}
	s, err := local.Dial(ctx, p.node.socket)
	if err != nil {
		return err
	}
	daemon, err := unix.PeerCred(s)
	if err != nil {
		_ = s.Close()
		return err
	}
	p.served = daemon.UID
	ready := make(chan struct{})
	c := local.Dialled(s, func(ctx context.Context, m local.Method, body []byte, fds []int) (any, []int, error) {
		<-ready
		return p.handler(ctx, m, body, fds)
	})
	c.Trace(p.asked)
	p.node.set(c)
	defer close(ready)
	if p.page, err = shmlayout.NewProcess(); err != nil {
		return err
	}
	var origin [8]byte
	_, _ = rand.Read(origin[:])                             // never fails since Go 1.24
	p.origin = binary.LittleEndian.Uint64(origin[:]) &^ 0x7 // words stay aligned
	if p.engine, err = link.NewEngine(p.page.Board()); err != nil {
		return err
	}
	if invariant.Enabled {
		p.engine.SetTracer(p.step)
	}
	var inc [8]byte
	_, _ = rand.Read(inc[:]) // never fails since Go 1.24
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	counters, err := p.engine.Counters()
	if err != nil {
		return err
	}
	defer closeAll([]int{counters})
	w, _, err := local.Ask[local.Welcome](ctx, c, local.Register, local.Hello{
		Version: local.Version, Incarnation: binary.LittleEndian.Uint64(inc[:]), Session: o.session,
		Token: env.Get(local.TokenEnv),
	}, []int{counters})
	if err != nil {
		return err
	}
	p.id, p.parent, p.user, p.hosts, p.party = w.Process, w.Parent, w.User, w.Hosts, o.session
	p.pass = w.Pass
	p.introduces.Store(w.Introduces)
	p.chooseHosts(env.Get(local.HostsEnv), w.InSession)
	p.log = p.log.With("node", p.id.Node, "pid", p.id.PID) // a program may have several processes
	p.log.Debug("joined", "user", p.user, "session", o.session, "socket", p.node.socket)
	p.begun.Go(p.attend)
	return nil
}

// handler answers the daemon.
func (p *Process) handler(ctx context.Context, m local.Method, body []byte, fds []int) (any, []int, error) {
	start := time.Now()
	out, outFDs, err := p.handle(ctx, m, body, fds)
	p.told(m, time.Since(start), err)
	return out, outFDs, err
}

// Environ is what a program started by this one needs in its environment to
// join the same node: add it to exec.Cmd.Env.
func (p *Process) Environ() []string { return []string{local.Env + "=" + p.node.socket} }

// Close ends all exports and imports, waits for the running notification handler, gives back all
// memory of [Process.Alloc], whose slices must not be touched any more, and leaves the node.
// Goroutines that do so all the same find zeros there and store nowhere, since a program may be
// about to end; [Memory.Close] is stricter. Peers' calls return [ErrRevoked] or [ErrPeerGone]. In a
// notification handler it fails with [ErrNotInHandler].
//
// Close waits for no peer and not for the daemon. What it waits for is this program's own: a
// handler that is running, and with [WithEmbedded] the end of the node.
func (p *Process) Close() error {
	if err := inHandler("close"); err != nil {
		return err
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	exports := make([]*Export, 0, len(p.exports))
	for _, e := range p.exports {
		exports = append(exports, e)
	}
	bindings := slices.Collect(maps.Keys(p.bindings))
	p.mu.Unlock()
	for _, b := range bindings { // while the memory is there
		_ = b.close()
	}
	for _, e := range exports {
		_ = e.end(false)
	}
	p.release()
	p.log.Debug("left")
	return nil
}

func (p *Process) release() {
	p.die()
	p.node.end()
	if p.engine != nil {
		p.engine.Close()
	}
	p.begun.Wait()
	p.mu.Lock()
	memories := p.memories
	p.memories = shm.Spans[*Memory]{}
	p.mu.Unlock()
	for m := range memories.All() {
		m.region.Retire()
	}
	if p.page.Region != nil {
		p.page.Retire()
	}
	if p.stop != nil {
		p.stop()
	}
}

// WaitUntil returns when cond returns true. cond is called again after anything
// that could have changed this process's memory from outside, and between; it
// must only look, at atomics or [Word]s, and never wait. It may be called from
// several goroutines' waits at a time. The goroutine looks for a short while
// and then sleeps, so that waiting costs no processor. The error is the
// context's, [ErrClosed], or in a notification handler [ErrNotInHandler].
func (p *Process) WaitUntil(ctx context.Context, cond func() bool) error {
	if err := inHandler("wait"); err != nil {
		return err
	}
	if ctx == nil {
		return fail("wait", errNilContext)
	}
	if err := p.engine.Wait(ctx, wait.Cond{Until: cond}); err != nil {
		return fail("wait", err)
	}
	return nil
}
