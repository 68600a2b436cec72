package main

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc/internal/ask"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// nodesAt asks the node of this machine that has the socket. It does not join
// the node, which would count this tool as one of its processes.
func nodesAt(ctx context.Context, socket string) ([]nodeInfo, error) {
	a, err := (&ask.Flags{Socket: socket}).Open(ctx)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	list, err := a.First.Hosts(ctx, nodev1.Look_LOOK_PING)
	if err != nil {
		return nil, fmt.Errorf("ask the node at %s: %w", socket, err)
	}
	return nodeInfos(list, "socket "+socket), nil
}

// nodesOver asks a node at its control address, with the identity of the certificate in certs.
func nodesOver(ctx context.Context, address, certs, node string) ([]nodeInfo, error) {
	n, closing, err := ask.At(address, certs, node)
	if err != nil {
		return nil, err
	}
	defer closing()
	list, err := n.Hosts(ctx, nodev1.Look_LOOK_PING)
	if err != nil {
		return nil, fmt.Errorf("ask node %q at %s: %w", node, address, err)
	}
	return nodeInfos(list, "TLS "+address), nil
}
