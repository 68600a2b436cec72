package update

import (
	"sort"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// longest is the longest message, in bytes. What follows it goes in the next. Stored
// by this process, so much of the twin is still in the processor's cache when it is sent;
// a socket's reader falls asleep between two messages, so there they are fewer.
const (
	longest       = 256 << 10
	longestStream = 1 << 20
)

// data compares [from, to) without its flags, and sends what has changed.
func (b *Binding) data(from, to int) error { return b.outside(from, to, b.carry) }

// outside does something with the parts of [from, to) that are no flags.
func (b *Binding) outside(from, to int, do func(from, to int) error) error {
	if fs := b.c.Flags; len(fs) > 0 {
		for _, f := range fs[sort.Search(len(fs), func(i int) bool { return fs[i].To > from }):] {
			if f.From >= to {
				break
			}
			if err := do(from, f.From); err != nil {
				return err
			}
			from = f.To
		}
	}
	return do(from, to)
}

func (b *Binding) carry(from, to int) error {
	most := longestStream
	if b.c.Direct {
		most = longest
	}
	for from < to {
		end := min(from+most, to)
		at, upTo := b.twin.Next(from, end)
		if err := b.send(at, upTo); err != nil {
			return err
		}
		from = upTo
	}
	return nil
}

// send sends what the twin has in [from, to).
func (b *Binding) send(from, to int) error {
	if from >= to {
		return nil
	}
	b.put = true
	b.messages.Add(1)
	b.words.Add(uint64(to-from) / shm.WordSize)
	if b.heating && to-from <= shm.PageSize { // much at once is not soon followed by more
		b.hot.add(b.lo + (from-b.lo)/shm.PageSize*shm.PageSize)
	}
	return b.c.Far.Put(b.life, from, b.twin.Copied(from, to))
}

// lookAtFlags loads all flags, and says whether one was stored to.
func (b *Binding) lookAtFlags() bool {
	i, raised := 0, b.fresh
	for _, f := range b.c.Flags {
		for off := f.From; off < f.To; off += shm.WordSize {
			b.raised[i] = b.twin.Near(off).Load()
			raised = raised || b.raised[i] != b.twin.At(off)
			i++
		}
	}
	return raised
}

// publish sends the flags that have changed, as they were loaded.
func (b *Binding) publish() error {
	i := 0
	for _, f := range b.c.Flags {
		for off := f.From; off < f.To; off += shm.WordSize {
			if v := b.raised[i]; v != b.twin.At(off) || b.fresh {
				b.twin.Set(off, v)
				b.put = true
				b.messages.Add(1)
				b.words.Add(1)
				if err := b.c.Far.Publish(b.life, off, b.twin.Copied(off, off+shm.WordSize)); err != nil {
					return err
				}
			}
			i++
		}
	}
	return nil
}
