package view

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Remote is an imported buffer as elements of T. Its methods may be called concurrently.
//
// Experimental: it may change in any release.
type Remote[T any] struct {
	im      *vmmc.Import
	values  shm.Values[T]
	l       *layout
	size, n int
}

// Import imports buffer id of process pid on a node, as [vmmc.Process.Import] does, if it has
// elements of T's layout. Errors: a [*TypeError]; [ErrLayout], with a [*LayoutError] that says what
// differs; those of [vmmc.Process.Import].
//
// Experimental: it may change in any release.
func Import[T any](
	ctx context.Context, p *vmmc.Process, node vmmc.NodeID, pid vmmc.PID, id uint32,
) (*Remote[T], error) {
	if _, err := layoutOf[T](); err != nil { // before anything is asked for
		return nil, err
	}
	im, err := p.Import(ctx, node, pid, id)
	if err != nil {
		return nil, err
	}
	r, err := RemoteOf[T](im)
	if err != nil {
		return nil, errors.Join(err, im.Close())
	}
	return r, nil
}

// RemoteOf is the view of an import that there is already: one that was made by
// [vmmc.Import.Rejoin] for instance. Errors as [Import].
//
// Experimental: it may change in any release.
func RemoteOf[T any](im *vmmc.Import) (*Remote[T], error) {
	l, err := layoutOf[T]()
	if err != nil {
		return nil, err
	}
	values, err := shm.ValuesOf[T]()
	if err != nil {
		return nil, err
	}
	n, err := l.elements(im.Label(), im.Size())
	if err != nil {
		return nil, &vmmc.Error{Op: fmt.Sprintf("view buffer %d as elements", im.ID()), Peer: im.Exporter().String(), Code: vmmc.ErrBadArg, Err: err}
	}
	return &Remote[T]{im: im, values: values, l: l, size: l.Size, n: n}, nil
}

// Len is the number of elements.
func (r *Remote[T]) Len() int { return r.n }

// Import is the import, to close it for instance, or for [vmmc.Import.Fence].
func (r *Remote[T]) Import() *vmmc.Import { return r.im }

// Close ends the import.
func (r *Remote[T]) Close() error { return r.im.Close() }

// Load returns element i. Its last word is read first. Errors as [vmmc.Import.Get];
// [vmmc.ErrBadArg] for an index outside of the view.
func (r *Remote[T]) Load(ctx context.Context, i int) (v T, err error) {
	if uint(i) >= uint(r.n) {
		return v, r.outside("load", i, 1)
	}
	p := r.l.values.Get().(*T)
	if err = r.get(ctx, r.values.Of(p), i*r.size); err != nil {
		return v, err
	}
	v = *p
	r.l.values.Put(p)
	return v, nil
}

// Store writes element i in one message, its last word last. It returns as [vmmc.Import.Send] does,
// with its errors; [vmmc.ErrBadArg] for an index outside of the view.
func (r *Remote[T]) Store(ctx context.Context, i int, v T) error {
	if uint(i) >= uint(r.n) {
		return r.outside("store", i, 1)
	}
	p := r.l.values.Get().(*T)
	*p = v
	if err := r.put(ctx, r.values.Of(p), i*r.size); err != nil {
		return err
	}
	r.l.values.Put(p)
	return nil
}

// Get reads the elements from i on into dst, the last word first; elements of one and two bytes
// come in no order. When it fails, dst holds anything. Errors as [Remote.Load]. No elements are not
// an error.
func (r *Remote[T]) Get(ctx context.Context, i int, dst []T) error {
	if i < 0 || i > r.n || len(dst) > r.n-i {
		return r.outside("get", i, len(dst))
	}
	if len(dst) == 0 {
		return nil
	}
	return r.get(ctx, r.values.Bytes(dst), i*r.size)
}

// Put writes src to the elements from i on in one message, its last word last; elements of one and
// two bytes appear in no order. It returns as
// [vmmc.Import.Send] does, when src may be reused. Errors as [Remote.Store]. No elements are not an
// error.
func (r *Remote[T]) Put(ctx context.Context, i int, src []T) error {
	if i < 0 || i > r.n || len(src) > r.n-i {
		return r.outside("put", i, len(src))
	}
	if len(src) == 0 {
		return nil
	}
	return r.put(ctx, r.values.Bytes(src), i*r.size)
}

func (r *Remote[T]) get(ctx context.Context, b []byte, off int) (err error) {
	if r.size < wordSize {
		_, err = r.im.ReadAtContext(ctx, b, off)
		return err
	}
	return r.im.Get(ctx, b, off)
}

func (r *Remote[T]) put(ctx context.Context, b []byte, off int) (err error) {
	if r.size < wordSize {
		_, err = r.im.WriteAtContext(ctx, b, off)
		return err
	}
	return r.im.Send(ctx, b, off)
}

func (r *Remote[T]) outside(what string, i, n int) error {
	op := fmt.Sprintf("%s element %d of buffer %d", what, i, r.im.ID())
	if n != 1 {
		op = fmt.Sprintf("%s %d elements from %d of buffer %d", what, n, i, r.im.ID())
	}
	return &vmmc.Error{Op: op, Peer: r.im.Exporter().String(), Code: vmmc.ErrBadArg, Err: outsideError(r.n)}
}
