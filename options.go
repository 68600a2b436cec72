package vmmc

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/update"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// An Option changes what [Open] does.
type Option func(*options)

type options struct {
	socket       string
	session      string
	log          *slog.Logger
	embed        func(context.Context) (socket string, stop func(), err error)
	eventHandler func(Event)

	importLimit  int64
	capabilities uint64
	encrypt      bool
	dumpImports  bool
	resumeLimit  time.Duration
	silence      time.Duration
}

// WithSocket names the node daemon's socket. Without it, $VMMC_SOCKET is used,
// else the system's default. It cannot stand beside [WithEmbedded].
func WithSocket(path string) Option { return func(o *options) { o.socket = path } }

// WithSession joins a session; without it, $VMMCSESSION is used. Processes of one user and one
// session may import from each other; [Permit] changes this for an export.
func WithSession(name string) Option { return func(o *options) { o.session = name } }

// WithLogger takes what the process has to say; without it, it says nothing. From slog.LevelInfo on
// that is little: a link that was lost, a peer that broke the protocol. At slog.LevelDebug it is
// also joining and leaving, exports, imports, links that are made and lost, and spawns, and at
// slog.LevelDebug-4 each request to the daemon and from it.
//
// Data in flight is not logged, so a logger costs sends nothing: except in a program built with
// the tag vmmcdebug (the manual's vmmcd.lib), which also checks itself. There each message, get,
// atomic and notification is logged at slog.LevelDebug-4, at both ends: its import's handle,
// number, offset and size.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithPayloadChecksums makes every link with a process on another node carry a checksum (CRC32C) of
// each payload besides those of the frames' headers, which are always there. It is enough that one
// of the two processes asks for it. Damage that the checksums of the network did not find is found
// before the last word of a message is stored. It costs both sides a copy and a sum of all data.
// Memory that processes of one node share is not concerned.
func WithPayloadChecksums() Option { return func(o *options) { o.capabilities |= wire.Checked } }

// WithEncryption has every link with a process on another node encrypted: TLS 1.3 between the two
// processes, each with a certificate that it has made for itself, of which the other learns by the
// control connections of their nodes. It is enough that one of the two processes asks for it, or
// one of their nodes (vmmcd --encrypt); a link is then never made or resumed in clear, and an
// import from a process that cannot encrypt fails. What is sent then can be neither read nor
// changed on the way, at a cost that docs/performance.md states; that messages pass, when, and how
// long they are can still be seen. Memory that processes of one node share is not concerned.
func WithEncryption() Option { return func(o *options) { o.encrypt = true } }

// WithResume limits how long a link with a process on another node may be without a connection. A
// broken connection is replaced: everything sent arrives once and in order, atomics and
// notifications included, and calls wait meanwhile within their contexts. If the link is not
// resumed within the limit, it fails with [ErrPeerGone]. Both processes get the events [LinkDown]
// and [LinkResumed]. The limit counts from when unacknowledged data was first late, so a connection
// that breaks repeatedly does not extend it unless data arrives in between.
//
// The default is 30 s. With 0, or if the other process chose 0, a link fails with its connection. A
// process whose node reports its end is not waited for. If its node is gone too, the link waits for
// the limit; exporters wait longer by 5 s and by their [WithSilence], because an importer may
// detect a loss that much later. Choose the same values for both processes; with an unlimited
// silence, an importer may detect the loss later still, and be refused.
func WithResume(limit time.Duration) Option {
	return func(o *options) {
		o.resumeLimit = limit
		if o.capabilities &^= wire.Resumes; limit > 0 {
			o.capabilities |= wire.Resumes
		}
	}
}

// WithSilence limits how long a process on another node may be silent before the connection is
// given up: when its machine has died without closing the connection, or when it is stopped and
// owes an answer. Pending calls fail with [ErrPeerGone] then, or after the limit of [WithResume] if
// the link is not resumed within that. The default is 10 s; 0 waits for ever. Time in which this
// process itself did not run does not count.
func WithSilence(d time.Duration) Option { return func(o *options) { o.silence = d } }

// WithImportsDumped has memory that is imported from other processes of this node, and mapped, in
// core dumps of this process. Otherwise it is left out: it is the exporter's, and a user who may
// read the dump need not be let see it. Debuggers that look at the live process see it in any case.
func WithImportsDumped() Option { return func(o *options) { o.dumpImports = true } }

// WithEmbedded has Open start a node's daemon, which ends when the process is closed. It is what
// [github.com/vmmc-go/vmmc/node.Embed] is made of: vmmc.Open(ctx, node.Embed()). start returns the
// socket that the daemon serves and what ends it.
//
// Experimental: it may change in any release. Use node.Embed.
func WithEmbedded(start func(context.Context) (socket string, stop func(), err error)) Option {
	return func(o *options) { o.embed = start }
}

// WithEvents runs h for each external event of the process. It is run as
// notification handlers are: one at a time with them, [PeerGone] after the
// notifications of that process, held back by [Process.BlockNotifications], and with the same calls
// allowed. [Process.Subscribe] adds more handlers.
func WithEvents(h func(Event)) Option { return func(o *options) { o.eventHandler = h } }

// WithImportLimit bounds the bytes that the process has imported at a time: the
// sum of the sizes of its imports, each counted as often as it is imported, from
// before [Process.Import] returns until [Import.Close]. What its exporter has
// closed, or whose exporter is gone, counts until then too. An import beyond the
// limit fails with [ErrNoPhysDestSpace] and leaves nothing behind; it does not
// wait for room. 0, the default, is no limit, and a negative limit makes Open
// fail with [ErrBadArg]. (The paper's system had 8 MB of destination space.)
func WithImportLimit(bytes int64) Option { return func(o *options) { o.importLimit = bytes } }

// SharePages lets importers on this node map the memory also where it is only a
// part of an allocation of [Process.Alloc], so that several exports can lie in
// one. The memory is then no longer protected by itself: an importer that
// bypasses the library reaches the whole allocation, with the rights of this
// export, and goes on doing so after its import and this export are closed,
// until the allocation is closed. The library itself keeps to the bounds, always.
//
// Importers that are not trusted so far should get an export that begins at a
// page ([PageSize]), fills whole pages and is the only one of its allocation: one
// allocation per purpose, which needs no SharePages. (The manual for SHRIMP gives
// the same advice, where hardware guards whole pages only.)
//
// All exports of an allocation that are mapped are writable, or all are
// [ReadOnly]; else Export fails with [ErrBadArg]. For other memory, and beside
// [Unmapped], SharePages does nothing.
func SharePages() ExportOption { return func(o *exportOptions) { o.sharePages = true } }

// GlobalSpace declares that the memory lies in an allocation of [Process.Alloc],
// the kind that importers can map (the manual's BUF_GLOBAL_SPACE). If it does
// not, Export fails with [ErrBadArg]. Without it, any memory is accepted.
func GlobalSpace() ExportOption { return func(o *exportOptions) { o.globalSpace = true } }

// An ExportOption changes what [Process.Export] does. Options that contradict each other make
// Export fail with [ErrBadArg] before anything is exported.
type ExportOption func(*exportOptions)

// ReadOnly lets importers only read. No message arrives then, so neither a handler nor a
// redirection can stand beside it.
func ReadOnly() ExportOption { return withRights(nodeproto.MayRead, "ReadOnly") }

// WriteOnly lets importers only write. A mapping cannot keep them from reading
// all the same: pages that can be written can be read. Where that matters, add
// [Unmapped].
func WriteOnly() ExportOption { return withRights(nodeproto.MayWrite, "WriteOnly") }

// ReadWrite lets importers read and write; it is the default.
func ReadWrite() ExportOption {
	return withRights(nodeproto.MayRead|nodeproto.MayWrite, "ReadWrite")
}

// withRights is one of the three options that say what importers may do.
func withRights(r nodeproto.Rights, name string) ExportOption {
	return func(o *exportOptions) {
		if o.access != "" && o.access != name {
			o.contradicted = o.access
		}
		o.rights, o.access = r, name
	}
}

// WithHandler runs h for each message that carries a notification, when its
// data is in place. One handler runs at a time in a process, each sender's in
// the order of its messages. A handler may send and get, also asynchronously,
// block notifications in pairs, and redirect. Waiting for a word, a notification or a
// request, and making or ending exports and imports, fail in it with [ErrNotInHandler].
// It should not wait for long: each sender waits once 64 of its notifications are
// under way.
func WithHandler(h func(Notification)) ExportOption {
	return func(o *exportOptions) { o.handler, o.handlers = h, o.handlers+1 }
}

// Locked keeps the buffer's pages in memory. The system limits how much
// (ulimit -l); beyond that Export fails.
func Locked() ExportOption { return func(o *exportOptions) { o.lock = true } }

// Unmapped never lets an importer map the memory: all goes through the stream,
// which checks each access, also on one node.
func Unmapped() ExportOption { return func(o *exportOptions) { o.unmapped = true } }

// WithLabel gives the export a label of at most 256 bytes, which importers get by [Import.Label]:
// the version or the layout of what the buffer holds, for instance. The library does not look into
// it. It does not change while the export lives. Importers see the label that the exporter chose,
// and nothing vouches for what it says. A longer label, or a second one, makes Export fail with
// [ErrBadArg].
//
// Experimental: it may change in any release.
func WithLabel(label []byte) ExportOption {
	label = slices.Clone(label) // the caller may use its own again
	return func(o *exportOptions) { o.label, o.labels = label, o.labels+1 }
}

// exportOptions are what the options of one export say.
type exportOptions struct {
	rights       nodeproto.Rights
	access       string // the option that gave the rights, "" for none
	contradicted string // one before it that gave others

	handler      func(Notification)
	handlers     int // how often one was given
	redirectable int // likewise
	targets      []*Memory
	manySenders  bool

	lock        bool
	unmapped    bool
	sharePages  bool
	globalSpace bool

	label  []byte
	labels int // how often one was given

	names []exportName

	permits bool // Permit was given
	permit  []nodeproto.Permission
}

// exportOptionsOf applies opts, and refuses those that cannot be, alone or together.
func exportOptionsOf(opts []ExportOption) (*exportOptions, error) {
	o := &exportOptions{rights: nodeproto.MayRead | nodeproto.MayWrite}
	for _, f := range opts {
		if f == nil {
			return nil, code.New(code.BadArg, "an option is nil")
		}
		f(o)
	}
	return o, o.check()
}

// check says what cannot be.
func (o *exportOptions) check() error {
	readOnly := o.rights&nodeproto.MayWrite == 0
	switch {
	case o.contradicted != "":
		return code.New(code.BadArg,
			"%s and %s give different rights: give one of them", o.contradicted, o.access)
	case o.handlers > 1:
		return code.New(code.BadArg,
			"WithHandler was given %d times: an export has one handler", o.handlers)
	case o.redirectable > 1:
		return code.New(code.BadArg,
			"Redirectable was given %d times: name all targets in one", o.redirectable)
	case readOnly && o.redirectable > 0:
		return code.New(code.BadArg,
			"no message arrives in a ReadOnly buffer, so Redirectable means nothing beside it")
	case readOnly && o.handler != nil:
		return code.New(code.BadArg,
			"no message arrives in a ReadOnly buffer, so WithHandler means nothing beside it")
	case o.manySenders && o.redirectable == 0:
		return code.New(code.BadArg, "ManySenders means nothing without Redirectable: any number of processes may import other buffers")
	case o.labels > 1:
		return code.New(code.BadArg, "WithLabel was given %d times: an export has one label", o.labels)
	case len(o.label) > nodeproto.MaxLabel:
		return code.New(code.BadArg, "the label has %d bytes, at most %d fit: put the rest into the buffer", len(o.label), nodeproto.MaxLabel)
	case o.permits && len(o.permit) == 0:
		return code.New(code.BadArg, "Permit without a permission lets nobody in: give one")
	}
	return nodeproto.CheckPermissions(o.permit)
}

// A Permission selects the processes that may import an export: those that match every list that is
// not empty. The importer's own node vouches for its identity.
//
// A session belongs to one user. Sessions alone names sessions of the
// exporter's own user; those of others take Users beside it. "*" in Users or
// Sessions stands for all of them, and "" in Sessions for being outside of
// sessions. A Permission without Users, Sessions and Processes lets in only the
// exporter's own user and session, so that Nodes alone narrows that; the zero
// Permission is what holds without [Permit].
//
// Experimental: it may change in any release.
type Permission struct {
	Users    []string // user names on the importer's node (the number of a user without a name)
	Sessions []string // as in [WithSession]
	Nodes    []NodeID // that the importer is on
	// Of any user and session; the number of an ended process stays unused for long.
	Processes []ProcessID
}

// Permit lets exactly the processes import that match one of perms: not the exporter's own session,
// nor the exporter itself, unless one matches them. Several Permit options add up. Without any,
// processes of the same user and session may import, and outside of sessions those of the same user
// outside of sessions.
//
// The exporter's node checks it at each import, and refuses at once with [ErrNoRights]. Imports
// that were made stay until they or the export are closed.
//
// A process of another user or session can wait for a buffer that is not exported yet only while
// some other export of the exporter lets it in, in at most 64 imports at a time ([ErrNoMem]).
// Otherwise it is refused at once, and cannot tell whether there is such a buffer. So tell
// importers of other users or sessions when the first buffer for them is exported.
//
// Export fails with [ErrBadArg], before anything is done, if perms is empty,
// has more than 256 entries (permissions and what their lists hold) or 8192
// bytes of names, or names the zero [NodeID]. Permit is the manual's vmmc_perm_t,
// which it has not in use yet.
//
// Experimental: it may change in any release.
func Permit(perms ...Permission) ExportOption {
	ps := make([]nodeproto.Permission, 0, len(perms))
	for _, p := range perms {
		l := nodeproto.Permission{Users: append([]string(nil), p.Users...), Sessions: append([]string(nil), p.Sessions...)}
		for _, n := range p.Nodes {
			l.Nodes = append(l.Nodes, n.name)
		}
		for _, id := range p.Processes {
			l.Processes = append(l.Processes, nodeproto.Address{Node: id.Node.name, PID: uint32(id.PID)})
		}
		ps = append(ps, l)
	}
	return func(o *exportOptions) { o.permit = append(o.permit, ps...); o.permits = true }
}

// A BindOption changes what [Import.Bind] does.
//
// Experimental: it may change in any release.
type BindOption func(*bindOptions)

type bindOptions struct {
	flags    []update.Span
	notify   bool
	alias    bool
	compare  bool
	contents bool
}

// FlagRange declares n bytes at byte offset off of the bound memory as flags, both multiples of the
// word. A flag is carried over after all data that was stored before it, and by one atomic store,
// so a reader that finds it at the exporter finds that data too: store it by an atomic
// ([Binding.Word]). Among flags there is no order. Each flag is looked at in every pass, and one
// that has changed costs a look at all of the bound memory, so there should be few. It may be given
// several times.
//
// Experimental: it may change in any release.
func FlagRange(off, n int) BindOption {
	return func(o *bindOptions) { o.flags = append(o.flags, update.Span{From: off, To: off + n}) }
}

// FlagWords is [FlagRange] for single words at these byte offsets.
//
// Experimental: it may change in any release.
func FlagWords(offs ...int) BindOption {
	return func(o *bindOptions) {
		for _, off := range offs {
			o.flags = append(o.flags, update.Span{From: off, To: off + shm.WordSize})
		}
	}
}

// NotifyUpdates makes each message of the binding carry a notification, with its
// last word: each run of consecutive words that changed, of at most 1 MiB, and each
// flag. Without it none does (the two choices that SBL_Map has). Where the exporter's
// handlers are slower than the stores, carrying over waits for them, and several
// stores to a word in that time are one.
//
// Experimental: it may change in any release.
func NotifyUpdates() BindOption { return func(o *bindOptions) { o.notify = true } }

// AliasPages makes the bound memory *be* the far buffer, for an export of this node
// that is mapped. A store is at the far end when it is made, as by a thread of the
// exporter; and what the exporter or any importer writes there is seen here, and
// nothing of it lies here besides. Stores keep the order that the processor gives
// them. They wake no sleeping waiters: [Binding.Flush] and [Binding.Store] do.
//
// What was in the memory is hidden until [Binding.Close], which leaves in it what the
// buffer held then; a store made while that runs may be lost. Once the exporter has
// closed the export, the memory reads as zeros and is shared with no process any more. The
// memory begins at a page and has whole pages, or ends with its allocation, and so
// does what it is bound to; without that, or on the stream, Bind fails with
// [ErrBadArg]. With [NotifyUpdates] it fails too: there are no messages.
//
// Experimental: it may change in any release.
func AliasPages() BindOption { return func(o *bindOptions) { o.alias = true } }

// CompareOnly finds stores by comparing all of the memory with a copy, as is done
// where the kernel cannot tell which pages were stored to.
//
// Experimental: it may change in any release.
func CompareOnly() BindOption { return func(o *bindOptions) { o.compare = true } }

// WithContents sends, first of all, what is in the memory when it is bound. Without
// it only what changes from then on is carried over.
//
// Experimental: it may change in any release.
func WithContents() BindOption { return func(o *bindOptions) { o.contents = true } }

// bindOptionsOf applies opts.
func bindOptionsOf(opts []BindOption) (*bindOptions, error) {
	o := new(bindOptions)
	for _, f := range opts {
		if f == nil {
			return nil, code.New(code.BadArg, "an option is nil")
		}
		f(o)
	}
	return o, nil
}

// check sorts the flags and says what cannot be.
func (o *bindOptions) check(size int) error {
	for _, f := range o.flags {
		switch {
		case f.From < 0 || f.To <= f.From || f.To > size:
			return code.New(code.BadArg, "a flag at %d to %d, the memory has %d bytes", f.From, f.To, size)
		case f.From%shm.WordSize != 0 || f.To%shm.WordSize != 0:
			return code.New(code.BadAlignment,
				"a flag at %d to %d is not in whole words (%d bytes)", f.From, f.To, shm.WordSize)
		}
	}
	if o.alias && (o.notify || o.compare || o.contents) {
		return code.New(code.BadArg, "AliasPages sends no messages: NotifyUpdates, CompareOnly and WithContents mean nothing beside it")
	}
	slices.SortFunc(o.flags, func(a, b update.Span) int { return cmp.Compare(a.From, b.From) })
	var joined []update.Span
	for _, f := range o.flags {
		if n := len(joined); n > 0 && f.From <= joined[n-1].To {
			joined[n-1].To = max(joined[n-1].To, f.To)
		} else {
			joined = append(joined, f)
		}
	}
	o.flags = joined
	return nil
}

// Redirectable lets messages to the buffer be redirected by [Export.PostRedir]
// (the manual's BUF_REDIRECTABLE, section 7). One process may import the buffer,
// as often as it likes; see [ManySenders].
//
// Messages are redirected into any memory. An importer that has the buffer mapped
// copies the data itself into targets: whole allocations of [Process.Alloc] that
// are not exported, which the importing process maps too and can write to as long
// as the export lives. While a redirection to other memory is posted, the importer
// sends the message that meets its range by the stream instead, and this process
// copies it: that costs some microseconds, as between nodes. There can be 29
// targets, beyond that Export fails with [ErrBadArg]. Where pages of a target have
// moved, as [Export.Close] says, importers use the stream for all messages.
//
// Experimental: it may change in any release.
func Redirectable(targets ...*Memory) ExportOption {
	targets = slices.Clone(targets) // the caller may use its own again
	return func(o *exportOptions) { o.redirectable, o.targets = o.redirectable+1, targets }
}

// ManySenders lets more than one process import a redirectable buffer, which must trust each other:
// whose message comes first is redirected. All of them use the stream, on one node too. Without
// [Redirectable] it means nothing, and Export fails with [ErrBadArg].
//
// Experimental: it may change in any release.
func ManySenders() ExportOption { return func(o *exportOptions) { o.manySenders = true } }
