package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/semaphore"
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

You see the NICs of your own processes in all sessions; root sees those of all users. The
command reads what each NIC keeps in memory that it exports, as a process of this
machine's node that joins for the moment. Looking disturbs no process. A NIC whose
process is stopped cannot be read: after 5 s the command names it, and shows the others.

Exit status: 0 all is well, 1 it failed or a NIC cannot be read, 2 it was called wrongly,
3 a node cannot be reached, and the others are shown.`,
		Example: `  vmmc via ls
  vmmc via ls --node n1,n2
  vmmc via ls --json | jq '.nics[].vis[] | select(.state == "error")'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return where.Within(c.Context(), timeout.Control, func(ctx context.Context, a *ask.Cluster) error {
				tables, errs := a.PublishedNames(ctx, via.StatusName)
				nics, unread := readNICs(ctx, where.Socket, tables)
				if len(unread) > 0 {
					// A NIC that was closed meanwhile is not published any more.
					now, failed := a.PublishedNames(ctx, via.StatusName)
					for t, err := range unread {
						if errors.Join(failed...) != nil || slices.Contains(now, t) {
							errs = append(errs, err)
						}
					}
				}
				if err := printNICs(c.OutOrStdout(), columns(c), nics, asJSON); err != nil {
					return err
				}
				return ask.Failure("list NICs", errs)
			})
		},
	}
	where.Add(c)
	jsonFlag(c, &asJSON)
	return c
}

// readAtOnce bounds how many tables are read at a time. The process of one may be stopped, and must
// not hold up the others.
const readAtOnce = 16

// readNICs reads the tables of NICs, and returns the errors of those that cannot be read. It does so as
// a process of each of the sessions that they are of. Root cannot join sessions of other users, and
// reads their tables from outside.
func readNICs(ctx context.Context, socket string, tables []ask.Name) ([]viaNIC, map[ask.Name]error) {
	isRoot := os.Geteuid() == 0
	read, errs := make([]*viaNIC, len(tables)), make([]error, len(tables))
	members := map[string]*nicReader{}
	var reads sync.WaitGroup
	room := semaphore.New(readAtOnce)
	for i, t := range tables {
		session := t.Session
		if isRoot && t.User != "root" {
			session = ""
		}
		m := members[session]
		if m == nil {
			m = &nicReader{join: sync.OnceValues(func() (*vmmc.Process, error) {
				return vmmc.Open(ctx, vmmc.WithSocket(socket), vmmc.WithSession(session))
			})}
			members[session] = m
		}
		reads.Go(func() {
			if errs[i] = room.Acquire(ctx); errs[i] != nil {
				return
			}
			defer room.Release()
			read[i], errs[i] = m.read(ctx, t)
		})
	}
	reads.Wait()
	nics, failed := []viaNIC{}, map[ask.Name]error{}
	for i, t := range tables {
		switch err := errs[i]; {
		case err == nil:
			nics = append(nics, *read[i])
		case errors.Is(err, vmmc.ErrRevoked), errors.Is(err, vmmc.ErrPeerGone), errors.Is(err, vmmc.ErrNoSuchProcess):
			// It was closed meanwhile.
		default:
			failed[t] = err
		}
	}
	for _, m := range members {
		if p, err := m.join(); err == nil {
			_ = p.Close() // the process ends now
		}
	}
	return nics, failed
}

// nicReader is this command as a process of a session, once join was called.
type nicReader struct {
	join func() (*vmmc.Process, error)
}

// read reads one table.
func (m *nicReader) read(ctx context.Context, t ask.Name) (*viaNIC, error) {
	p, err := m.join()
	if err != nil {
		return nil, fmt.Errorf("read the NIC of process %d on node %q as a process of session %q: %w", t.PID, t.Node, t.Session, err)
	}
	node, err := p.NameToNode(t.Node)
	if err != nil {
		return nil, err
	}
	s, err := via.ReadStatus(ctx, p, vmmc.ProcessID{Node: node, PID: vmmc.PID(t.PID)}, t.Buffer)
	if err != nil {
		return nil, err
	}
	n := nicOf(t, s)
	return &n, nil
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
