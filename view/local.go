package view

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Local is an exported buffer as a slice.
//
// Experimental: it may change in any release.
type Local[T any] struct {
	e   *vmmc.Export
	mem *vmmc.Memory // nil: the caller's
	s   []T
	l   *layout
}

// Export allocates n elements, all zero, and exports them under id as [vmmc.Process.Export] does.
// The label is the layout's: [vmmc.WithLabel] is refused. Errors: a [*TypeError], and those of
// [vmmc.Process.Alloc] and [vmmc.Process.Export].
//
// Experimental: it may change in any release.
func Export[T any](
	p *vmmc.Process, id uint32, n int, opts ...vmmc.ExportOption,
) (*Local[T], error) {
	l, err := layoutOf[T]()
	if err != nil {
		return nil, err
	}
	if n <= 0 || n > (math.MaxInt-wordSize)/l.Size {
		return nil, &vmmc.Error{
			Op: fmt.Sprintf("export %d elements as buffer %d", n, id), Code: vmmc.ErrBadSize,
			Err: fmt.Errorf("their number must be positive, and at most %d", (math.MaxInt-wordSize)/l.Size),
		}
	}
	mem, err := p.Alloc((n*l.Size + wordSize - 1) / wordSize * wordSize)
	if err != nil {
		return nil, err
	}
	v, err := export[T](p, id, mem.Bytes(), l, n, opts)
	if err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	v.mem = mem
	return v, nil
}

// ExportBytes is [Export] of memory that the caller has: as many elements as it has bytes for. Its
// length must be a multiple of their size, and its address of their alignment.
//
// Experimental: it may change in any release.
func ExportBytes[T any](
	p *vmmc.Process, id uint32, mem []byte, opts ...vmmc.ExportOption,
) (*Local[T], error) {
	l, err := layoutOf[T]()
	if err != nil {
		return nil, err
	}
	if rest := len(mem) % l.Size; rest != 0 {
		return nil, &vmmc.Error{
			Op: fmt.Sprintf("export %d bytes as buffer %d", len(mem), id), Code: vmmc.ErrBadSize,
			Err: fmt.Errorf("%d bytes are left over behind %d elements of %d bytes", rest, len(mem)/l.Size, l.Size),
		}
	}
	return export[T](p, id, mem, l, len(mem)/l.Size, opts)
}

// export exports mem, which has room for n elements.
func export[T any](
	p *vmmc.Process, id uint32, mem []byte, l *layout, n int, opts []vmmc.ExportOption,
) (*Local[T], error) {
	values, err := shm.ValuesOf[T]()
	if err != nil {
		return nil, err
	}
	s, ok := values.Slice(mem)
	if !ok {
		return nil, &vmmc.Error{
			Op: fmt.Sprintf("export %d bytes as buffer %d", len(mem), id), Code: vmmc.ErrBadAlignment,
			Err: fmt.Errorf("elements lie at multiples of %d: take memory of Process.Alloc", l.Align),
		}
	}
	e, err := p.Export(id, mem, append(slices.Clip(opts), vmmc.WithLabel(l.label(n)))...)
	if err != nil {
		return nil, err
	}
	return &Local[T]{e: e, s: s[:n:n], l: l}, nil
}

// Len is the number of elements.
func (l *Local[T]) Len() int { return len(l.s) }

// Slice is the elements themselves, which importers change at any time. It must not be touched
// after [Local.Close].
func (l *Local[T]) Slice() []T { return l.s }

// Export is the export, to close it for instance or to wait for notifications.
func (l *Local[T]) Export() *vmmc.Export { return l.e }

// LastWord is the last word of element i. A [Remote.Store] of the element, and a [Remote.Put] whose
// last element it is, stores that word last: wait for it, and the rest is there. Elements of one
// and two bytes have none; the error is [vmmc.ErrBadAlignment].
func (l *Local[T]) LastWord(i int) (vmmc.Word, error) {
	if uint(i) >= uint(len(l.s)) {
		return vmmc.Word{}, l.outside("last word of", i)
	}
	if l.l.Size < wordSize {
		return vmmc.Word{}, &vmmc.Error{
			Op: fmt.Sprintf("last word of element %d of buffer %d", i, l.e.ID()), Code: vmmc.ErrBadAlignment,
			Err: fmt.Errorf("elements of %d bytes have none: wait for a word of another export", l.l.Size),
		}
	}
	return l.e.Word((i+1)*l.l.Size - wordSize)
}

// Close ends the export, as [vmmc.Export.Close], and gives back the memory that [Export] has
// allocated: then the slice is gone, and so are the words and cells of the view. Waits for these
// must have returned before. After an error call it again.
func (l *Local[T]) Close() error {
	if err := l.e.Close(); err != nil || l.mem == nil {
		return err
	}
	return l.mem.Close()
}

func (l *Local[T]) outside(what string, i int) error {
	return &vmmc.Error{Op: fmt.Sprintf("%s element %d of buffer %d", what, i, l.e.ID()), Code: vmmc.ErrBadArg, Err: outsideError(len(l.s))}
}

// outsideError is the cause of every error about an index.
type outsideError int

func (n outsideError) Error() string { return fmt.Sprintf("the view has %d elements", int(n)) }
