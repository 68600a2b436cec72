package demo

import (
	"context"
	"encoding/binary"

	"github.com/vmmc-go/vmmc"
)

// The receiver exports a data buffer of two windows, a control page and a ping
// page; the sender exports an answer page. All of them are flags and data in
// memory: there is no other protocol.
const (
	bufData    = 1
	bufControl = 2
	bufPing    = 3
	bufAnswer  = 4 // the sender's

	windows    = 2
	windowSize = 4 << 20

	// In the control page, window w's words are at w*64: length, then sequence
	// number. In the answer page, at w*64 the last sequence number taken; at 256
	// the pong; at 512 the SHA-256 and a flag.
	stride   = 64
	pongAt   = 256
	sumAt    = 512
	pageSize = 4096

	stopPing = 1<<32 - 1
)

// waitFor returns when the word holds v.
func waitFor(ctx context.Context, w vmmc.Word, v uint32) error {
	for have := w.Load(); have != v; {
		var err error
		if have, err = w.Wait(ctx, have); err != nil {
			return err
		}
	}
	return nil
}

// page exports a page of memory.
func exportPage(p *vmmc.Process, id uint32, size int) (*vmmc.Export, error) {
	m, err := p.Alloc(size)
	if err != nil {
		return nil, err
	}
	return p.Export(id, m.Bytes())
}

func words(v ...uint32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}
