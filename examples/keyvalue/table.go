package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"structs"

	"github.com/vmmc-go/vmmc/view"
)

// slot is a key's value. While its version is odd the value is being written; otherwise it is twice
// the number of the value. As the last word of an element is stored last, and messages arrive in
// order, a reader that finds the same even version before and after reading a value has read it
// whole.
type slot struct {
	_       structs.HostLayout
	Value   [valueSize]byte
	Version uint32
}

const (
	keys      = 16
	valueSize = 4092
)

type table struct {
	replicas []*view.Remote[slot]
	slots    [keys]slot // as put has stored them
}

// put changes a key in all replicas. One goroutine of one process may put.
func (t *table) put(ctx context.Context, key int, value string) error {
	s := &t.slots[key]
	if len(value) > len(s.Value) {
		return fmt.Errorf("value of %d bytes, at most %d", len(value), len(s.Value))
	}
	s.Version++ // odd, with the old value
	if err := t.store(ctx, key); err != nil {
		return err
	}
	s.Version++
	s.Value = [len(s.Value)]byte{}
	copy(s.Value[:], value)
	return t.store(ctx, key)
}

func (t *table) store(ctx context.Context, key int) error {
	for _, r := range t.replicas {
		if err := r.Store(ctx, key, t.slots[key]); err != nil {
			return err
		}
	}
	return nil
}

// get reads a key from one replica.
func (t *table) get(
	ctx context.Context, replica, key int,
) (value string, version uint32, err error) {
	for r := t.replicas[replica]; ; runtime.Gosched() { // it is being written
		s, err := r.Load(ctx, key)
		if err != nil {
			return "", 0, err
		}
		again, err := r.Load(ctx, key)
		if err != nil {
			return "", 0, err
		}
		if s.Version%2 == 0 && s.Version == again.Version {
			return string(bytes.TrimRight(s.Value[:], "\x00")), s.Version / 2, nil
		}
	}
}
