package update

import "sync/atomic"

// counters only ever grow.
type counters struct {
	messages, words, passes, scans atomic.Uint64
}

// Stats is what a binding has done so far.
type Stats struct {
	Messages, Words, Passes, Scans uint64
	Watched                        bool  // the kernel tells which pages were stored to
	Why                            error // why it does not
}

// Stats may be called at any time.
func (b *Binding) Stats() Stats {
	return Stats{
		Messages: b.messages.Load(), Words: b.words.Load(), Passes: b.passes.Load(), Scans: b.scans.Load(),
		Watched: b.watch != nil, Why: b.watchErr,
	}
}
