// Package ask asks the nodes of a cluster about sessions, for the tools: over this
// machine's node, or with a user's certificate from a machine that has none.
package ask

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/root"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// Flags say how the nodes of a cluster are asked about sessions: through this
// machine's node, or with a certificate from anywhere.
type Flags struct {
	Socket string   // of this machine's node
	Hosts  string   // file; with it the nodes are asked without this machine's
	Certs  string   // directory, of a user
	Nodes  []string // empty: all

	of *cobra.Command // whose flags have the values; nil: there is none
}

// named has an error name the flag that its value was given by.
func (f *Flags) named(flag, value string, err error) error {
	if f.of == nil || !f.of.Flags().Changed(flag) {
		return err
	}
	return serve.Flag(flag, value, err)
}

// Add gives a command the flags.
func (f *Flags) Add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.Nodes, "node", nil, "`names` of nodes, separated by commas (default: all)")
	if err := c.RegisterFlagCompletionFunc("node", f.NodeNames); err != nil {
		panic(err) // the flag is defined one line above
	}
	f.AddConnectFlags(c)
}

// AddConnectFlags gives a command the flags without --node.
func (f *Flags) AddConnectFlags(c *cobra.Command) {
	f.Use(c)
	c.Flags().StringVar(&f.Socket, "socket", nodeproto.DefaultPath(), "`path` of the socket of this machine's node, which asks the others")
	c.Flags().StringVar(&f.Certs, "certs", "", "`directory` with a user's identity, to ask the nodes themselves")
	c.Flags().StringVar(&f.Hosts, "hosts", "", "`file` that lists the nodes to ask so (default: vmmc-hosts.txt in VMMC_ROOT)")
	c.MarkFlagsMutuallyExclusive("hosts", "socket")
	c.MarkFlagsMutuallyExclusive("certs", "socket")
}

// Use says which command's flags the values are from, so that errors name them.
func (f *Flags) Use(c *cobra.Command) { f.of = c }

// Node is one that can be asked.
type Node struct {
	Name    string
	Client  nodev1connect.SessionServiceClient
	Cluster nodev1connect.ClusterServiceClient
	System  nodev1connect.SystemServiceClient
	Link    nodev1connect.LinkServiceClient
	Names   nodev1connect.NameServiceClient
}

// newNode makes the clients of one way to a node.
func newNode(name string, way connect.HTTPClient, base string) *Node {
	limit := connect.WithClientOptions(connect.WithReadMaxBytes(nodeproto.MaxPacket), connect.WithInterceptors(textOnly))
	return &Node{
		Name:    name,
		Client:  nodev1connect.NewSessionServiceClient(way, base, limit),
		Cluster: nodev1connect.NewClusterServiceClient(way, base, limit),
		System:  nodev1connect.NewSystemServiceClient(way, base, limit),
		Link:    nodev1connect.NewLinkServiceClient(way, base, limit),
		Names:   nodev1connect.NewNameServiceClient(way, base, limit),
	}
}

// transport carries calls to a node over TLS.
func transport(id *cert.Identity, name string) *http.Transport {
	return &http.Transport{
		TLSClientConfig: id.ClientTLS(name), ForceAttemptHTTP2: true, TLSHandshakeTimeout: timeout.Hello,
		DialContext: (&net.Dialer{Timeout: timeout.Connect}).DialContext,
		// A node that is cut off while a call waits there does not say so.
		HTTP2: &http.HTTP2Config{SendPingTimeout: timeout.Ping, PingTimeout: timeout.Connect},
	}
}

// Cluster is what can be asked.
type Cluster struct {
	All    []*Node // in the hosts file's order
	Chosen []*Node // those that --node names, in its order; or all
	First  *Node   // this machine's, or the hosts file's first
	Named  bool    // they were named
	Close  func()
}

// Within opens the nodes, has do ask them, and closes them, all within limit.
func (f *Flags) Within(
	ctx context.Context, limit time.Duration, do func(context.Context, *Cluster) error,
) error {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	a, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	return do(ctx, a)
}

// Open finds the nodes. None but this machine's has been asked yet.
func (f *Flags) Open(ctx context.Context) (a *Cluster, err error) {
	switch {
	case f.Certs == "" && f.Hosts != "":
		return nil, serve.Usage("--hosts %s without --certs: nodes want to know who asks them", f.Hosts)
	case f.Certs != "" && f.Hosts == "":
		if f.Hosts = root.FromEnv().Hosts(); f.Hosts == "" {
			return nil, serve.Usage("--certs %s without --hosts, and %s is not set: name the file that lists the nodes to ask", f.Certs, root.Env)
		}
	}
	if f.Certs != "" {
		a, err = f.overTLS()
	} else if a, err = throughNode(ctx, f.Socket); err != nil {
		err = f.named("socket", f.Socket, err)
	}
	if err != nil {
		return nil, err
	}
	a.Chosen, a.Named = a.All, len(f.Nodes) > 0
	if a.Named {
		if a.Chosen, err = a.Find(f.Nodes); err != nil {
			a.Close()
			return nil, f.named("node", strings.Join(f.Nodes, ","), err)
		}
	}
	return a, nil
}

// Find gives nodes by name, each once.
func (a *Cluster) Find(names []string) (out []*Node, err error) {
	var known []string
	for _, n := range a.All {
		known = append(known, n.Name)
	}
	for _, name := range names {
		i := slices.Index(known, hosts.Canonical(name))
		if i < 0 {
			return nil, code.New(code.NoSuchNode,
				"no node %q: the nodes are %s", name, strings.Join(known, ", "))
		}
		if !slices.Contains(out, a.All[i]) {
			out = append(out, a.All[i])
		}
	}
	return out, nil
}

func (f *Flags) overTLS() (*Cluster, error) {
	id, err := cert.Load(f.Certs)
	if err != nil {
		return nil, f.named("certs", f.Certs, err)
	}
	list, err := hosts.ReadFile(f.Hosts)
	if err != nil {
		return nil, f.named("hosts", f.Hosts, err)
	}
	if len(list) == 0 {
		return nil, f.named("hosts", f.Hosts, fmt.Errorf("the hosts file %s names no node", f.Hosts))
	}
	a := &Cluster{}
	var open []*http.Transport
	for _, h := range list {
		t := transport(id, h.Name)
		open = append(open, t)
		a.All = append(a.All, newNode(h.Name, &http.Client{Transport: t}, hosts.URL(h.Control)))
	}
	a.First = a.All[0]
	a.Close = func() {
		for _, t := range open {
			t.CloseIdleConnections()
		}
	}
	return a, nil
}

func throughNode(ctx context.Context, socket string) (*Cluster, error) {
	c, err := nodeproto.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	nodeproto.RefuseDescriptors(c)
	conn := nodeproto.NewDialledConn(c, RefuseRequests)
	a := &Cluster{Close: func() {
		conn.Close()
		<-conn.Done()
	}}
	own := newNode("", &throughSocket{conn, ""}, "http://node")
	list, err := own.Hosts(ctx, nodev1.Look_LOOK_UNSPECIFIED)
	if err != nil {
		a.Close()
		return nil, fmt.Errorf("ask the node at %s: %w", socket, err)
	}
	for _, h := range list {
		node := newNode(h.GetName(), &throughSocket{conn, h.GetName()}, "http://"+h.GetName())
		if a.All = append(a.All, node); h.GetSelf() {
			a.First = node
		}
	}
	if a.First == nil && len(a.All) > 0 {
		a.First = a.All[0]
	}
	return a, nil
}

// RefuseRequests answers what a node asks of processes: a tool does not join it.
func RefuseRequests(context.Context, nodeproto.Method, []byte, []int) (any, []int, error) {
	return nil, nil, fmt.Errorf("this is not a process of the node")
}

// Each asks all chosen nodes at once.
func (a *Cluster) Each(f func(i int, n *Node) error) []error {
	errs := make([]error, len(a.Chosen))
	var all sync.WaitGroup
	for i, n := range a.Chosen {
		all.Go(func() {
			if err := ErrorOf(n, f(i, n)); err != nil {
				errs[i] = &ofNode{n.Name, err}
			}
		})
	}
	all.Wait()
	return errs
}

// ofNode is an error of one of the nodes that were asked.
type ofNode struct {
	node string
	err  error
}

func (e *ofNode) Error() string { return e.err.Error() }
func (e *ofNode) Unwrap() error { return e.err }

// merged makes one of the errors in which several nodes say the same, but for their names.
func merged(errs []error) []error {
	type kind struct {
		first error
		also  []string
	}
	var kinds []*kind
	same := map[string]*kind{}
	for _, err := range errs {
		key, node := err.Error(), ""
		var of *ofNode
		if errors.As(err, &of) {
			node = of.node
			key = strings.ReplaceAll(key, strconv.Quote(node), "\x00")
		}
		k := same[key]
		if k == nil {
			k = &kind{first: err}
			kinds, same[key] = append(kinds, k), k
		} else if node != "" {
			k.also = append(k.also, node)
		}
	}
	var out []error
	for _, k := range kinds {
		err := k.first
		if len(k.also) > 0 {
			err = fmt.Errorf("%w (and the same on %s)", err, strings.Join(k.also, ", "))
		}
		out = append(out, err)
	}
	return out
}

// ErrorOf is an error of a node as this program knows errors.
func ErrorOf(n *Node, err error) error {
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
		switch ce.Code() {
		case connect.CodeUnavailable:
			return code.New(code.Unreachable, "node %q cannot be reached: %s", n.Name, ce.Message())
		case connect.CodeDeadlineExceeded: // nothing is refused where the network is cut
			return &noAnswerError{n.Name}
		}
		if lost := (*url.Error)(nil); errors.As(err, &lost) { // it died just now
			return code.New(code.OutcomeUnknown, "node %q was lost while it was asked; whether it has done it is not known: %v", n.Name, lost.Err)
		}
		return code.New(code.Protocol, "node %q: %s", n.Name, ce.Message())
	case errors.Is(err, context.DeadlineExceeded):
		return &noAnswerError{n.Name}
	}
	return err
}

// noAnswerError is the error of a node from which nothing was heard: it may have done
// what it was asked.
type noAnswerError struct{ node string }

func (s *noAnswerError) Error() string {
	return fmt.Sprintf("node %q cannot be reached: it has not answered in time", s.node)
}

func (s *noAnswerError) Unwrap() []error {
	return []error{code.Unreachable, context.DeadlineExceeded}
}

// Failure joins errors of nodes into one with the right exit status.
func Failure(what string, errs []error) error {
	var bad []error
	status := serve.Partly
	for _, err := range errs {
		if err == nil {
			continue
		}
		bad = append(bad, err)
		// else the node was lost just now
		if !errors.Is(err, code.Unreachable) && !errors.Is(err, code.OutcomeUnknown) {
			status = serve.Failed
		}
	}
	if bad == nil {
		return nil
	}
	return &serve.StatusError{Status: status, Err: fmt.Errorf("%s: %w", what, errors.Join(merged(bad)...))}
}
