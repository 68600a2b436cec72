package vmmc

import (
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
)

// WithImportLimit bounds the bytes that the process has imported at a time: the
// sum of the sizes of its imports, each counted as often as it is imported, from
// before [Process.Import] returns until [Import.Close]. What its exporter has
// closed, or whose exporter is gone, counts until then too. An import beyond the
// limit fails with [ErrNoPhysDestSpace] and leaves nothing behind; it does not
// wait for room. 0, the default, is no limit, and a negative limit makes Open
// fail with [ErrBadArg]. (The paper's system had 8 MB of destination space.)
func WithImportLimit(bytes int64) Option { return func(o *options) { o.importLimit = bytes } }

// budget counts bytes against a limit.
type budget struct {
	limit int64 // 0: none

	mu   sync.Mutex
	used int64
}

// take reserves n bytes, all or nothing.
func (b *budget) take(n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit != 0 && int64(n) > b.limit-b.used {
		return code.New(code.NoPhysDestSpace, "its %d bytes and the %d that are imported exceed the limit of %d: close imports, or raise WithImportLimit", n, b.used, b.limit)
	}
	b.used += int64(n)
	return nil
}

// give returns what take reserved.
func (b *budget) give(n int) {
	b.mu.Lock()
	b.used -= int64(n)
	b.mu.Unlock()
}
