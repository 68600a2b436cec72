package vmmc

import (
	"cmp"
	"slices"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/update"
)

// A BindOption changes what [Import.Bind] does.
type BindOption func(*bindOptions)

type bindOptions struct {
	flags    []update.Span
	notify   bool
	alias    bool
	compare  bool
	contents bool
}

// FlagRange declares n bytes at byte offset off of the bound memory as flags, both
// multiples of the word. A flag is carried over after all data that was stored
// before it, and by one atomic store, so who finds it at the far end finds that data
// too: store it by an atomic ([Binding.Word]). Among flags there is no order. Each flag is looked at
// in every pass, and one that has changed costs a look at all of the bound memory,
// so there should be few. It may be given several times.
func FlagRange(off, n int) BindOption {
	return func(o *bindOptions) { o.flags = append(o.flags, update.Span{From: off, To: off + n}) }
}

// FlagWords is [FlagRange] for single words at these byte offsets.
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
func NotifyUpdates() BindOption { return func(o *bindOptions) { o.notify = true } }

// AliasPages makes the bound memory *be* the far buffer, for an export of this node
// that is mapped. A store is at the far end when it is made, as by a thread of the
// exporter; and what the exporter or anybody else writes there is seen here, and
// nothing of it lies here besides. Stores keep the order that the processor gives
// them. They wake nobody who sleeps: [Binding.Flush] and [Binding.Store] do.
//
// What was in the memory is hidden until [Binding.Close], which leaves in it what the
// buffer held then; a store made while that runs may be lost. Once the exporter has
// closed the export, the memory reads as zeros and is nobody else's any more. The
// memory begins at a page and has whole pages, or ends with its allocation, and so
// does what it is bound to; without that, or on the stream, Bind fails with
// [ErrBadArg]. With [NotifyUpdates] it fails too: there are no messages.
func AliasPages() BindOption { return func(o *bindOptions) { o.alias = true } }

// CompareOnly finds stores by comparing all of the memory with a copy, as is done
// where the kernel cannot tell which pages were stored to.
func CompareOnly() BindOption { return func(o *bindOptions) { o.compare = true } }

// WithContents sends, first of all, what is in the memory when it is bound. Without
// it only what changes from then on is carried over.
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
			return code.New(code.BadAlignment, "a flag at %d to %d is not in whole words (%d bytes)", f.From, f.To, shm.WordSize)
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
