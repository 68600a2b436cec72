package via

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// The label of a letterbox: labelMagic and the NIC's number.
const (
	labelMagic    = "vmmcvia\x01"
	labelSize     = len(labelMagic) + 4
	letterboxSize = 4 // the word of diallers' notifications
)

// letterbox is an export that other NICs dial, to have a link.
type letterbox struct {
	*vmmc.Export
	mem   *vmmc.Memory
	pairs *pair.Listener
}

// publish makes a letterbox with a name for a discriminator on the NIC's node.
func (n *NIC) publish(ctx context.Context, kind, discriminator string) (b letterbox, err error) {
	node, err := n.p.NodeToName(n.p.Node())
	if err != nil {
		return b, err
	}
	if b.mem, err = n.p.Alloc(letterboxSize); err != nil {
		return b, err
	}
	b.pairs = pair.NewListener(n.p, n.acceptLink)
	label := binary.LittleEndian.AppendUint32([]byte(labelMagic), n.number)
	b.Export, err = pair.Export(func(id uint32) (*vmmc.Export, error) {
		return n.p.Export(id, b.mem.Bytes(), vmmc.WithHandler(b.pairs.Handle), vmmc.WithLabel(label))
	})
	if err != nil {
		b.pairs.Close()
		return b, errors.Join(err, b.mem.Close())
	}
	if err = b.PublishAs(ctx, publishedName(node, kind, discriminator), vmmc.InSet()); err != nil {
		return b, errors.Join(err, b.close())
	}
	return b, nil
}

// close gives it back. Links that were made by it stay.
func (b letterbox) close() error {
	err := b.Close()
	b.pairs.Close()
	if err == nil {
		err = b.mem.Close()
	}
	return err
}
