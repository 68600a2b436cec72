package main

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/local"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// nodesAt asks the node of this machine that has the socket. It does not join
// the node, which would count this tool as one of its processes.
func nodesAt(ctx context.Context, socket string) ([]nodeInfo, error) {
	c, err := local.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	conn := local.NewConn(c, ask.Nobody)
	defer func() {
		conn.Close()
		<-conn.Done()
	}()
	list, _, err := local.Ask[local.NodeList](ctx, conn, local.Nodes, local.Empty{}, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the node at %s: %w", socket, err)
	}
	nodes := make([]nodeInfo, len(list.Nodes))
	for i, n := range list.Nodes {
		nodes[i] = nodeInfo{Name: n.Name, Control: n.Control, Data: n.Data, Reachable: n.Reachable, RTT: n.RTT, Version: n.Version, Error: n.Error}
		if n.Reachable {
			nodes[i].Processes = &n.Processes
		}
	}
	return nodes, nil
}

// nodesOver asks a node at its control address, as whoever certs is for.
func nodesOver(ctx context.Context, address, certs, node string) ([]nodeInfo, error) {
	id, err := cert.Load(certs)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{TLSClientConfig: id.ClientTLS(node), ForceAttemptHTTP2: true}
	defer t.CloseIdleConnections()
	client := nodev1connect.NewNodeServiceClient(&http.Client{Transport: t}, "https://"+address, connect.WithReadMaxBytes(local.MaxPacket))
	a, err := client.Hosts(ctx, connect.NewRequest(&nodev1.HostsRequest{}))
	if err != nil {
		return nil, fmt.Errorf("ask node %q at %s: %w", node, address, err)
	}
	var nodes []nodeInfo
	for _, h := range a.Msg.GetHosts() {
		nodes = append(nodes, nodeInfo{
			Name: h.GetName(), Control: h.GetControlAddress(), Data: h.GetDataAddress(),
			Reachable: h.GetReachable(), RTT: h.GetRttNs(), Error: h.GetError(),
		})
	}
	return nodes, nil
}
