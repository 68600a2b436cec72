package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/via"
)

// viaNIC is a NIC as programs are shown it.
type viaNIC struct {
	Node    string  `json:"node"`
	PID     uint32  `json:"pid"`
	User    string  `json:"user"`
	Session string  `json:"session,omitempty"`
	Program string  `json:"program,omitempty"`
	Device  string  `json:"device"`
	Number  uint32  `json:"number"` // among those that the process has opened
	VIs     []viaVI `json:"vis"`
}

type viaVI struct {
	Number   uint32 `json:"number"`
	State    string `json:"state"`
	Level    string `json:"level"`
	Local    string `json:"local,omitempty"`
	Remote   string `json:"remote,omitempty"`
	PeerNode string `json:"peer_node,omitempty"`
	PeerPID  uint32 `json:"peer_pid,omitempty"`

	SendPending      int `json:"send_pending"`
	SendCompleted    int `json:"send_completed"`
	ReceivePending   int `json:"receive_pending"`
	ReceiveCompleted int `json:"receive_completed"`

	Sent          uint64 `json:"sent"`
	SentBytes     uint64 `json:"sent_bytes"`
	Received      uint64 `json:"received"`
	ReceivedBytes uint64 `json:"received_bytes"`
	Errors        uint64 `json:"errors"`
}

func newViaLs() *cobra.Command {
	var where ask.Flags
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List NICs and their virtual interfaces",
		Long: `List the NICs that processes have opened by package via or by VIPL, with their
virtual interfaces (VIs), on all nodes or on those that --node names. NIC is the
device, and its number among the NICs that the process has opened. A NIC without VIs
has one line.

STATE is that of the VI: idle, connect pending, connected, error. SENDQ and RECVQ are the
descriptors of its two queues: those that are outstanding, and after the "+" those that
are complete and not taken by the program. SENT and RECEIVED count descriptors that were
completed without an error, the former SENDs and RDMA operations; ERRORS counts the
others, flushed ones too.

You see the NICs of your own processes in all sessions. The command reads what each NIC
keeps in memory that it exports, as a process of this machine's node that joins for the
moment. Looking disturbs no process.

Exit status: 0 all is well, 1 it failed, 2 it was called wrongly, 3 a node cannot be
reached, and the others are shown.`,
		Example: `  vmmc via ls
  vmmc via ls --node n1,n2
  vmmc via ls --json | jq '.nics[].vis[] | select(.state == "error")'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return where.Within(c.Context(), timeout.Control, func(ctx context.Context, a *ask.Cluster) error {
				tables, errs := a.PublishedNames(ctx, via.StatusName)
				nics, err := readNICs(ctx, where.Socket, tables)
				if err := printNICs(c.OutOrStdout(), columns(c), nics, asJSON); err != nil {
					return err
				}
				return ask.Failure("list NICs", append(errs, err))
			})
		},
	}
	where.Add(c)
	jsonFlag(c, &asJSON)
	return c
}

// readNICs reads the tables of NICs, as a process of each of the sessions that they are of.
func readNICs(ctx context.Context, socket string, tables []ask.Name) (nics []viaNIC, err error) {
	nics = []viaNIC{}
	members := map[string]*vmmc.Process{}
	defer func() {
		for _, p := range members {
			err = errors.Join(err, p.Close())
		}
	}()
	for _, t := range tables {
		p := members[t.Session]
		if p == nil {
			if p, err = vmmc.Open(ctx, vmmc.WithSocket(socket), vmmc.WithSession(t.Session)); err != nil {
				return nics, err
			}
			members[t.Session] = p
		}
		node, err := p.NameToNode(t.Node)
		if err != nil {
			return nics, err
		}
		s, err := via.ReadStatus(ctx, p, vmmc.ProcessID{Node: node, PID: vmmc.PID(t.PID)}, t.Buffer)
		if errors.Is(err, via.ErrNoMatch) {
			continue // it was closed meanwhile
		}
		if err != nil {
			return nics, err
		}
		nics = append(nics, nicOf(t, s))
	}
	return nics, nil
}

func nicOf(t ask.Name, s via.NICStatus) viaNIC {
	n := viaNIC{
		Node: t.Node, PID: t.PID, User: t.User, Session: t.Session, Program: t.Program,
		Device: s.Device, Number: s.Number, VIs: []viaVI{},
	}
	for _, v := range s.VIs {
		r := viaVI{
			Number: v.Number, State: v.State.String(), Level: levelName(v.Level),
			PeerNode: v.PeerNode, PeerPID: uint32(v.Peer),
			SendPending: v.SendPending, SendCompleted: v.SendCompleted,
			ReceivePending: v.ReceivePending, ReceiveCompleted: v.ReceiveCompleted,
			Sent: v.Sent, SentBytes: v.SentBytes, Received: v.Received, ReceivedBytes: v.ReceivedBytes, Errors: v.Errors,
		}
		if v.State != via.Idle {
			r.Local, r.Remote = v.Local.String(), v.Remote.String()
		}
		n.VIs = append(n.VIs, r)
	}
	return n
}

func levelName(l via.Level) string {
	switch l {
	case via.Unreliable:
		return "unreliable"
	case via.ReliableDelivery:
		return "delivery"
	case via.ReliableReception:
		return "reception"
	default:
		return fmt.Sprintf("level %#x", uint16(l))
	}
}

func printNICs(w io.Writer, width int, list []viaNIC, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			NICs []viaNIC `json:"nics"`
		}{list})
	}
	rows := [][]string{{"NODE", "PID", "USER", "SESSION", "NIC", "VI", "STATE", "LEVEL", "PEER", "SENDQ", "RECVQ", "SENT", "BYTES", "RECEIVED", "GOT", "ERRORS", "PROGRAM"}}
	num := func(n uint64) string { return strconv.FormatUint(n, 10) }
	for _, n := range list {
		head := []string{n.Node, num(uint64(n.PID)), n.User, n.Session, fmt.Sprintf("%s#%d", n.Device, n.Number)}
		if len(n.VIs) == 0 {
			rows = append(rows, append(head, "", "", "", "", "", "", "", "", "", "", "", n.Program))
		}
		for _, v := range n.VIs {
			peer := ""
			if v.PeerPID != 0 {
				peer = fmt.Sprintf("%s/%d", v.PeerNode, v.PeerPID)
			}
			rows = append(rows, append(head[:len(head):len(head)],
				num(uint64(v.Number)), v.State, v.Level, peer,
				fmt.Sprintf("%d+%d", v.SendPending, v.SendCompleted), fmt.Sprintf("%d+%d", v.ReceivePending, v.ReceiveCompleted),
				num(v.Sent), num(v.SentBytes), num(v.Received), num(v.ReceivedBytes), num(v.Errors), n.Program))
		}
	}
	return printFitting(w, rows, width, fit{
		spare:   []string{"SESSION", "USER", "LEVEL", "ERRORS", "SENT", "RECEIVED", "SENDQ", "RECVQ"},
		shorten: []string{"PROGRAM"},
		least:   8,
	})
}
