package update

import (
	"sort"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// maxRun is the longest run of words, in bytes, that is put at once. So much of the twin, which
// this process stores, is still in the CPU's cache when it is sent. On the stream runs are longer
// and fewer, because the peer's reader falls asleep between two messages.
const (
	maxRun       = 256 << 10
	maxStreamRun = 1 << 20
)

// sendChangedData compares [from, to) without its flags, and sends what has changed.
func (b *Binding) sendChangedData(from, to int) error {
	return b.eachOutsideFlags(from, to, b.sendChanged)
}

// eachOutsideFlags calls do for the parts of [from, to) that are no flags.
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
	if b.heating && to-from <= shm.PageSize { // a large change is not soon followed by more
		b.hot.add(b.lo + (from-b.lo)/shm.PageSize*shm.PageSize)
	}
	return b.c.Remote.Put(b.ctx, from, b.twin.Copied(from, to))
}

// loadFlags loads all flags, and reports whether one was stored to.
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
