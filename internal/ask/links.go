package ask

import (
	"cmp"
	"context"
	"time"

	"connectrpc.com/connect"

	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Link is one end of a link, with what it has counted since it began.
type Link struct {
	Node     string `json:"node"`
	PID      uint32 `json:"pid"`
	Program  string `json:"program,omitempty"` // that the process ran when it joined
	Place    uint32 `json:"place"`             // among the links of its process
	User     string `json:"user"`
	Session  string `json:"session,omitempty"`
	Role     string `json:"role"` // imports or exports
	PeerNode string `json:"peer_node"`
	PeerPID  uint32 `json:"peer_pid"`

	// If the peer's end is among those that were listed.
	PeerProgram string `json:"peer_program,omitempty"`

	Path   string        `json:"path"` // mapped or stream
	Secret bool          `json:"encrypted"`
	State  string        `json:"state"` // of its connection; unknown: it is not told
	Begun  time.Time     `json:"begun"`
	Idle   time.Duration `json:"idle_ns"`
	Read   time.Duration `json:"read_ns"` // when, by the node's clock

	Messages   uint64 `json:"messages"`
	Bytes      uint64 `json:"bytes"`
	Notes      uint64 `json:"notifications"`
	Gets       uint64 `json:"gets"`
	GetBytes   uint64 `json:"get_bytes"`
	Atomics    uint64 `json:"atomics"`
	Updates    uint64 `json:"updates"`
	Acks       uint64 `json:"acknowledgements"`
	Resumes    uint64 `json:"resumes"`
	Resent     uint64 `json:"resent"`
	Duplicates uint64 `json:"duplicates"`

	ResentBytes uint64 `json:"resent_bytes"`
}

// Links lists the links of all chosen nodes that the caller may see.
func (a *Cluster) Links(ctx context.Context) (all []Link, errs []error) {
	found := make([][]Link, len(a.Chosen))
	errs = a.Each(func(i int, n *Node) (err error) {
		found[i], err = n.links(ctx)
		return err
	})
	all = []Link{}
	for _, f := range found {
		all = append(all, f...)
	}
	nameProgramsOfPeers(all)
	return all, errs
}

func nameProgramsOfPeers(links []Link) {
	type process struct {
		node string
		pid  uint32
	}
	programs := map[process]string{}
	for i := range links {
		programs[process{links[i].Node, links[i].PID}] = links[i].Program
	}
	for i := range links {
		links[i].PeerProgram = programs[process{links[i].PeerNode, links[i].PeerPID}]
	}
}

func (n *Node) links(ctx context.Context) (rows []Link, err error) {
	for r := (&nodev1.LinksRequest{}); ; {
		page, err := n.Link.Links(ctx, connect.NewRequest(r))
		if err != nil {
			return rows, err
		}
		for _, l := range page.Msg.GetLinks() {
			r.AfterPid, r.AfterPlace = l.GetPid(), l.GetPlace()
			rows = append(rows, n.linkRow(l))
		}
		if !page.Msg.GetMore() || len(page.Msg.GetLinks()) == 0 {
			return rows, nil
		}
	}
}

func (n *Node) linkRow(l *nodev1.Link) Link {
	r := Link{
		Node: n.Name, PID: l.GetPid(), Program: l.GetProgram(), Place: l.GetPlace(), User: l.GetUser(), Session: l.GetSession(), Role: "exports",
		PeerNode: l.GetPeerNode(), PeerPID: l.GetPeerPid(), Path: "stream", Secret: l.GetEncrypted(), State: cmp.Or(l.GetState(), "unknown"), Begun: l.GetBegun().AsTime(),
		Idle: time.Duration(l.GetIdleNs()), Read: time.Duration(l.GetReadNs()),
		Messages: l.GetMessages(), Bytes: l.GetBytes(), Notes: l.GetNotifications(), Gets: l.GetGets(), GetBytes: l.GetGotBytes(),
		Atomics: l.GetAtomics(), Updates: l.GetUpdates(), Acks: l.GetAcknowledgements(),
		Resumes: l.GetResumes(), Resent: l.GetResent(), Duplicates: l.GetDuplicates(),
		ResentBytes: l.GetResentBytes(),
	}
	if l.GetImports() {
		r.Role = "imports"
	}
	if l.GetMapped() {
		r.Path = "mapped"
	}
	return r
}

// PathName is the path as tables show it.
func (l *Link) PathName() string {
	if l.Secret {
		return l.Path + "+tls"
	}
	return l.Path
}
