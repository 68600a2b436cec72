package wait

import "sync/atomic"

// Words is how many sleepers senders can tell apart.
const Words = 3

// wordSize is the size of a word in bytes: bytes may be stored from its middle on.
const wordSize = 4

// Board shows the processes that store into this process's memory how many goroutines sleep, and
// for what, so a message that no sleeper waits for wakes none. It is in memory that they can read;
// only this process writes it.
//
// Each sleeper adds one entry, raises the count and then looks at its word. A sender stores the
// word, loads the count and then the entries. All of these are sequentially consistent, and each
// entry is one word. A sender that misses the sleeper's entry has loaded it before it was made, and
// has stored the word before that. So the sleeper's look finds the word (docs/models: sleep).
type Board struct {
	Count *atomic.Uint32 // Sleepers that other processes may have to wake.
	Any   *atomic.Uint32 // Those whose word is not in Words.
	Words [Words]*atomic.Uint64
	// Owner of the memory, which must live until the last sleeper has left.
	Of any
}

// entry is where a sleeper's entry is.
type entry int8

const (
	noEntry     entry = -1
	sharedEntry entry = Words
)

// add makes the entry of a goroutine that is about to sleep. The caller holds the sleepers' lock.
func (b *Board) add(l *Cond) entry {
	if l.LocalOnly {
		return noEntry
	}
	at := sharedEntry
	for i := range b.Words {
		if l.Addr != 0 && b.Words[i].Load() == 0 {
			at = entry(i)
			b.Words[i].Store(l.Addr)
			break
		}
	}
	if at == sharedEntry {
		b.Any.Add(1)
	}
	b.Count.Add(1)
	return at
}

// remove removes an entry. The caller holds the sleepers' lock.
func (b *Board) remove(at entry) {
	if at == noEntry {
		return
	}
	b.Count.Add(^uint32(0))
	if at == sharedEntry {
		b.Any.Add(^uint32(0))
	} else {
		b.Words[at].Store(0)
	}
}

// Concerns reports whether a goroutine sleeps that may wait for one of the n bytes from place on.
// The caller has stored them before, with a barrier between. place is 0 where the process does not
// say what it waits for.
func (b *Board) Concerns(place uint64, n int) bool {
	return b.Count.Load() != 0 && b.mayConcern(place, uint64(n))
}

func (b *Board) mayConcern(place, n uint64) bool {
	if place == 0 || b.Any.Load() != 0 {
		return true
	}
	for i := range b.Words {
		if w := b.Words[i].Load(); w != 0 && (w-place < n || place-w < wordSize) {
			return true
		}
	}
	return false
}
