package wait

import "sync/atomic"

// Words is how many sleepers senders can tell apart.
const Words = 3

// width is that of a word in bytes: bytes may be stored from its middle on.
const width = 4

// Board is what a process shows to the processes that store into its memory: how
// many sleep, and for what, so that a message that no sleeper waits for wakes
// nobody. It is in memory that they can read; only this process writes it.
//
// Each sleeper makes one entry, raises the count and then looks at its word; a
// sender stores the word, loads the count and then the entries. All of these are
// sequentially consistent, and each entry is one word: a sender that misses the
// sleeper's has loaded it before it was made, after storing the word, and so the
// sleeper's look finds the word (docs/models: sleep).
type Board struct {
	Count *atomic.Uint32 // of sleepers that others may have to wake
	Any   *atomic.Uint32 // of those whose word is not in Words
	Words [Words]*atomic.Uint64
	Of    any // the memory's owner, which may not go before the last sleeper has left
}

// sign is where a sleeper's entry is.
type sign int8

const (
	none sign = -1
	some sign = Words
)

// enter makes the entry of who is about to sleep; the sleepers' lock is held.
func (b *Board) enter(l *Look) sign {
	if l.Own {
		return none
	}
	at := some
	for i := range b.Words {
		if l.Place != 0 && b.Words[i].Load() == 0 {
			at = sign(i)
			b.Words[i].Store(l.Place)
			break
		}
	}
	if at == some {
		b.Any.Add(1)
	}
	b.Count.Add(1)
	return at
}

// leave takes it away; the sleepers' lock is held.
func (b *Board) leave(at sign) {
	if at == none {
		return
	}
	b.Count.Add(^uint32(0))
	if at == some {
		b.Any.Add(^uint32(0))
	} else {
		b.Words[at].Store(0)
	}
}

// Concerns says whether anybody sleeps who may wait for one of the n bytes from
// place on. The caller has stored them before, and has a barrier between. Place is
// 0 where the process does not say what it waits for.
func (b *Board) Concerns(place uint64, n int) bool {
	return b.Count.Load() != 0 && b.among(place, uint64(n))
}

func (b *Board) among(place, n uint64) bool {
	if place == 0 || b.Any.Load() != 0 {
		return true
	}
	for i := range b.Words {
		if w := b.Words[i].Load(); w != 0 && (w-place < n || place-w < width) {
			return true
		}
	}
	return false
}
