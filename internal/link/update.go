package link

import (
	"context"
	"runtime"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// What automatic update needs of the mapped way. It is outside the order of the
// messages of a pair, so it waits for none of them, unless the export is
// redirectable: then each run of words is a message, which may be redirected.

// Direct says whether updates go straight to the pages and never wait.
func (m *Mapped) Direct() bool { return m.Claims == nil }

// Update stores whole words at their place. Nobody is told before [Mapped.Updated].
func (m *Mapped) Update(ctx context.Context, off int, words []byte) error {
	if m.Claims != nil {
		return m.Send(ctx, off, words)
	}
	if err := m.check(); err != nil {
		return err
	}
	if invariant.Enabled {
		m.trace("mapped update", off, len(words))
	}
	shm.PutWords(m.mem[off:off+len(words)], words)
	m.count.Add(page.Bytes, uint64(len(words)))
	runtime.KeepAlive(m)
	return nil
}

// UpdateWord stores one word, after those of Updates before, by one exchange.
func (m *Mapped) UpdateWord(ctx context.Context, off int, word []byte) error {
	if m.Claims != nil {
		return m.Send(ctx, off, word)
	}
	if err := m.check(); err != nil {
		return err
	}
	if invariant.Enabled {
		m.trace("mapped update", off, len(word))
	}
	shm.Word(m.mem, off).Swap(shm.LastWord(word))
	m.count.Add(page.Bytes, uint64(len(word)))
	runtime.KeepAlive(m)
	return nil
}

// Updated makes what Update stored known to who sleeps there. An error says that the
// export has ended meanwhile.
func (m *Mapped) Updated() error {
	m.count.Add(page.Updates, 1)
	m.fence.Add(1) // as in Write: the loads of end come after the stores
	return m.over(0, len(m.mem))
}

// Pages are those that the import lies in, and where in them it begins.
func (m *Mapped) Pages() (r *shm.Region, at int) {
	at, _ = shm.Within(m.region.Bytes(), m.mem)
	return m.region, at
}
