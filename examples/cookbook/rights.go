package cookbook

import (
	"context"

	"github.com/vmmc-go/vmmc"
)

// Notice publishes a text that only processes on one node may import, and none may change.
func Notice(ctx context.Context, p *vmmc.Process, node, text string) *vmmc.Export {
	n, err := p.NameToNode(node)
	check(err)
	mem, err := p.Alloc(64)
	check(err)
	copy(mem.Bytes(), text)
	e, err := p.Publish(
		ctx, "notice", mem.Bytes(),
		vmmc.ReadOnly(), vmmc.Permit(vmmc.Permission{Nodes: []vmmc.NodeID{n}}),
	)
	check(err)
	return e
}
