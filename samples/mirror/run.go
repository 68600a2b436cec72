package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/vmmc-go/vmmc"
)

// run plays the game. Boards and checksums are plain stores; no call carries them over.
func run(
	ctx context.Context, p *vmmc.Process, out io.Writer, node vmmc.NodeID, pid vmmc.PID,
	generations uint32, pause time.Duration,
) error {
	im, err := p.Import(ctx, node, pid, buffer)
	if err != nil {
		return err
	}
	m, err := p.Alloc(size)
	if err != nil {
		return err
	}
	mem := m.Bytes()
	b, err := im.Bind(mem, 0, vmmc.FlagWords(generation, over))
	if err != nil {
		return err
	}
	defer b.Close()
	last, err := b.Word(generation)
	if err != nil {
		return err
	}
	for g := uint32(1); g <= generations; g++ {
		to := board(mem, g)
		if g == 1 {
			sow(to)
		} else {
			step(to, board(mem, g-1))
		}
		binary.LittleEndian.PutUint32(to[sum:], checksum(to))
		last.Store(g)
		// The generation after next is made where this one is. Without the fence it
		// could be seen there before the flag of the next one.
		if err := b.Flush(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-b.Done():
			return b.Err()
		}
	}
	if err := b.Store(ctx, over, 1); err != nil {
		return err
	}
	fmt.Fprintf(out, "played %d generations, the last one's checksum is %08x; %+v\n",
		generations, checksum(board(mem, generations)), b.Stats())
	return b.Flush(ctx)
}
