package vmmc

import (
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
)

// An ExportOption changes what [Process.Export] does. Options that contradict each other make
// Export fail with [ErrBadArg] before anything is exported.
type ExportOption func(*exportOptions)

// ReadOnly lets importers only read. No message arrives then, so neither a handler nor a
// redirection can stand beside it.
func ReadOnly() ExportOption { return withRights(local.MayRead, "ReadOnly") }

// WriteOnly lets importers only write. A mapping cannot keep them from reading
// all the same: pages that can be written can be read. Where that matters, add
// [Unmapped].
func WriteOnly() ExportOption { return withRights(local.MayWrite, "WriteOnly") }

// ReadWrite lets importers read and write; it is the default.
func ReadWrite() ExportOption {
	return withRights(local.MayRead|local.MayWrite, "ReadWrite")
}

// withRights is one of the three options that say what importers may do.
func withRights(r local.Rights, name string) ExportOption {
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

// exportOptions are what the options of one export say.
type exportOptions struct {
	rights       local.Rights
	access       string // the option that gave the rights, "" for none
	contradicted string // one before it that gave others

	handler      func(Notification)
	handlers     int // how often one was given
	redirectable int // likewise
	targets      []*Memory
	many         bool

	lock     bool
	unmapped bool
	share    bool
	global   bool

	permits bool // Permit was given
	permit  []local.Permission
}

// exportOptionsOf applies opts, and refuses those that cannot be, alone or together.
func exportOptionsOf(opts []ExportOption) (*exportOptions, error) {
	o := &exportOptions{rights: local.MayRead | local.MayWrite}
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
	readOnly := o.rights&local.MayWrite == 0
	switch {
	case o.contradicted != "":
		return code.New(code.BadArg, "%s and %s give different rights: give one of them", o.contradicted, o.access)
	case o.handlers > 1:
		return code.New(code.BadArg, "WithHandler was given %d times: an export has one handler", o.handlers)
	case o.redirectable > 1:
		return code.New(code.BadArg, "Redirectable was given %d times: name all targets in one", o.redirectable)
	case readOnly && o.redirectable > 0:
		return code.New(code.BadArg, "no message arrives in a ReadOnly buffer, so Redirectable means nothing beside it")
	case readOnly && o.handler != nil:
		return code.New(code.BadArg, "no message arrives in a ReadOnly buffer, so WithHandler means nothing beside it")
	case o.many && o.redirectable == 0:
		return code.New(code.BadArg, "ManySenders means nothing without Redirectable: any number of processes may import other buffers")
	case o.permits && len(o.permit) == 0:
		return code.New(code.BadArg, "Permit without a permission lets nobody in: give one")
	}
	return local.CheckPermissions(o.permit)
}

// newExport makes an export as its options say; it is in no table yet.
func (p *Process) newExport(id uint32, mem []byte, o *exportOptions) *Export {
	e := &Export{
		p: p, id: id, mem: mem[:len(mem):len(mem)], grants: map[uint32]*grant{},
		rights: o.rights, handler: o.handler, targets: o.targets, many: o.many,
		unmapped: o.unmapped, share: o.share, global: o.global, permit: o.permit,
	}
	if o.redirectable > 0 {
		e.redirect = link.NewRedirect(p.engine, len(mem))
	}
	return e
}
