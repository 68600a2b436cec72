package update

import (
	"sort"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// longest is the longest message, in bytes. What follows it goes in the next. Stored
// by this process, so much of the twin is still in the processor's cache when it is sent;
// a socket's reader falls asleep between two messages, so there they are fewer.
const (
	maxRun       = 256 << 10
	maxStreamRun = 1 << 20
)

// sendChangedData compares [from, to) without its flags, and sends what has changed.
func (b *Binding) sendChangedData(from, to int) error {
	return b.eachOutsideFlags(from, to, b.sendChanged)
}

// eachOutsideFlags does something with the parts of [from, to) that are no flags.
func (b *Binding) eachOutsideFlags(from, to int, do func(from, to int) error) error {
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

func (b *Binding) sendChanged(from, to int) error {
	most := maxStreamRun
	if b.c.Direct {
		most = maxRun
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
	b.sent = true
	b.messages.Add(1)
	b.words.Add(uint64(to-from) / shm.WordSize)
	if b.heating && to-from <= shm.PageSize { // much at once is not soon followed by more
		b.hot.add(b.lo + (from-b.lo)/shm.PageSize*shm.PageSize)
	}
	return b.c.Remote.Put(b.ctx, from, b.twin.Copied(from, to))
}

// loadFlags loads all flags, and says whether one was stored to.
func (b *Binding) loadFlags() bool {
	i, raised := 0, b.sendAll
	for _, f := range b.c.Flags {
		for off := f.From; off < f.To; off += shm.WordSize {
			b.flags[i] = b.twin.Local(off).Load()
			raised = raised || b.flags[i] != b.twin.At(off)
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
			if v := b.flags[i]; v != b.twin.At(off) || b.sendAll {
				b.twin.Set(off, v)
				b.sent = true
				b.messages.Add(1)
				b.words.Add(1)
				if err := b.c.Remote.Publish(b.ctx, off, b.twin.Copied(off, off+shm.WordSize)); err != nil {
					return err
				}
			}
			i++
		}
	}
	return nil
}
