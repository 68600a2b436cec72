package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// askFlags say how the nodes of a cluster are asked about sessions: through this
// machine's node, or with a certificate from anywhere.
type askFlags struct {
	socket string
	hosts  string
	certs  string
	nodes  []string
}

func (f *askFlags) add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.nodes, "node", nil, "`names` of nodes, separated by commas (default: all)")
	c.Flags().StringVar(&f.socket, "socket", local.DefaultPath(), "`path` of the socket of this machine's node, which asks the others")
	c.Flags().StringVar(&f.certs, "certs", "", "`directory` with a user's identity, to ask the nodes themselves")
	c.Flags().StringVar(&f.hosts, "hosts", "", "`file` that lists the nodes to ask so, vmmc-hosts.txt")
	c.MarkFlagsRequiredTogether("hosts", "certs")
	c.MarkFlagsMutuallyExclusive("hosts", "socket")
	offer(c, "node", f.nodeNames)
}

// asked is a node that can be asked.
type asked struct {
	name   string
	client nodev1connect.SessionServiceClient
}

// askAt are the nodes of a cluster.
type askAt struct {
	all    []*asked // in the hosts file's order
	chosen []*asked // those that --node names, in its order; or all
	first  *asked   // this machine's, or the hosts file's first
	named  bool     // they were named
	close  func()
}

func (f *askFlags) open(ctx context.Context) (a *askAt, err error) {
	if f.certs != "" {
		a, err = overTLS(f.hosts, f.certs)
	} else {
		a, err = throughNode(ctx, f.socket)
	}
	if err != nil {
		return nil, err
	}
	a.chosen, a.named = a.all, len(f.nodes) > 0
	if a.named {
		if a.chosen, err = a.find(f.nodes); err != nil {
			a.close()
			return nil, err
		}
	}
	return a, nil
}

// find gives nodes by name, each once.
func (a *askAt) find(names []string) (out []*asked, err error) {
	var known []string
	for _, n := range a.all {
		known = append(known, n.name)
	}
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, code.New(code.NoSuchNode, "no node %q: the nodes are %s", name, strings.Join(known, ", "))
		}
		if !slices.Contains(out, a.all[i]) {
			out = append(out, a.all[i])
		}
	}
	return out, nil
}

func overTLS(file, certs string) (*askAt, error) {
	id, err := cert.Load(certs)
	if err != nil {
		return nil, err
	}
	list, err := hosts.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the hosts file %s names no node", file)
	}
	a := &askAt{}
	var open []*http.Transport
	for _, h := range list {
		t := &http.Transport{TLSClientConfig: id.ClientTLS(h.Name), ForceAttemptHTTP2: true, TLSHandshakeTimeout: timeout.Hello}
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: timeout.Control, PingTimeout: timeout.Control} // a machine that has died says nothing
		open = append(open, t)
		a.all = append(a.all, &asked{h.Name, nodev1connect.NewSessionServiceClient(&http.Client{Transport: t}, "https://"+h.Control, connect.WithReadMaxBytes(local.MaxPacket))})
	}
	a.first = a.all[0]
	a.close = func() {
		for _, t := range open {
			t.CloseIdleConnections()
		}
	}
	return a, nil
}

func throughNode(ctx context.Context, socket string) (*askAt, error) {
	c, err := local.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	conn := local.NewConn(c, nobody)
	a := &askAt{close: func() {
		conn.Close()
		<-conn.Done()
	}}
	list, _, err := local.Ask[local.NodeList](ctx, conn, local.Nodes, local.Empty{}, nil)
	if err != nil {
		a.close()
		return nil, fmt.Errorf("ask the node at %s: %w", socket, err)
	}
	for _, n := range list.Nodes {
		node := &asked{n.Name, nodev1connect.NewSessionServiceClient(&throughSocket{conn, n.Name}, "http://"+n.Name)}
		if a.all = append(a.all, node); n.Self {
			a.first = node
		}
	}
	if a.first == nil && len(a.all) > 0 {
		a.first = a.all[0]
	}
	return a, nil
}

// each asks all chosen nodes at once.
func (a *askAt) each(f func(i int, n *asked) error) []error {
	errs := make([]error, len(a.chosen))
	var all sync.WaitGroup
	for i, n := range a.chosen {
		all.Go(func() { errs[i] = told(n, f(i, n)) })
	}
	all.Wait()
	return errs
}

// told is an error of a node as this program knows errors.
func told(n *asked, err error) error {
	var ce *connect.Error
	var own *code.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own // without connect's word for it
	case errors.As(err, &ce):
		if k, perr := strconv.Atoi(ce.Meta().Get("Vmmc-Code")); perr == nil {
			return code.New(code.Code(k), "%s", ce.Message())
		}
		if ce.Code() == connect.CodeUnavailable {
			return code.New(code.Unreachable, "node %q cannot be reached: %s", n.name, ce.Message())
		}
		return code.New(code.Protocol, "node %q: %s", n.name, ce.Message())
	}
	return err
}

// failure joins errors of nodes into one with the right exit status.
func failure(what string, errs []error) error {
	var bad []error
	status := serve.Partly
	for _, err := range errs {
		if err == nil {
			continue
		}
		bad = append(bad, err)
		if !errors.Is(err, code.Unreachable) {
			status = serve.Failed
		}
	}
	if bad == nil {
		return nil
	}
	return &serve.StatusError{Status: status, Err: fmt.Errorf("%s: %w", what, errors.Join(bad...))}
}
