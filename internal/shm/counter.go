package shm

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// A sharded counter has shards, each on cache lines of its own, with ShardCounters counters in
// each. One more shard is for goroutines that count with a lock held.
const (
	numShards          = 8
	lockedShard        = numShards
	allShards          = numShards + 1
	ShardCounters      = 16
	shardSize          = ShardCounters * 8
	ShardedCounterSize = allShards * shardSize
)

// ShardedCounter counts in shared memory that other processes read. An addition is plain: a locked
// one would take as long as a short send. Goroutines choose a shard by the address of their stack,
// so those on several CPUs seldom write the same line. Where two on one shard add at the same
// instant, one addition may be lost. A goroutine alone is counted exactly.
type ShardedCounter struct {
	shards *[allShards][ShardCounters]uint64
	of     *Region // Keeps the pages mapped.
}

// ShardedCounterAt returns the counter at off, a multiple of 128 bytes. Its pages are mapped while
// it is reachable.
func ShardedCounterAt(r *Region, off int) ShardedCounter {
	b := r.Bytes()[off : off+ShardedCounterSize]
	return ShardedCounter{shards: (*[allShards][ShardCounters]uint64)(unsafe.Pointer(&b[0])), of: r}
}

// Add adds n to counter c, below ShardCounters.
func (t *ShardedCounter) Add(c int, n uint64) { t.shards[shard()][c] += n }

// Add2 adds to two counters at once.
func (t *ShardedCounter) Add2(c int, n uint64, d int, m uint64) {
	l := &t.shards[shard()]
	l[c] += n
	l[d] += m
}

// Lanes is how many shards need no lock.
const Lanes = numShards

// Lanes returns the shards that need no lock, for code outside of Go that adds as Add does: one lane
// for each of its threads, of several on one lane an addition may be lost. The pages are mapped
// while the counter is reachable.
func (t *ShardedCounter) Lanes() *[Lanes][ShardCounters]uint64 {
	return (*[Lanes][ShardCounters]uint64)(t.shards[:Lanes])
}

// AddLocked adds to a counter that other goroutines add to under the same lock only. It is exact
// and takes two instructions.
func (t *ShardedCounter) AddLocked(c int, n uint64) { t.shards[lockedShard][c] += n }

// shard hashes the address of the stack, in half the bits: the constant is then part of the
// instruction.
func shard() uint32 {
	var here struct{} // only its address counts
	return uint32(uintptr(unsafe.Pointer(&here))) * 0x9e3779b1 >> 29
}

// Sum adds up the shards of a counter; b is a copy of its bytes.
func Sum(b []byte) (sums [ShardCounters]uint64) {
	for at := 0; at < ShardedCounterSize; at += shardSize {
		for i := range sums {
			sums[i] += binary.LittleEndian.Uint64(b[at+8*i:])
		}
	}
	return sums
}

// Clear sets all counters to 0.
func (t *ShardedCounter) Clear() { *t.shards = [allShards][ShardCounters]uint64{} }

// Merge adds another's counters.
func (t *ShardedCounter) Merge(o ShardedCounter) {
	for i := range o.shards {
		for c, n := range o.shards[i] {
			t.shards[i][c] += n
		}
	}
}

// OpenFile is for occasional reads of shared memory without a mapping: reading what another process
// has truncated or torn can give wrong numbers and nothing worse. It owns fd, also when it fails.
func OpenFile(fd, size int) (*os.File, error) {
	info, err := unix.Inspect(fd)
	switch {
	case err != nil:
	case !info.Fixed:
		err = unix.ErrSealed
	case info.Size != int64(RoundUp(size)):
		err = fmt.Errorf("it has %d bytes, wanted %d", info.Size, RoundUp(size))
	}
	if err != nil {
		foreign.Close(fd)
		return nil, fmt.Errorf("%w: %w", ErrAnnounced, err)
	}
	foreign.Own(fd) // memory is closed at once
	return os.NewFile(uintptr(fd), "memfd"), nil
}
