package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/vmmc-go/vmmc"
)

// watch draws each generation that it sees whole.
func watch(ctx context.Context, p *vmmc.Process, out io.Writer, plain bool) error {
	m, err := p.Alloc(size)
	if err != nil {
		return err
	}
	e, err := p.Export(buffer, m.Bytes())
	if err != nil {
		return err
	}
	flag, err := e.Word(generation)
	if err != nil {
		return err
	}
	end, err := e.Word(over)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "mirror run %v %d\n", p.Node(), p.PID())
	seen, late := 0, 0
	frame := make([]byte, boardSize)
	last := uint32(0)
	for {
		err := p.WaitUntil(ctx, func() bool { return flag.Load() != last || end.Load() != 0 })
		if err != nil {
			return err
		}
		g := flag.Load()
		if g == last {
			break
		}
		copy(frame, board(m.Bytes(), g))
		if flag.Load() != g { // the next but one may be on this board already
			late++
			continue
		}
		last = g
		if binary.LittleEndian.Uint32(frame[sum:]) != checksum(frame) {
			return errors.New("a generation came after its flag")
		}
		seen++
		if !plain {
			fmt.Fprintf(out, "\x1b[H\x1b[2J%sgeneration %d\n", draw(frame), g)
		}
	}
	fmt.Fprintf(out, "saw %d of %d generations whole (%d too late), the last one's checksum is %08x\n",
		seen, last, late, checksum(frame))
	return nil
}
