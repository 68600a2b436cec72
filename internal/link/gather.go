package link

// On loopback a raw call that writes 256 KiB takes 23 µs where four of 64 KiB take 40. So who has long messages under way, and waits for one of them
// before it begins the next, has those that it begins meanwhile written together: as one call's worth, or when it waits, or by the
// guard, within a restTick. As long as enough is on its way the far end does not notice. A link that no waiter has left at
// rest lately has a sender who does not come back soon: there each message is written at once, and where somebody sleeps, too.
const gatherFrom = 128 << 10 // on the way, and not acknowledged, and two messages

// Both ways at once each end receives between two sends, and finds all that it has sent acknowledged: so little is on its way, and each message,
// and its acknowledgement, would have calls of its own. There this many bytes, or messages, are gathered, whatever is on its way.
const (
	bothWays  = 1 << 20
	manyParts = 8
)

// together is how many bytes of messages of size are gathered: a chunk's, or those of as many messages as any call may write, if that is more. A longer
// message goes by itself.
func together(size uint64) uint64 {
	if size > chunk {
		return chunk
	}
	return max(chunk, fewestParts*size)
}

// share is how many bytes of messages of size share an acknowledgement, where there are more of
// them: what it costs both ends is small beside that. Two messages of 256 KiB do; a longer one has one by itself.
func share(size uint64) uint64 {
	if size > chunk {
		return chunk
	}
	return max(chunk, 2*size)
}

// crowded says whether so much is on its way with a message of size that its acknowledgement need not come by itself: those before
// it make one without it. It says nothing of what follows, and if that is nothing the far end looks for it a few times in vain.
// tmu is held.
func (o *Out) crowded(size int) bool {
	return size > small && size <= chunk && o.flight.beyond(o.acked.Load())+uint64(size) >= 2*share(uint64(size))
}

// gathers says whether a message of size bytes that was just queued is left to those that follow; tmu is held. The guard looks for
// what is gathered after it has let go of a link, and whenever a waiter or sender passes by before: who finds it guarded here, with the message queued, is seen there.
func (o *Out) gathers(size int) bool {
	n, most := uint64(size), together(uint64(size))
	both := o.e.glancer.recent()
	if both {
		most = max(most, min(bothWays, manyParts*n))
	}
	switch {
	case o.tx.check: // each of its frames takes a call
	case uint64(o.queued.Load())*n >= most: // those that wait with it are likely to be as long
	case !o.guarded.Load() || o.e.sleepers.Asleep():
	case !both && o.flight.beyond(o.acked.Load()) < max(gatherFrom, 2*n):
	default:
		return o.e.gather(o) && o.guarded.Load()
	}
	return false
}

// flight is what was written of the last long asynchronous messages; with tmu.
type flight struct {
	last [16]struct {
		seq uint64
		sum uint64 // of bytes up to it
	}
	n   uint64 // of messages
	sum uint64
}

func (f *flight) add(seq uint64, size int) {
	f.sum += uint64(size)
	at := &f.last[f.n%uint64(len(f.last))]
	at.seq, at.sum = seq, f.sum
	f.n++
}

// beyond is how many bytes there are of messages after acked, of the last ones at least.
func (f *flight) beyond(acked uint64) (size uint64) {
	for k := range min(f.n, uint64(len(f.last))) {
		at := &f.last[(f.n-1-k)%uint64(len(f.last))]
		if at.seq <= acked {
			return f.sum - at.sum
		}
		if k+1 == f.n { // the first of all
			return f.sum
		}
		size = f.sum - at.sum
	}
	return size
}
