package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"runtime"

	"github.com/vmmc-go/vmmc"
)

// The table is an array of slots: a value, then a word. While the word is odd
// the value is being written; otherwise it is twice the value's version. As the
// last word of a message is stored last, and messages arrive in order, a reader that
// finds the same even word before and after reading a value has read it whole.
const (
	tableID = 1
	keys    = 16
	slot    = 60
	last    = slot - 4
)

type table struct {
	replicas []*vmmc.Import
	versions [keys]uint32 // written by put alone
}

// put changes a key in all replicas. One goroutine of one process may put.
func (t *table) put(ctx context.Context, key int, value string) error {
	if len(value) > last {
		return fmt.Errorf("value of %d bytes, at most %d", len(value), last)
	}
	t.versions[key]++
	var b [slot]byte
	copy(b[:], value)
	for _, r := range t.replicas {
		binary.LittleEndian.PutUint32(b[last:], 2*t.versions[key]-1)
		if err := r.Send(ctx, b[last:], key*slot+last); err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(b[last:], 2*t.versions[key])
		if err := r.Send(ctx, b[:], key*slot); err != nil {
			return err
		}
	}
	return nil
}

// get reads a key from one replica.
func (t *table) get(
	ctx context.Context, replica, key int,
) (value string, version uint32, err error) {
	r := t.replicas[replica]
	var b, again [slot]byte
	for {
		if err := r.Get(ctx, b[:], key*slot); err != nil {
			return "", 0, err
		}
		if err := r.Get(ctx, again[last:], key*slot+last); err != nil {
			return "", 0, err
		}
		w := binary.LittleEndian.Uint32(b[last:])
		if w%2 == 0 && w == binary.LittleEndian.Uint32(again[last:]) {
			return string(bytes.TrimRight(b[:last], "\x00")), w / 2, nil
		}
		runtime.Gosched() // it is being written
	}
}
