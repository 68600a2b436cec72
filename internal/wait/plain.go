package wait

// Plain looks come first where a wait has nothing but memory to look at. What another processor stores is
// there in less time than a looking phase takes to begin and to end.
const (
	plainLooks = 64
	plainCalls = 16   // of a condition, which may take longer than a word
	plainWaits = 4096 // as untold, of waits: half a millisecond or so
)

// Plain says whether l holds, after a few looks. It counts before them, when nothing has come yet: what is done after the last
// one is what the caller waits for. Any number of goroutines may look. On a processor that is shared there are none: nothing new
// comes there before the other end has run.
func (b *Budget) Plain(l *Look) bool {
	if b.shared.Load() {
		return false
	}
	if b.plain.Add(1)%plainWaits == 0 {
		tell()
	}
	looks := plainLooks
	if l.Until != nil {
		looks = plainCalls
	}
	for range looks {
		if l.Done() {
			return true
		}
	}
	return false
}
