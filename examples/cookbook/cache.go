package cookbook

import (
	"bytes"
	"context"
	"runtime"
	"structs"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/view"
)

// Entry is a place of the cache. Its version is odd while it is being written.
type Entry struct {
	_       structs.HostLayout
	Key     uint64
	Value   [4084]byte
	Version uint32 // stored last
}

// Cache is the process that puts.
type Cache struct {
	entries []Entry // as they were stored
	own     *view.Remote[Entry]
}

// NewCache publishes a cache with n places.
func NewCache(ctx context.Context, p *vmmc.Process, name string, n int) *Cache {
	_, err := view.Export[Entry](p, 1, n, vmmc.WithName(name))
	check(err)
	return &Cache{make([]Entry, n), entries(ctx, p, name)}
}

func entries(ctx context.Context, p *vmmc.Process, name string) *view.Remote[Entry] {
	im, err := p.ImportName(ctx, name)
	check(err)
	r, err := view.RemoteOf[Entry](im)
	check(err)
	return r
}

// Put has the key take the place of another one. Messages arrive in order: no reader finds a part
// of the new entry with the old version.
func (c *Cache) Put(ctx context.Context, key uint64, value string) {
	e := &c.entries[key%uint64(len(c.entries))]
	e.Version++ // odd
	check(c.own.Store(ctx, int(key%uint64(len(c.entries))), *e))
	*e = Entry{Key: key, Version: e.Version + 1}
	copy(e.Value[:], value)
	check(c.own.Store(ctx, int(key%uint64(len(c.entries))), *e))
}

// Lookup reads from the cache of another process, which runs no code for it.
func Lookup(ctx context.Context, c *view.Remote[Entry], key uint64) (value string, ok bool) {
	for ; ; runtime.Gosched() {
		e, err := c.Load(ctx, int(key%uint64(c.Len()))) // the last word first
		check(err)
		again, err := c.Load(ctx, int(key%uint64(c.Len())))
		check(err)
		if e.Version%2 == 0 && e.Version == again.Version {
			if e.Version == 0 || e.Key != key {
				return "", false
			}
			return string(bytes.TrimRight(e.Value[:], "\x00")), true
		}
	}
}
