package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/serve"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// How one node reaches another.
const (
	pathLocal       = "local"  // itself: shared pages
	pathRemote      = "remote" // a TCP connection to its data address
	pathDown        = "down"   // one of the two was taken down
	pathUnreachable = "unreachable"
	pathUnknown     = "unknown" // the first could not be asked
)

// pairInfo is the way from one node to another.
type pairInfo struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Path    string `json:"path"`
	Source  string `json:"source,omitempty"` // address of the connection at From
	Control string `json:"control,omitempty"`
	Data    string `json:"data,omitempty"`
	RTT     int64  `json:"rtt_ns,omitempty"`
	DataRTT int64  `json:"data_rtt_ns,omitempty"` // with the making of a connection
	Error   string `json:"error,omitempty"`
}

func (p *pairInfo) usable() bool { return p.Path == pathLocal || p.Path == pathRemote }

func newNetMap() *cobra.Command {
	var where ask.Flags
	var asJSON, pairs bool
	c := &cobra.Command{
		Use:   "map",
		Short: "Show how each node reaches each other",
		Long: `Ask each node how it reaches all others, and show the path, the addresses and the
round trip of each pair, in both directions: a firewall may stop one of them.

The table has a row for the node that reaches and a column for the one that is
reached. A time is the round trip of a request between their daemons, and means
that the other's data address answers too. "local" is the node itself, "down" one
that "vmmc node down" has taken down, "none" that there is no way, "?" that the
row's node could not be asked. --pairs prints a line for each pair.

This machine's node asks the others. One that it does not reach is asked with
--hosts and --certs, if this machine reaches it.

Exit status: 0 all nodes reach each other, 3 some do not, 1 it failed, 2 it was
called wrongly.`,
		Example: `  vmmc net map
  vmmc net map --pairs --node n1
  vmmc net map --json --hosts vmmc-hosts.txt --certs ~/.config/vmmc`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a, err := where.Open(c.Context())
			if err != nil {
				return err
			}
			defer a.Close()
			m := mapNet(c.Context(), a)
			if err := m.print(c.OutOrStdout(), asJSON, pairs); err != nil {
				return err
			}
			return m.verdict()
		},
	}
	where.Add(c)
	c.Flags().BoolVar(&pairs, "pairs", false, "print a line for each pair")
	jsonFlag(c, &asJSON)
	return c
}

// netMap is what the nodes say of each other; Pairs are in the order of the hosts
// file, those of one asking node together.
type netMap struct {
	asked []string
	all   []string
	pairs map[[2]string]*pairInfo
	errs  []error // of those that could not be asked
}

func mapNet(ctx context.Context, a *ask.Cluster) *netMap {
	m := &netMap{pairs: map[[2]string]*pairInfo{}}
	lists := make([][]*nodev1.Host, len(a.Chosen))
	errs := a.Each(func(i int, n *ask.Node) (err error) {
		lists[i], err = n.Hosts(ctx, nodev1.Look_LOOK_DATA)
		return err
	})
	for _, n := range a.All {
		m.all = append(m.all, n.Name)
	}
	for i, n := range a.Chosen {
		m.asked = append(m.asked, n.Name)
		for _, to := range m.all { // what its hosts file may lack
			m.pairs[[2]string{n.Name, to}] = &pairInfo{From: n.Name, To: to, Path: pathUnreachable, Error: "its hosts file does not have that node"}
		}
		if errs[i] != nil {
			m.errs = append(m.errs, errs[i])
			for _, to := range m.all {
				m.pairs[[2]string{n.Name, to}] = &pairInfo{From: n.Name, To: to, Path: pathUnknown, Error: "could not be asked: " + errs[i].Error()}
			}
			continue
		}
		own := ""
		for _, h := range lists[i] {
			if h.GetSelf() && h.GetPing().GetState() == nodev1.NodeState_NODE_STATE_DOWN {
				own = h.GetPing().GetReason()
			}
		}
		for _, h := range lists[i] {
			m.pairs[[2]string{n.Name, h.GetName()}] = pairOf(n.Name, h, own)
		}
	}
	return m
}

// pairOf judges what one node says of another; down is why it is down itself.
func pairOf(from string, h *nodev1.Host, down string) *pairInfo {
	p := &pairInfo{
		From: from, To: h.GetName(), Path: pathRemote, Source: h.GetFromAddress(),
		Control: h.GetControlAddress(), Data: h.GetDataAddress(), RTT: h.GetRttNs(), DataRTT: h.GetDataRttNs(),
	}
	switch {
	case h.GetSelf():
		p.Path = pathLocal
	case !h.GetReachable():
		p.Path, p.Error = pathUnreachable, h.GetError()
	case h.GetDataError() != "":
		p.Path, p.Error = pathUnreachable, h.GetDataError()
	case h.GetPing().GetState() == nodev1.NodeState_NODE_STATE_DOWN:
		p.Path, p.Error = pathDown, h.GetPing().GetReason()
	case down != "":
		p.Path, p.Error = pathDown, down
	}
	return p
}

// each goes over all pairs in order.
func (m *netMap) each(f func(*pairInfo)) {
	for _, from := range m.asked {
		for _, to := range m.all {
			f(m.pairs[[2]string{from, to}])
		}
	}
}

func (m *netMap) print(w io.Writer, asJSON, pairs bool) error {
	list := []*pairInfo{}
	m.each(func(p *pairInfo) { list = append(list, p) })
	switch {
	case asJSON:
		return printJSON(w, struct {
			Pairs []*pairInfo `json:"pairs"`
		}{list})
	case pairs:
		rows := [][]string{{"FROM", "TO", "PATH", "SOURCE", "CONTROL", "DATA", "RTT", "DATA RTT", "ERROR"}}
		for _, p := range list {
			rows = append(rows, []string{p.From, p.To, p.Path, p.Source, p.Control, p.Data, roundTrip(p.RTT), roundTrip(p.DataRTT), p.Error})
		}
		return printTable(w, rows)
	}
	rows := [][]string{append([]string{"FROM"}, m.all...)}
	for _, from := range m.asked {
		row := []string{from}
		for _, to := range m.all {
			row = append(row, m.pairs[[2]string{from, to}].cell())
		}
		rows = append(rows, row)
	}
	if err := printTable(w, rows); err != nil {
		return err
	}
	for _, line := range m.troubles() {
		fmt.Fprintln(w, line)
	}
	return nil
}

func (p *pairInfo) cell() string {
	switch p.Path {
	case pathRemote:
		return roundTrip(p.RTT)
	case pathUnreachable:
		return "none"
	case pathUnknown:
		return "?"
	}
	return p.Path
}

// troubles are the ways that are missing, with what is known of the way back.
func (m *netMap) troubles() (lines []string) {
	m.each(func(p *pairInfo) {
		if p.Path != pathUnreachable {
			return
		}
		back := m.pairs[[2]string{p.To, p.From}]
		says := ""
		if back != nil && back.usable() {
			says = fmt.Sprintf(" (%s reaches %s)", p.To, p.From)
		}
		lines = append(lines, fmt.Sprintf("%s does not reach %s%s: %s", p.From, p.To, says, p.Error))
	})
	return lines
}

// verdict is the exit status and what to say about it.
func (m *netMap) verdict() error {
	bad, all := 0, 0
	m.each(func(p *pairInfo) {
		if all++; !p.usable() {
			bad++
		}
	})
	if bad == 0 {
		return nil
	}
	err := fmt.Errorf("%d of %d ways between nodes cannot be used", bad, all)
	return &serve.StatusError{Status: serve.Partly, Err: errors.Join(append([]error{err}, m.errs...)...)}
}
