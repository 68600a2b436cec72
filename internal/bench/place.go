package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/node"
)

// The ways that data takes.
const (
	Mapped = "mapped" // one node, the exporter's pages
	Stream = "stream" // one node, a socket
	Remote = "remote" // two nodes, TCP on loopback
)

// place is two processes, and what to give back.
type place struct {
	near, far *vmmc.Process
	ends      []func()
}

func (p *place) end() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
}

func newPlace(ctx context.Context, way string) (p *place, err error) {
	p = &place{}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	sockets, err := p.nodes(way)
	if err != nil {
		return nil, fmt.Errorf("start nodes: %w", err)
	}
	for i, to := range []**vmmc.Process{&p.near, &p.far} {
		if *to, err = vmmc.Open(ctx, vmmc.WithSocket(sockets[i])); err != nil {
			return nil, err
		}
		p.ends = append(p.ends, func() { _ = (*to).Close() })
	}
	return p, nil
}

func (p *place) nodes(way string) ([2]string, error) {
	if way != Remote {
		n, err := node.Start()
		if err != nil {
			return [2]string{}, err
		}
		p.ends = append(p.ends, n.Close)
		return [2]string{n.Socket(), n.Socket()}, nil
	}
	ids, err := cert.Ephemeral("bench", "near", "far")
	if err != nil {
		return [2]string{}, err
	}
	var hs []hosts.Host
	names := []string{"near", "far"}
	as, err := cluster.FreeAddresses(len(names))
	if err != nil {
		return [2]string{}, err
	}
	for i, name := range names {
		hs = append(hs, hosts.Host{Name: name, Control: as[i], Data: as[i]})
	}
	var sockets [2]string
	tag := strings.ToLower(rand.Text())
	for i, h := range hs {
		sockets[i] = "@vmmc-" + tag + h.Name
		n, err := daemon.Start(daemon.Config{Name: h.Name, Socket: sockets[i], Hosts: hs, Identity: ids[h.Name]})
		if err != nil {
			return sockets, err
		}
		p.ends = append(p.ends, n.Close)
	}
	return sockets, nil
}
