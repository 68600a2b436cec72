package group

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/view"
)

// Exchange gives each member the values of all, by their ranks. It is a collective, and no barrier
// for data: what members have sent before need not be in place. T is a type as package view takes,
// of at most 240 bytes, and has the same layout at all members.
//
// Errors: a [*view.TypeError], and [vmmc.ErrBadSize], before anything is sent; [view.ErrLayout] if
// a member exchanges values of another layout; [vmmc.ErrProtocol] if members have called different
// collectives; those of [Group.Barrier].
//
// Experimental: it may change in any release.
func Exchange[T any](ctx context.Context, g *Group, v T) ([]T, error) {
	const op = "exchange"
	l, err := view.LayoutOf[T]()
	if err != nil {
		return nil, err
	}
	if l.Size > valueSize {
		return nil, fail(op, vmmc.ErrBadSize, "a value has %d bytes, at most %d are possible", l.Size, valueSize)
	}
	values, err := shm.ValuesOf[T]()
	if err != nil {
		return nil, err
	}
	kind := max(l.Fingerprint(), exchangeKind)
	if err := g.enter(ctx, op, kind); err != nil {
		return nil, err
	}
	defer g.busy.Unlock()
	if g.size == 1 {
		return []T{v}, nil
	}
	if err := g.collective(ctx, op, kind, values.Of(&v)); err != nil {
		return nil, err
	}
	all := make([]T, g.size)
	for j := range all {
		rank := (g.rank - j + g.size) % g.size
		value, err := g.loadCell(op, j, kind, l)
		if err != nil {
			return nil, err
		}
		copy(values.Of(&all[rank]), value)
	}
	return all, nil
}

// storeCell puts this member's own value where partners get it from.
func (g *Group) storeCell(s uint32, kind uint64, value []byte) {
	cell := g.cell(s, 0)
	copy(cell, value)
	binary.LittleEndian.PutUint64(cell[valueSize:], kind)
	binary.LittleEndian.PutUint32(cell[valueSize+8:], s)
}

// loadCell returns the value in cell j of the collective that has ended.
func (g *Group) loadCell(op string, j int, kind uint64, l view.Layout) ([]byte, error) {
	cell, rank := g.cell(g.seq, j), (g.rank-j+g.size)%g.size
	switch {
	case binary.LittleEndian.Uint32(cell[valueSize+8:]) != g.seq:
		return nil, fail(op, vmmc.ErrProtocol, "the value of member %d is missing: members have called different collectives", rank)
	case binary.LittleEndian.Uint64(cell[valueSize:]) != kind:
		return nil, &view.LayoutError{Ours: l.Text, Why: fmt.Sprintf("member %d exchanges values of another layout", rank)}
	}
	return cell, nil
}

func (g *Group) cell(s uint32, j int) []byte {
	at := g.cellAt(s, j)
	return g.mem.Bytes()[at : at+cellSize]
}
