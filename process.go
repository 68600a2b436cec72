package vmmc

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeconn"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/update"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Process is this program's membership of a node. A program may open several;
// each is a process of its own to all others.
type Process struct {
	member
	parent       nodeproto.ProcessID
	hosts        []string
	sessionHosts sessionHostList
	stopEmbedded func() // stops the embedded node; nil: there is none
	addrBase     uint64 // random; see Export.addr

	terms        linkTerms
	memory       memoryTable
	associations associations
	importers    importers
	exporters    exporters

	importBudget budget
	duty         update.Duty // CPU share of all bindings
}

// member is the process as its node knows it: its identity, its connection to the node, what it
// reports, and its background goroutines.
type member struct {
	id      nodeproto.ProcessID
	user    string
	session string // the name of the session that this process joined
	log     *slog.Logger

	node            nodeconn.Conn
	rejoinToken     string      // proves to a later daemon which process this is
	linksWithImport atomic.Bool // the daemon makes the link along with the first import
	daemonNames     atomic.Bool // the daemon knows names
	page            shmlayout.Process
	engine          *link.Engine

	listenersMu       sync.Mutex
	listeners         eventListeners              // Guarded by listenersMu.
	outsideEvents     atomic.Pointer[func(Event)] // see tellOutside
	pendingReports    atomic.Int32                // see reportToNode
	pendingLinkEvents atomic.Int32                // see linkStateChanged

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	closeMu sync.Mutex // held while closed is set, and while a background goroutine starts
	// Reports whether Close has begun; set under memoryTable.mu and associations.mu too.
	closed     atomic.Bool
	background sync.WaitGroup // background goroutines; Close waits for them
}

// begin starts f on a goroutine that Close waits for. It reports false if the process is closed.
func (m *member) begin(f func()) bool {
	m.closeMu.Lock()
	defer m.closeMu.Unlock()
	if m.closed.Load() {
		return false
	}
	m.background.Go(f)
	return true
}

// beginClose closes the process for begin. It reports false if it was closed before.
func (m *member) beginClose() bool {
	m.closeMu.Lock()
	defer m.closeMu.Unlock()
	return !m.closed.Swap(true)
}

// Open joins the local node. The context bounds joining only. The error is
// [ErrNoDaemon] when no daemon answers, [ErrNoRights] when another user may have put
// a daemon there, [ErrTimeout] or [ErrCanceled] when the context ends, or
// [ErrBadArg] for an option or a socket's path that cannot be. The process lives
// until [Process.Close].
func Open(ctx context.Context, opts ...Option) (*Process, error) {
	if ctx == nil {
		return nil, fail("open", errNilContext)
	}
	o := options{session: env.Get(nodeproto.SessionEnv), silence: timeout.Silence, resumeLimit: timeout.Resume, capabilities: wire.Resumes}
	for _, f := range opts {
		if f == nil {
			return nil, failf("open", ErrBadArg, "an option is nil")
		}
		f(&o)
	}
	if o.embed != nil && o.socket != "" {
		return nil, failf("open", ErrBadArg,
			"WithEmbedded runs a node and WithSocket names another one: give one of them")
	}
	if o.importLimit < 0 {
		return nil, failf("open", ErrBadArg,
			"the import limit is %d bytes, want at least 0", o.importLimit)
	}
	if o.resumeLimit < 0 {
		return nil, failf("open", ErrBadArg,
			"links are to be resumed within %v, want at least 0", o.resumeLimit)
	}
	if o.silence < 0 {
		return nil, failf("open", ErrBadArg, "nothing may be heard for %v, want at least 0", o.silence)
	}
	// it would reach the daemon as another session's name
	if !utf8.ValidString(o.session) || strings.ContainsRune(o.session, 0) {
		return nil, failf("open", ErrBadArg, "the session's name %q (WithSession, or %s) is not valid UTF-8, or has a zero byte: name one as \"vmmc session ls\" shows it",
			o.session, nodeproto.SessionEnv)
	}
	p := newProcess(&o)
	if err := p.open(ctx, &o); err != nil {
		p.beginClose()
		p.release()
		return nil, fail("open", contextEnded(ctx, err))
	}
	return p, nil
}

// newProcess makes a process that has not joined its node.
func newProcess(o *options) *Process {
	p := &Process{
		member:       member{log: cmp.Or(o.log, slog.New(slog.DiscardHandler))},
		terms:        linkTerms{capabilities: o.capabilities, encrypt: o.encrypt, silence: o.silence, resumeLimit: o.resumeLimit, dialer: dialTCP, identity: sync.OnceValues(encrypt.NewIdentity)},
		memory:       memoryTable{exports: map[uint32]*Export{}, redirectable: map[*Export]bool{}, bindings: map[*Binding]struct{}{}},
		associations: associations{byPeer: map[nodeproto.ProcessID]*association{}, asked: map[nodeproto.ProcessID]bool{}},
		importers:    importers{byID: map[nodeproto.ProcessID]*importer{}, pendingDials: map[uint64]*importer{}},
		exporters:    exporters{links: map[nodeproto.ProcessID]*exporterLink{}, local: map[uint32]nodeproto.ProcessID{}, pendingFirst: map[uint32]chan struct{}{}, dumpImports: o.dumpImports},
		importBudget: budget{limit: o.importLimit},
	}
	p.terms.member, p.associations.member, p.importers.member, p.exporters.member = &p.member, &p.member, &p.member, &p.member
	p.importers.terms, p.importers.memory, p.importers.associations = &p.terms, &p.memory, &p.associations
	p.exporters.terms, p.exporters.associations = &p.terms, &p.associations
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.Subscribe(o.eventHandler)
	return p
}

func (p *Process) open(ctx context.Context, o *options) (err error) {
	if o.embed != nil {
		if o.socket, p.stopEmbedded, err = o.embed(ctx); err != nil {
			return err
		}
	}
	ready := make(chan struct{})
	defer close(ready)
	if p.node.Socket = o.socket; p.node.Socket == "" {
		p.node.Socket = nodeproto.DefaultPath()
	}
	p.node.Process = nodeconn.Process{
		Handle: func(ctx context.Context, m nodeproto.Method, body []byte, fds []int) (any, []int, error) {
			<-ready
			return p.handleLogged(ctx, m, body, fds)
		},
		Trace: p.logRequest, Rejoin: p.rejoin,
		Gone: func(why error) {
			p.dispatchEvent(Event{Kind: NodeGone, Err: failf("node", ErrNoDaemon, "the node's daemon has ended: %v", why)}, nil)
		},
		Back: func() { p.dispatchEvent(Event{Kind: NodeBack}, nil) },
	}
	c, err := p.node.Dial(ctx)
	if err != nil {
		return err
	}
	if p.page, err = shmlayout.NewProcess(); err != nil {
		return err
	}
	var origin [8]byte
	_, _ = rand.Read(origin[:])                               // never fails since Go 1.24
	p.addrBase = binary.LittleEndian.Uint64(origin[:]) &^ 0x7 // words stay aligned
	if p.engine, err = link.NewEngine(p.page.Board()); err != nil {
		return err
	}
	if invariant.Enabled {
		p.engine.SetTracer(p.logStep)
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
	w, _, err := nodeproto.Ask[nodeproto.Welcome](ctx, c, nodeproto.Register, nodeproto.Hello{
		Version: nodeproto.Version, Incarnation: binary.LittleEndian.Uint64(inc[:]), Session: o.session,
		Token: env.Get(nodeproto.TokenEnv),
	}, []int{counters})
	if err != nil {
		return err
	}
	p.id, p.parent, p.user, p.hosts, p.session = w.Process, w.Parent, w.User, w.Hosts, o.session
	p.rejoinToken = w.Pass
	p.linksWithImport.Store(w.Introduces)
	p.daemonNames.Store(w.Names)
	p.chooseHosts(env.Get(nodeproto.HostsEnv), w.InSession)
	p.log = p.log.With("node", p.id.Node, "pid", p.id.PID) // a program may have several processes
	p.log.Debug("joined", "user", p.user, "session", o.session, "socket", p.node.Socket)
	p.background.Go(func() { p.node.Watch(p.ctx, p.log) })
	return nil
}

// Environ is what a program started by this one needs in its environment to
// join the same node: add it to exec.Cmd.Env.
func (p *Process) Environ() []string { return []string{nodeproto.Env + "=" + p.node.Socket} }

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
	p.memory.mu.Lock()
	p.associations.mu.Lock() // PeerGone is not dispatched any more
	first := p.beginClose()
	p.associations.mu.Unlock()
	if !first {
		p.memory.mu.Unlock()
		return nil
	}
	exports := make([]*Export, 0, len(p.memory.exports))
	for _, e := range p.memory.exports {
		exports = append(exports, e)
	}
	bindings := slices.Collect(maps.Keys(p.memory.bindings))
	p.memory.mu.Unlock()
	for _, b := range bindings { // while the memory is there
		_ = b.close()
	}
	for _, e := range exports {
		_ = e.endExport(false)
	}
	p.release()
	p.log.Debug("left")
	return nil
}

func (p *Process) release() {
	p.cancel()
	p.node.Close()
	if p.engine != nil {
		p.engine.Close()
	}
	p.background.Wait()
	p.memory.mu.Lock()
	allocations := p.memory.allocations
	p.memory.allocations = shm.Spans[*Memory]{}
	p.memory.mu.Unlock()
	for m := range allocations.All() {
		m.region.Retire()
	}
	if p.page.Region != nil {
		p.page.Retire()
	}
	if p.stopEmbedded != nil {
		p.stopEmbedded()
	}
}

// WaitUntil returns when cond returns true. cond is called again after anything that could have
// changed this process's memory from outside, and between; it must only read atomics or [Word]s,
// and never wait. Waits of several goroutines may call it at the same time. The goroutine polls
// briefly and then sleeps, so that waiting uses no CPU. The error is the context's, [ErrClosed], or
// in a notification handler [ErrNotInHandler].
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

// WaitAny returns the index of a watch whose word differs from its old value, as
// soon as there is one: words of several exports may be waited for at once. When
// there are several, it is the first. Errors as [Word.Wait]; [ErrBadArg] without
// a watch, or with one of the zero Word.
//
// It also returns when an import that a watch has as From has ended ([Import.Done]), with the index
// of that watch and what [Import.Err] says. A word that changed before is returned first: where the
// exporter is gone, all that it has sent is there.
func (p *Process) WaitAny(ctx context.Context, ws ...Watch) (int, error) {
	const op = "wait for words"
	if ctx == nil {
		return 0, fail(op, errNilContext)
	}
	if len(ws) == 0 {
		return 0, failf(op, ErrBadArg, "there is nothing to wait for")
	}
	for i := range ws {
		if ws[i].Word.w == nil {
			return 0, failf(op, ErrBadArg, "watch %d is of no export: Export.Word gives words", i)
		}
		if im := ws[i].From; im != nil && im.p != p {
			return 0, failf(op, ErrBadArg, "the import of watch %d is another process's", i)
		}
	}
	i, gone := 0, -1
	err := p.WaitUntil(ctx, func() bool {
		if i = changed(ws); i >= 0 {
			return true
		}
		if gone = ended(ws); gone >= 0 {
			i = changed(ws) // by what came before the end
		}
		return gone >= 0
	})
	if i >= 0 || err != nil {
		return max(i, 0), err
	}
	f := fail(op, ws[gone].From.Err())
	f.Peer = ws[gone].From.peer.String()
	return gone, f
}

// Fence returns when every process that this one imports from has taken all that this process sent
// to it before, as [Import.Fence] of every import does. It waits for all at the same time. Imports
// that had ended before are left out. The errors of those that end meanwhile, and of exporters that
// do not answer within the context, are joined; all others are fenced then.
//
// Experimental: it may change in any release.
func (p *Process) Fence(ctx context.Context) error {
	if ctx == nil {
		return fail("fence", errNilContext)
	}
	if p.closed.Load() {
		return fail("fence", code.New(code.Closed, "the process is closed"))
	}
	var room [4]*exporterLink // a lock's Unlock fences: with few exporters nothing is allocated
	links := p.exporters.ready(room[:0])
	var err error
	waits := links[:0]
	for _, l := range links {
		if l.requester.AllApplied() { // returns at once, and says which imports have ended
			err = joined(err, l.fence(ctx))
		} else {
			waits = append(waits, l)
		}
	}
	if len(waits) == 1 {
		err = joined(err, waits[0].fence(ctx))
	} else if len(waits) > 1 {
		err = joined(err, fenceAll(ctx, waits))
	}
	if err != nil {
		return fail("fence", err)
	}
	return nil
}

// fenceAll fences links at the same time.
func fenceAll(ctx context.Context, links []*exporterLink) error {
	errs := make([]error, len(links))
	var wg sync.WaitGroup
	for i, l := range links {
		wg.Go(func() { errs[i] = l.fence(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// joined is errors.Join, which allocates nothing where there is one error at most.
func joined(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}

// Release is the version of this library.
const Release = "0.1.0-dev"

// WordSize is the size in bytes of a VMMC word (vmmc_WordSize).
func WordSize() int { return shm.WordSize }

// PageSize is the size in bytes of a VMMC page, the larger of 4096 and the
// system's (vmmc_PageSize).
func PageSize() int { return shm.PageSize }

// checkOpen returns an error when the process is closed or the context has ended.
func (m *member) checkOpen(ctx context.Context) error {
	if m.closed.Load() {
		return code.New(code.Closed, "the process is closed")
	}
	if ctx.Err() != nil {
		return timeout.Ended(ctx)
	}
	return nil
}

// interrupted gives an error that a call met the reason that its caller knows: that the process is
// closed, or that ctx has ended.
func (m *member) interrupted(ctx context.Context, err error) error {
	if m.closed.Load() && !errors.Is(err, code.Closed) {
		return code.New(code.Closed, "the process is closed (%v)", err)
	}
	return contextEnded(ctx, err)
}

// Spawn starts a program on a node (vmmc_Spawn) and returns once it runs, with
// the logical pid that it will have. An Import from that pid may follow at once:
// it waits until the program has joined, and fails with [ErrNoSuchProcess] if it
// ends before. The program's own [Process.Parent] is this process.
//
// args are the arguments from the first one on; argument 0 is path. The program
// starts in this process's working directory, which must exist on that node, and
// a relative path is relative to it; $PATH is not searched. It runs as the same
// user: on this node with the very rights that this process joined with, on
// another one as the user of the same name there. A daemon that is not run by
// root starts programs for its own user only, and no daemon starts programs as
// root for other nodes unless it was told to.
//
// This process's environment is not handed on. The program gets PATH, HOME, USER,
// LOGNAME and the like as the node has them, the session of this process as
// VMMCSESSION, its VMMCHOSTS, and the node's socket as VMMC_SOCKET. Its standard
// input is empty, and what it prints goes nowhere.
//
// The program outlives this process. It ends with its node's daemon, or the
// embedded node: on an orderly stop that sends SIGTERM to the program's process
// group, and soon SIGKILL. A daemon that crashed leaves it running.
//
// That is so where the session is a name. If the node has a session of this name
// (vmmc session add), the program runs in the session of that name on the other
// node, which must be there, as the session's user: in the same place of the
// session's drive, which must be this process's too, and so for a path below it.
// What it prints is kept, and it ends with the session and not with the daemon.
//
// Errors: [ErrBadArg] for an empty path, a zero byte, more than 32 KiB of
// arguments, a directory or program that is not there or cannot be executed (the
// text says which); [ErrNotInHandler]; [ErrNoRights]; [ErrNoSuchNode]; [ErrNoSuchSession];
// [ErrUnreachable]; [ErrNoMem]. If an error is also [ErrOutcomeUnknown], as it is when the context
// ends or a node is lost meanwhile, the program may run all the same.
// Spawn never tries twice by itself.
//
// Experimental: it may change in any release.
func (p *Process) Spawn(
	ctx context.Context, node NodeID, path string, args ...string,
) (PID, error) {
	if err := inHandler(fmt.Sprintf("spawn %q on node %q", path, node.name)); err != nil {
		return 0, err
	}
	if ctx == nil {
		return 0, fail(fmt.Sprintf("spawn %q on node %q", path, node.name), errNilContext)
	}
	pid, err := p.spawn(ctx, node, path, args)
	if err != nil {
		return 0, fail(fmt.Sprintf("spawn %q on node %q", path, node.name), p.interrupted(ctx, err))
	}
	p.log.Debug("spawned", "on", node, "process", pid, "path", path)
	return PID(pid), nil
}

func (p *Process) spawn(
	ctx context.Context, node NodeID, path string, args []string,
) (uint32, error) {
	if err := p.checkOpen(ctx); err != nil {
		return 0, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("the working directory: %w", err)
	}
	r := nodeproto.SpawnRequest{Node: node.name, Path: []byte(path), Directory: []byte(dir), Hosts: []byte(p.sessionHosts.env)}
	for _, a := range args {
		r.Args = append(r.Args, []byte(a))
	}
	if err := r.Check(""); err != nil {
		return 0, err
	}
	c, err := p.node.Await(ctx)
	if err != nil {
		return 0, err
	}
	s, fds, err := nodeproto.Ask[nodeproto.Spawned](ctx, c, nodeproto.Spawn, r, nil) // once
	closeAll(fds)
	if err != nil && (ctx.Err() != nil || errors.Is(err, code.NoDaemon)) {
		err = fmt.Errorf("%w (the program may run: %w)", err, code.OutcomeUnknown)
	}
	return s.PID, err
}

// Subscribe runs h for each external event that comes from now on, until cancel is called. Any
// number of parts of a program may subscribe, beside the handler of [WithEvents].
//
// An event runs the handler of WithEvents first and then the others in the order of their
// subscription, on the goroutine that runs notification handlers. What [WithEvents] says of its
// handler holds for each. A handler that takes long delays the other handlers of the event, later
// events, and the notifications of this process, and with them senders that have 64 notifications
// under way. It delays no data.
//
// Both Subscribe and cancel may be called in a handler. When cancel has returned, h runs at
// most once more, for an event whose handlers are being run. Blocking notifications after cancel
// waits for that run ([Process.BlockNotifications], then [Process.UnblockNotifications]). A second
// call has no effect. A nil h is told nothing.
//
// What has happened before is not told: subscribe before importing, or look at [Import.Err]
// afterwards. A [LinkResumed] may be the first event of its link.
//
// Experimental: it may change in any release.
func (p *Process) Subscribe(h func(Event)) (cancel func()) {
	if h == nil {
		return func() {}
	}
	return p.subscribe(h)
}

// Parent is the process that spawned this one (vmmc_Parent); it may have ended.
// The error is [ErrNoParent] for a process that was not started by
// [Process.Spawn]. Programs that a spawned one starts in other ways are not
// spawned, even with its environment.
//
// Experimental: it may change in any release.
func (p *Process) Parent() (ProcessID, error) {
	if p.parent.Node == "" {
		return ProcessID{}, failf("parent", ErrNoParent, "no other process spawned this one")
	}
	return ProcessID{NodeID{p.parent.Node}, PID(p.parent.PID)}, nil
}

// Alloc allocates size bytes (a positive multiple of the word) of zeroed
// exportable memory, in pages of its own, present from the start. Each
// allocation is protected as a whole: export one allocation per purpose. It lives
// until [Memory.Close] or [Process.Close].
//
// [ErrNoMem] comes before a page is touched if the machine has less memory left, or one of the
// cgroups that this process is in: the kernel would give the memory and kill for it when it is
// used. What others take meanwhile cannot be foreseen. Other errors: [ErrBadSize],
// [ErrBadAlignment], [ErrClosed].
func (p *Process) Alloc(size int) (*Memory, error) {
	op := fmt.Sprintf("allocate %d bytes", size)
	switch {
	case size <= 0:
		return nil, failf(op, ErrBadSize, "the size must be positive")
	case size%shm.WordSize != 0:
		return nil, failf(op, ErrBadAlignment,
			"the size is not a multiple of the word (%d bytes)", shm.WordSize)
	}
	r, err := shm.New("vmmc", size, false)
	if err != nil {
		return nil, &Error{Op: op, Code: ErrNoMem, Err: err}
	}
	m := &Memory{p: p, region: r, size: size}
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	if p.closed.Load() {
		r.Retire()
		return nil, failf(op, ErrClosed, "the process is closed")
	}
	p.memory.allocations.Add(m.Bytes(), m)
	return m, nil
}
