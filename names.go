package vmmc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeconn"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// publishedIDs is the first of the ids that Process.Publish gives. Those from 0xE0000000 on are the
// library's.
const publishedIDs = 0xF0000000

// Publish exports mem under a name: [Process.Export] with an id that the library chooses, and then
// [Export.PublishAs]. If the name cannot be had, nothing stays exported. The ids from 0xE0000000 on
// are the library's; [Export.ID] says which one it has chosen. Errors: those of both calls.
//
// Experimental: it may change in any release.
func (p *Process) Publish(
	ctx context.Context, name string, mem []byte, opts ...ExportOption,
) (*Export, error) {
	op := fmt.Sprintf("publish %d bytes as %q", len(mem), name)
	if ctx == nil {
		return nil, fail(op, errNilContext)
	}
	if _, err := p.ownName(name); err != nil {
		return nil, fail(op, err)
	}
	var e *Export
	var err error
	for range shmlayout.Slots + 1 { // a process has no more exports
		id := publishedIDs + p.memory.lastPublished.Add(1)%(1<<32-publishedIDs)
		if e, err = p.Export(id, mem, opts...); !errors.Is(err, ErrBufAlreadyExists) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if err := e.PublishAs(ctx, name); err != nil {
		e.abandon()
		return nil, err
	}
	return e, nil
}

// PublishAs gives the export a name, by which [Process.ImportName] finds it. "queue" is known on
// this node; "n2/queue" is the same on node n2, and [ErrBadName] on another one. "/queue" is known
// in the whole cluster. Write a name as importers do: a look-up never tries another scope.
//
// A name has 1 to 128 bytes of UTF-8 without "/" and without control and format characters, and
// neither begins nor ends with a space. Names that begin with a dot are for packages. A name
// belongs to this process's user and session; other users and sessions have names of their own.
// Which processes may import is a matter of the export ([Permit]).
//
// The name ends with the export, with the process, or by [Export.Unpublish]. It outlives the
// daemon, or else the event [NameLost] tells. To publish again what this export has is no error.
//
// Errors: [ErrBadName]; [ErrNameTaken], whose Peer and text name the owner; [ErrTimeout] or
// [ErrCanceled] when the context ends, and ErrTimeout also if processes that may have the name have
// not come back ten seconds after a restart of the daemon; [ErrNoMem] beyond 16 names of an export,
// 16,384 of a process, 65,536 of a user, and if the daemon's disk is full; [ErrRevoked] if the
// export ends meanwhile; [ErrNotImplemented] if the daemon is older than names, or nodes that keep
// "/queue" are; [ErrUnreachable] if most of these cannot be reached; [ErrNoDaemon], [ErrClosed], [ErrNotInHandler]. After ErrTimeout and
// ErrCanceled the export may have the name all the same, until Unpublish or the daemon's restart.
//
// Experimental: it may change in any release.
func (e *Export) PublishAs(ctx context.Context, name string, opts ...NameOption) error {
	op := e.publishOp(name)
	if err := inHandler(op); err != nil {
		return err
	}
	if ctx == nil {
		return e.opError(op, errNilContext)
	}
	r, err := e.p.ownClaim(name, opts)
	if err != nil {
		return e.opError(op, err)
	}
	return e.publishAs(ctx, name, r)
}

func (e *Export) publishOp(name string) string {
	return fmt.Sprintf("publish buffer %d as %q", e.id, name)
}

// publishAs is PublishAs of a name that ownClaim has read.
func (e *Export) publishAs(ctx context.Context, name string, r nodeproto.PublishRequest) error {
	op := e.publishOp(name)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(e.p.ctx, stop)()
	r.ID, r.Serial, r.Slot, r.State = e.id, e.serial, e.slot, e.liveState
	taken, err := e.publish(ctx, r)
	if err != nil {
		return e.opError(op, e.p.interrupted(ctx, err))
	}
	if taken != nil {
		owner := ProcessID{NodeID{taken.Node}, PID(taken.PID)}
		f := failf(op, ErrNameTaken,
			"%v has the name: close its export, take another name, or publish it InSet everywhere", owner)
		f.Peer = owner.String()
		return f
	}
	return nil
}

// publish asks the node for a name, and notes it for the next daemon. taken is the process that has
// it.
func (e *Export) publish(
	ctx context.Context, r nodeproto.PublishRequest,
) (taken *nodeproto.ProcessID, err error) {
	p := e.p
	if err := e.naming.Acquire(ctx); err != nil {
		return nil, err
	}
	defer e.naming.Release()
	for {
		p.memory.mu.Lock()
		announced := p.memory.announced
		p.memory.mu.Unlock()
		a, err := askNames[nodeproto.Published](ctx, p, nodeproto.Publish, r)
		p.memory.mu.Lock()
		live := e.state == exportExported
		noted := live && announced == p.memory.announced && err == nil && a.Taken == nil
		if noted && !slices.ContainsFunc(e.names, r.SameName) {
			e.names = append(e.names, r)
		}
		p.memory.mu.Unlock()
		switch {
		case !live || errors.Is(err, code.BadRbufState):
			return nil, code.New(code.Revoked, "the export is closed, or was closed meanwhile")
		case err != nil, a.Taken != nil, noted:
			return a.Taken, err
		}
		// Another daemon came after this one had answered, and has not been told of the name.
	}
}

// Unpublish takes a name away from the export. Imports that were made stay. A name that the export
// does not have is no error.
//
// Errors: [ErrBadName]; [ErrTimeout] or [ErrCanceled] when the context ends; [ErrNotImplemented],
// [ErrNoDaemon], [ErrClosed], [ErrNotInHandler]. After an error the name may still be there.
//
// Experimental: it may change in any release.
func (e *Export) Unpublish(ctx context.Context, name string) error {
	op := fmt.Sprintf("unpublish buffer %d as %q", e.id, name)
	if err := inHandler(op); err != nil {
		return err
	}
	if ctx == nil {
		return e.opError(op, errNilContext)
	}
	r, err := e.p.ownName(name)
	if err != nil {
		return e.opError(op, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(e.p.ctx, stop)()
	if err := e.unpublish(ctx, nodeproto.PublishRequest{Name: r.Name, Cluster: r.Cluster, ID: e.id, Serial: e.serial}); err != nil {
		return e.opError(op, e.p.interrupted(ctx, err))
	}
	return nil
}

func (e *Export) unpublish(ctx context.Context, r nodeproto.PublishRequest) error {
	p := e.p
	if err := e.naming.Acquire(ctx); err != nil {
		return err
	}
	defer e.naming.Release()
	if err := p.checkNames(ctx); err != nil {
		return err
	}
	p.memory.mu.Lock() // first, so that the next daemon is not told of it
	e.names = slices.DeleteFunc(slices.Clone(e.names), r.SameName)
	p.memory.mu.Unlock()
	_, err := askNames[nodeproto.Empty](ctx, p, nodeproto.Unpublish, r)
	return err
}

// loseNames drops those of some names that the process cannot keep, and tells the program. over says
// what has happened.
func (p *Process) loseNames(
	of []nodeproto.PublishRequest, lost []nodeproto.LostName, over string,
) {
	for _, l := range lost {
		if l.At < 0 || l.At >= len(of) { // the daemon errs
			continue
		}
		r := of[l.At]
		p.memory.mu.Lock()
		e := p.memory.exports[r.ID]
		had := e != nil && e.state == exportExported && slices.ContainsFunc(e.names, r.SameName)
		if had { // else the program has ended it meanwhile
			e.names = slices.DeleteFunc(slices.Clone(e.names), r.SameName)
		}
		p.memory.mu.Unlock()
		if !had {
			continue
		}
		ev := Event{Kind: NameLost, Export: e, Name: nodeproto.NameRef{Name: r.Name, Cluster: r.Cluster}.String()}
		op := fmt.Sprintf("keep the name %q of buffer %d %s", ev.Name, e.id, over)
		f := fail(op, code.New(l.Code, "%s", l.Why))
		if l.Taken != nil {
			ev.Peer = processID(*l.Taken)
			f = failf(op, ErrNameTaken, "%v has it now", ev.Peer)
			f.Peer = ev.Peer.String()
		}
		ev.Err = f
		p.log.Warn("a name is lost", "name", ev.Name, "buffer", e.id, "why", f)
		p.dispatchEvent(ev, nil)
	}
}

// ownName reads a name that this process is to publish.
func (p *Process) ownName(name string) (nodeproto.NameRef, error) {
	r, err := nodeproto.ParseName(name)
	if err == nil && r.Node != "" && r.Node != p.id.Node {
		err = code.New(code.BadName,
			"node %q knows the names of its own processes: this one is on node %q", r.Node, p.id.Node)
	}
	return r, err
}

// ownClaim reads a name that this process is to publish, and its options.
func (p *Process) ownClaim(name string, opts []NameOption) (nodeproto.PublishRequest, error) {
	var o nameOptions
	for _, f := range opts {
		if f == nil {
			return nodeproto.PublishRequest{}, code.New(code.BadArg, "an option is nil")
		}
		f(&o)
	}
	r, err := p.ownName(name)
	return nodeproto.PublishRequest{Name: r.Name, Cluster: r.Cluster, Set: o.set}, err
}

// checkNames refuses a request that the daemon does not know.
func (p *Process) checkNames(ctx context.Context) error {
	if err := p.checkOpen(ctx); err != nil {
		return err
	}
	return p.olderThanNames()
}

// olderThanNames is the error of a daemon that does not know names, or nil.
func (p *Process) olderThanNames() error {
	if p.daemonNames.Load() {
		return nil
	}
	return code.New(code.NotImplemented,
		"the daemon at %s is older than names: install this release's vmmcd", p.node.Socket)
}

// askNames makes a request that is about names. An older daemon that came meanwhile does not know
// it, or takes it for another one, and fails it.
func askNames[T any](ctx context.Context, p *Process, m nodeproto.Method, r any) (a T, err error) {
	if err := p.checkNames(ctx); err != nil {
		return a, err
	}
	a, fds, err := nodeconn.Ask[T](ctx, &p.node, m, r, nil)
	closeAll(fds)
	if err != nil {
		err = cmp.Or(p.olderThanNames(), err)
	}
	return a, err
}

// WithName makes [Process.Export] publish the export too, as by [Export.PublishAs] within the ten
// seconds that Export may take. It may be given several times. If a name cannot be had, Export
// fails with the error of PublishAs and nothing stays exported.
//
// Experimental: it may change in any release.
func WithName(name string, opts ...NameOption) ExportOption {
	opts = slices.Clone(opts) // the caller may use its own again
	return func(o *exportOptions) { o.names = append(o.names, exportName{name, opts}) }
}

// exportName is a name that WithName gives.
type exportName struct {
	name string
	opts []NameOption
}

// NameOption changes what [Export.PublishAs] does.
//
// Experimental: it may change in any release.
type NameOption func(*nameOptions)

type nameOptions struct{ set bool }

// InSet lets several exports have the name, all of them with InSet: at most 1,024, of one process
// or of several.
//
// Experimental: it may change in any release.
func InSet() NameOption { return func(o *nameOptions) { o.set = true } }

// FindOption changes what [Process.ImportName] does.
//
// Experimental: it may change in any release.
type FindOption func(*findOptions)

type findOptions struct{ user, session *string }

// OwnedBy looks among the names of another user and session; the session is "" for processes
// outside of sessions.
//
// Experimental: it may change in any release.
func OwnedBy(user, session string) FindOption {
	return func(o *findOptions) { o.user, o.session = &user, &session }
}

// importName is the name by which an import was made.
type importName struct {
	text string // as the program wrote it
	ref  nodeproto.NameRef
}

// ImportName imports what is published under a name, see [Export.PublishAs]. It waits for the name
// as [Process.Import] waits for an export, bounded by the context and told in the log. So it finds
// a server that starts later, or is started again. Of a name that several exports have ([InSet]) it
// takes the next one in turn, counted over all importers, and passes over one that does not answer
// for ten seconds; with [Process.Names] and Import each of them can be had.
//
// For the names of another user or session ([OwnedBy]) it does not wait: the error is [ErrNoRights]
// at once if the name is not there or not for this process, which are not told apart.
//
// Errors: as Import; [ErrBadName]; [ErrNoMem] when 1,024 imports of this process wait for names
// already; [ErrNoSuchProcess] if the name was kept for a program of a group, which has ended;
// [ErrNotImplemented] if a daemon is older than names, or the nodes that keep "/queue" are.
//
// Experimental: it may change in any release.
func (p *Process) ImportName(
	ctx context.Context, name string, opts ...FindOption,
) (*Import, error) {
	op := fmt.Sprintf("import %q", name)
	if err := inHandler(op); err != nil {
		return nil, err
	}
	if ctx == nil {
		return nil, fail(op, errNilContext)
	}
	r, err := nodeproto.ParseName(name)
	if err != nil {
		return nil, fail(op, err)
	}
	var o findOptions
	for _, f := range opts {
		if f == nil {
			return nil, failf(op, ErrBadArg, "an option is nil")
		}
		f(&o)
	}
	// JSON would make other names of them
	if o.user != nil && (!utf8.ValidString(*o.user) || !utf8.ValidString(*o.session)) {
		return nil, failf(op, ErrBadArg,
			"the user %q or the session %q is not valid UTF-8", *o.user, *o.session)
	}
	r.User, r.Session = o.user, o.session
	return p.importName(ctx, &importName{name, r})
}

func (p *Process) importName(ctx context.Context, n *importName) (*Import, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.ctx, stop)() // Close ends a dial, too
	im, err := p.importNamed(ctx, n)
	if err != nil {
		err = p.interrupted(ctx, err)
		f := fail(fmt.Sprintf("import %q", n.text), err)
		if (f.Code == ErrTimeout || f.Code == ErrCanceled) && ctx.Err() != nil {
			f.Err = fmt.Errorf("nobody publishes it, or its owner does not answer: %w", err)
		}
		return nil, f
	}
	return im, nil
}

// importNamed looks the name up and imports what it is for, and does so again if that has ended
// meanwhile. A look-up fails with NoSuchProcess if the process has ended that the name is kept for.
func (p *Process) importNamed(ctx context.Context, n *importName) (*Import, error) {
	defer p.exporters.logWaiting("an import waits for a name: no process publishes it, or its owner does not answer; "+
		"compare the names, and bound the wait by the context", "name", n.text)()
	for pause := time.Millisecond; ; pause = min(2*pause, maxImportPause) {
		found, set := false, false
		im, err := p.importRetrying(ctx, func() (*Import, error) {
			target, err := p.findName(ctx, n)
			if found = err == nil; !found {
				return nil, err
			}
			set = target.found != nil && target.found.Set
			if nameFound != nil {
				nameFound()
			}
			return p.importBuffer(ctx, target)
		})
		switch {
		case errors.Is(err, code.NoSuchProcess) && !found:
			return nil, err
		case errors.Is(err, code.BadRbufState), errors.Is(err, code.NoSuchProcess), errors.Is(err, code.StaleImport),
			errors.Is(err, code.PeerGone):
		case set && errors.Is(err, code.Timeout): // the member may be stopped: the next one in turn
		default:
			return im, err
		}
		if !timeout.Sleep(ctx, pause) {
			return nil, fmt.Errorf("%w: %w", timeout.Ended(ctx), err)
		}
	}
}

// nameFound is called, if a test has set it, between the look-up of a name and the import.
var nameFound func()

// findName asks the node which export has a name.
func (p *Process) findName(ctx context.Context, n *importName) (importTarget, error) {
	g, err := askNames[nodeproto.Grant](ctx, p, nodeproto.Import, nodeproto.ImportRequest{Name: &n.ref})
	if err != nil {
		return importTarget{}, err
	}
	if f := g.Found; f != nil {
		return importTarget{peer: ProcessID{p.Node(), PID(f.PID)}, id: f.Buffer, found: f, named: n}, nil
	}
	return importTarget{
		peer: ProcessID{NodeID{g.Exporter.Node}, PID(g.Exporter.PID)}, id: g.Buffer, grant: &g, named: n,
	}, nil
}

// NameInfo is one published name, as [Process.Names] lists it.
//
// Experimental: it may change in any release.
type NameInfo struct {
	Name    string    // as ImportName takes it
	Process ProcessID // the exporter
	Buffer  uint32    // the export's id
	Size    int       // in bytes
	Set     bool      // reports whether it was published InSet
}

// Names lists the names of this process's user and session that match a pattern, as [path.Match]
// does: "*" on this node, "n2/*" on node n2, "/*" in the cluster. They are in the order of names,
// and those of one name by process. Names that begin with a dot match only a pattern that does. The
// list is not a snapshot: names that come and go meanwhile may be in it or not. It ends with the
// first error. That of "/*" has the names of all nodes that answer within two seconds, and then
// [ErrUnreachable] if there are others.
//
// Errors: [ErrBadArg] for a pattern that cannot be; [ErrNoSuchNode] and [ErrUnreachable] of another
// node; those of [Export.Unpublish].
//
// Experimental: it may change in any release.
func (p *Process) Names(ctx context.Context, pattern string) iter.Seq2[NameInfo, error] {
	return func(yield func(NameInfo, error) bool) {
		op := fmt.Sprintf("list names %q", pattern)
		if err := inHandler(op); err != nil {
			yield(NameInfo{}, err)
			return
		}
		if ctx == nil {
			yield(NameInfo{}, fail(op, errNilContext))
			return
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(p.ctx, stop)()
		if err := p.listNames(ctx, pattern, yield); err != nil {
			yield(NameInfo{}, fail(op, p.interrupted(ctx, err)))
		}
	}
}

// listNames yields names until that returns false.
func (p *Process) listNames(
	ctx context.Context, pattern string, yield func(NameInfo, error) bool,
) error {
	node, rest, found := strings.Cut(pattern, "/")
	r := nodeproto.ListNamesRequest{Node: hosts.Canonical(node), Cluster: found && node == "", Pattern: rest}
	if !found {
		r.Node, r.Pattern = "", pattern
	}
	if _, err := path.Match(r.Pattern, ""); err != nil || r.Pattern == "" ||
		len(r.Pattern) > nodeproto.MaxPattern {
		return code.New(code.BadArg,
			"%.64q is no pattern of 1 to %d bytes, as path.Match takes", r.Pattern, nodeproto.MaxPattern)
	}
	at := nodeproto.NameRef{Node: r.Node, Cluster: r.Cluster}
	var silent []string
	for {
		a, err := askNames[nodeproto.NameList](ctx, p, nodeproto.ListNames, r)
		if err != nil {
			return err
		}
		for _, node := range a.Silent {
			if !slices.Contains(silent, node) {
				silent = append(silent, node)
			}
		}
		owner := p.Node()
		if r.Node != "" {
			owner = NodeID{r.Node}
		}
		for _, row := range a.Rows {
			at.Name = row.Name
			if row.Node != "" {
				owner = NodeID{row.Node}
			}
			if !yield(NameInfo{at.String(), ProcessID{owner, PID(row.PID)}, row.Buffer, row.Size, row.Set}, nil) {
				return nil
			}
			r.After, r.AfterPID, r.AfterBuffer = row.Name, row.PID, row.Buffer
		}
		if !a.More || len(a.Rows) == 0 {
			return silentNodes(silent)
		}
	}
}

// silentNodes is the error of a list of the cluster that lacks the names of some nodes.
func silentNodes(nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	return code.New(code.Unreachable, "the names on %s are not listed: the nodes do not answer",
		strings.Join(nodes, ", "))
}
