package redirect

import "sync/atomic"

// EndOutside is what code outside of Go needs to do what [Exporter.DataEnd] and
// [Exporter.ClearEnd] do. All words are those that these methods use. They are the export's as long
// as *Version is At, which that code compares before and after; if it is not, these methods do the
// whole again.
type EndOutside struct {
	Version *atomic.Uint32
	At      uint32
	Size    uint64         // Of the export.
	End     *atomic.Uint64 // Offset behind the last word of the stream's last message; 0: none.

	// Of the importer that has the export mapped; nil: there is none. If *Messages is not *Cleared,
	// the last message is that importer's, and number n = *Messages of it ends with the word at the
	// offset *Ends[n%2].
	Shared            *Shared // Keeps the claim page mapped.
	Cleared, Messages *atomic.Uint64
	Ends              [2]*atomic.Uint64
}

// Outside returns it.
func (r *Exporter) Outside() EndOutside {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := EndOutside{Version: &r.version, At: r.version.Load(), Size: r.size, End: &r.end}
	if s := r.shared; s != nil {
		o.Shared, o.Cleared, o.Messages = s, &s.cleared, s.Claim.Messages()
		o.Ends = [2]*atomic.Uint64{s.Claim.End(0), s.Claim.End(1)}
	}
	return o
}
