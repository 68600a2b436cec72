package vmmc

import (
	"context"
	"time"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Imports that are asked for on a link, without the node. It has vouched for the
// importer when it first imported from this process, and the rules are the same.
// What cannot be granted at once is refused without a reason: the importer then
// asks its node, which waits, or says why not.

// answerer answers the imports of one importer.
func (p *Process) answerer(id local.ProcessID) link.ImportHandler {
	return func(in *link.Responder, buffer uint32) (*link.Target, wire.Granted, int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		peer, e := p.peers[id], p.exports[buffer]
		if peer == nil || peer.in != in || len(peer.grants) >= maxGrants || p.closed || !p.node.up() {
			return nil, wire.Granted{}, -1
		}
		// A redirectable buffer takes more descriptors than go with a frame.
		if e == nil || e.closed.Load() || e.redirect != nil || !local.Lets(e.permit, peer.who, p.user, p.party) {
			return nil, wire.Granted{}, -1
		}
		g := wire.Granted{Size: uint64(len(e.mem)), Rights: uint8(e.granted()), Slot: uint16(e.slot), State: e.alive, Addr: e.place(0)}
		descriptor := -1
		if e.memory != nil {
			fd, ok, err := e.memory.region.DescriptorOf(e.off, len(e.mem))
			if err != nil {
				return nil, wire.Granted{}, -1
			}
			if ok {
				descriptor, g.Mapped, g.Memory, g.Offset = fd, true, uint64(e.memory.region.Size()), uint64(e.off)
			}
		}
		g.Handle = p.number()
		return p.admitted(peer, e, g.Handle).target, g, descriptor
	}
}

// askExporter asks for an import on the link to the exporter, if there is one that
// takes that. ok is false if the node is to be asked.
func (p *Process) askExporter(ctx context.Context, peer ProcessID, id uint32) (l *outLink, g local.Grant, fds []int, ok bool) {
	// Without its node a process imports nothing.
	if peer.Node.name != p.id.Node || !p.node.alive() {
		return nil, g, nil, false
	}
	exporter, l := p.linked(uint32(peer.PID))
	if l == nil {
		return nil, g, nil, false
	}
	start := time.Now()
	a, fd, ok := l.out.Import(ctx, id)
	if !ok {
		return nil, g, nil, false
	}
	if fd >= 0 {
		fds = []int{fd}
	}
	p.asked(local.Import, local.ImportRequest{Node: peer.Node.name, PID: uint32(peer.PID), ID: id}, time.Since(start), nil)
	return l, local.Grant{
		Exporter: exporter, Handle: a.Handle, Size: int(a.Size), Rights: local.Rights(a.Rights), Mapped: a.Mapped,
		Memory: int(a.Memory), Offset: int(a.Offset), Slot: uint32(a.Slot), State: a.State, Place: a.Addr,
	}, fds, true
}

// linked finds the link to a process of this node.
func (p *Process) linked(pid uint32) (local.ProcessID, *outLink) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.near[pid]
	if l := p.links[id]; l != nil {
		select {
		case <-l.ready:
			if l.err == nil && l.direct && l.out.Err() == nil {
				return id, l
			}
		default:
		}
	}
	return local.ProcessID{}, nil
}
