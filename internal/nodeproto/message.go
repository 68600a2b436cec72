package nodeproto

import (
	"fmt"

	"github.com/vmmc-go/vmmc/internal/code"
)

// Version of this protocol; a daemon refuses a process with another.
//
// 5: frames between processes of one node are numbered, as between nodes (wire.Header.Put).
// 6: the daemon makes the socket pair of a link.
const Version = 6

// Method names a request. Those of the first group go from a process to its
// daemon, those of the second the other way.
type Method uint16

// The requests. All but [Spawn] and [Expect] can be repeated after a reconnection: each names what
// it is about, and the second of two equal ones finds the work done.
const (
	Register Method = iota + 1 // Hello -> Welcome
	Export                     // ExportRequest -> Empty
	Unexport                   // ExportRequest -> Empty
	Import                     // ImportRequest -> Grant, with the memory's descriptor if it is mapped
	Connect                    // ConnectRequest with page descriptors -> Connected with descriptors
	Release                    // ReleaseRequest -> Empty
	Forget                     // ForgetRequest -> Empty: a dialled link to this process has ended

	Offer    // OfferRequest -> Grant
	Accept   // AcceptRequest with page descriptors -> Accepted with descriptors
	Handover // HandoverRequest with a connection -> Empty
	Withdraw // ReleaseRequest -> Empty: an import that was granted is not taken up
	Sever    // SeverRequest -> Severed

	ReportEvent // LinkEvent -> Empty: a process has its node log what became of a link
	Departed    // ProcessID -> Departure: whether a process is known to have ended

	SessionNodes // Empty -> SessionNodesAnswer: the nodes of the process's session

	Publish   // PublishRequest -> Published, when the name is the process's or another one's
	Unpublish // PublishRequest -> Empty: by Name, Cluster and Serial
	ListNames // ListNamesRequest -> NameList

	Expect   // ExpectRequest -> Expected: a program that the asker starts; needs no registration
	Unexpect // UnexpectRequest -> Empty: that program has ended, or is not started

	LoseName // LoseNameRequest -> Empty: a process has a name no more, because another one has it
)

// ExpectRequest announces a program that is to be a process of a session. The node keeps a name for
// it, see RunRequest in proto/vmmc/node/v1.
type ExpectRequest struct {
	Session string // as in Hello
	Name    string `json:",omitempty"` // of the node, in the session; empty: none
}

// Expected is what the program is: the process that joins with the token. It is expected until
// Unexpect, or until the connection ends.
type Expected struct {
	Process ProcessID // without incarnation
	Token   string    // see TokenEnv
}

// MaxSpawned bounds the programs of one user that a node has started or expects.
const MaxSpawned = 1024

// UnexpectRequest names one.
type UnexpectRequest struct{ PID uint32 }

// ForgetRequest names a link.
type ForgetRequest struct{ Link uint64 }

// Empty is an answer without content.
type Empty struct{}

// ProcessID names one incarnation of a process.
type ProcessID struct {
	Node        string
	PID         uint32
	Incarnation uint64 // random, so that a restarted process is never taken for the one before
}

// String is for logs; of the zero one, "none".
func (id ProcessID) String() string {
	if id == (ProcessID{}) {
		return "none"
	}
	return fmt.Sprintf("%s/%d", id.Node, id.PID)
}

// Hello is how a process joins its node.
type Hello struct {
	Version     int
	Incarnation uint64
	Session     string
	Token       string // see TokenEnv
}

// Welcome is the daemon's answer.
type Welcome struct {
	Process ProcessID
	Parent  ProcessID // the process that spawned it; Node is empty if none did
	User    string
	Hosts   []string // all nodes, in the hosts file's order
	Pass    string   // by which it may come back to another daemon; empty: it cannot

	Introduces bool `json:",omitempty"` // imports may bring the pages of a link, see ImportRequest
	InSession  bool `json:",omitempty"` // the node has the process's session, and answers SessionNodes
	Names      bool `json:",omitempty"` // the node knows names: Publish, and imports by name
}

// SessionNodesAnswer names the nodes that have the process's session, in the order of making.
type SessionNodesAnswer struct{ Nodes []string }

// Rights are what an importer may do, as bits.
type Rights uint8

// Unheard is among the rights of a grant if the export has no handler: notifications to it have no
// effect.
const Unheard Rights = 1 << 7

// The rights.
const (
	MayWrite Rights = 1 << iota
	MayRead
)

// ExportRequest announces a buffer, or its end.
type ExportRequest struct {
	ID     uint32
	Size   int
	Rights Rights
	Serial uint64 // of this export in its process: another one may get the id later
	// Importers that are permitted; none: its own user and session.
	Permit []Permission `json:",omitempty"`
}

// ImportRequest asks for a buffer; it is answered once the buffer is exported. One with Link comes
// from a process that has no link to the exporter, on its own node, and brings the pages of one, as
// a ConnectRequest does: grant and link then take one question instead of two. It does not wait;
// what cannot be granted at once fails with InProgress.
type ImportRequest struct {
	Node string
	PID  uint32
	ID   uint32
	Link bool `json:",omitempty"`

	// Not 0: the export that is meant. Another one, or none, is BadRbufState at once.
	Serial uint64 `json:",omitempty"`

	// Not nil: instead of an address. Of a set the next member in turn is taken. The grant has Found
	// alone if the export is on this node, and is then asked for by its address.
	Name *NameRef `json:",omitempty"`
}

// PublishRequest gives an export a name. Slot and State are of the export's state word, see Grant.
type PublishRequest struct {
	Name        string
	Cluster     bool `json:",omitempty"`
	Set         bool `json:",omitempty"` // several processes may have it
	ID          uint32
	Serial      uint64
	Slot, State uint32
}

// SameName reports whether two are about one name of one export.
func (r PublishRequest) SameName(o PublishRequest) bool {
	return r.Name == o.Name && r.Cluster == o.Cluster && r.Serial == o.Serial
}

// Published answers it.
type Published struct {
	Taken *ProcessID `json:",omitempty"` // by which process; nil: the export has the name
}

// Found says which export has a name. An import of it must get the same Slot and State.
type Found struct {
	PID         uint32
	Incarnation uint64
	Buffer      uint32
	Serial      uint64
	Slot, State uint32
	Set         bool `json:",omitempty"` // others may have the name, too
}

// MaxPattern bounds a pattern of names, in bytes.
const MaxPattern = 512

// ListNamesRequest asks for the names of the process's user and session that match a pattern of
// package path, after a position.
type ListNamesRequest struct {
	Node    string `json:",omitempty"` // empty: this node
	Cluster bool   `json:",omitempty"`
	Pattern string

	After       string `json:",omitempty"`
	AfterPID    uint32 `json:",omitempty"`
	AfterBuffer uint32 `json:",omitempty"`
}

// NameList is a part of them, by name, process and buffer. More reports whether others follow.
type NameList struct {
	Rows   []NameRow
	More   bool     `json:",omitempty"`
	Silent []string `json:",omitempty"` // of a list of the cluster: nodes that do not answer
}

// NameRow is one name of an export.
type NameRow struct {
	Name   string
	PID    uint32
	Buffer uint32
	Size   int
	Set    bool   `json:",omitempty"`
	Node   string `json:",omitempty"` // of a list of the cluster: the owner's
}

// ListedNames is how many rows a NameList has at most, so that it fits into a packet.
const ListedNames = 48

// Importer identifies an importing process; its daemon vouches for it.
type Importer struct {
	Process ProcessID
	User    string
	Session string
}

// OfferRequest asks an exporter for a grant; the daemon has checked the importer's rights.
type OfferRequest struct {
	Importer Importer
	ID       uint32
	Serial   uint64 // of the export whose permissions were checked
	SameNode bool
	// Not 0: the importer's pages and a socket come along, and the link is to be made, too; see
	// AcceptRequest.
	Order uint64 `json:",omitempty"`
}

// Grant is an import as the exporter numbered it.
type Grant struct {
	Exporter ProcessID
	Handle   uint32 // names the import on its link; never used twice by one exporter
	Size     int
	Rights   Rights
	Mapped   bool   // a descriptor of the memory comes with it
	Memory   int    // bytes of that memory
	Offset   int    // of the buffer in it
	Slot     uint32 // of the export's state word in the exporter's page
	State    uint32 // what that word holds while the export lives
	Place    uint64 // of the buffer, as the exporter names it when it sleeps; 0: it does not

	// Of a redirectable export that is mapped: its pages' number, and the sizes
	// of the memories to redirect to. After the memory's descriptor come those of
	// the post and claim page and of these.
	Claims  uint32
	Targets []int

	Label []byte `json:",omitempty"` // of the export, at most MaxLabel bytes

	// How often grants of the exporter had gone with a link that ended. On a link with a greater
	// number this one is good for nothing: its importer asks again.
	Lost uint64 `json:",omitempty"`

	// Of an import that brought pages: the link, whose descriptors are the last ones: the exporter
	// gives those of LinkPages, and its daemon adds the socket. Without it the importer asks for
	// one.
	Link *Connected `json:",omitempty"`

	// Of an import by name. Found: the export is on this node, and nothing is granted yet. Else
	// Buffer: the export's id.
	Found  *Found `json:",omitempty"`
	Buffer uint32 `json:",omitempty"`
}

// MaxLabel bounds the label of an export, in bytes.
const MaxLabel = 256

// CheckLabel returns a breach of the protocol if the grant's label is longer than an exporter may
// give it.
func (g *Grant) CheckLabel() error {
	if len(g.Label) > MaxLabel {
		return code.New(code.Protocol, "a grant with a label of %d bytes, at most %d", len(g.Label), MaxLabel)
	}
	return nil
}

// ReleaseRequest gives a grant back.
type ReleaseRequest struct {
	Importer ProcessID // filled in by the importer's daemon
	Exporter ProcessID
	Handle   uint32
}

// ConnectRequest asks for a link to an exporter; descriptors: the importer's
// process page and ring page.
type ConnectRequest struct {
	Exporter ProcessID
	Secrecy
}

// Secrecy is what each side of a link between nodes says of its encryption. It goes over
// the control connections only, and nothing that is said on the data plane changes it.
type Secrecy struct {
	Encrypt     bool   `json:",omitempty"` // asked for; in answers: it is so
	Fingerprint []byte `json:",omitempty"` // of the process's certificate; none: it cannot encrypt
}

// LinkPages are the pages that each process gives of a link on one node: its process page and its
// page of the link.
const LinkPages = 2

// LinkDescriptors come with a link on one node: the other process's pages, and one end of a socket
// pair, which the daemon has made. So neither process ever has a descriptor of the other one's
// socket, by which it could change that socket's options.
const LinkDescriptors = LinkPages + 1

// Connected is a link: on one node the descriptors of the exporter's process
// page, its link page and one end of a socket pair; between nodes a key and
// where to dial.
type Connected struct {
	SameNode bool
	Link     uint64
	Key      []byte
	Address  string
	Epoch    uint64 // between nodes, see SeverRequest
	Imports  bool   // see Accepted
	Lost     uint64 `json:",omitempty"` // likewise
	Secrecy
}

// AcceptRequest tells an exporter of a new link, on one node with the descriptors of the importer's
// pages and of the exporter's end of a socket pair; it answers there with those of its own pages.
type AcceptRequest struct {
	Link     uint64
	Order    uint64 // grows with each: of two links of one importer the later is the one it uses
	Importer ProcessID
	SameNode bool
	Key      []byte
	Secrecy
}

// Accepted is an exporter's answer to that.
type Accepted struct {
	Imports bool // it takes imports on the link
	// On one node: how often grants had gone with a link when some of this importer last did, see
	// Grant.
	Lost uint64 `json:",omitempty"`
	Secrecy
}

// HandoverRequest gives an exporter a connection whose proof was checked.
type HandoverRequest struct {
	Link        uint64
	Incarnation uint64 // of the exporter that is meant
	Hello       []byte
	Challenge   []byte
	Epoch       uint64 // see SeverRequest
}

// SeverRequest has a process end its links with processes of another node, or of
// all others. Each link between nodes belongs to an epoch of the process's own
// node, which begins when that is brought up: what comes late of one that is over
// is refused, and a request that comes late ends nothing of the next.
type SeverRequest struct {
	Node  string // "": all others
	Epoch uint64 // with Node "": the last that is over
	Why   string
	Soon  bool // begin none, and expect that the other side ends those that are there
}

// Departure says whether a process has ended, as far as its node knows.
type Departure struct{ Departed bool }

// What a LinkEvent can be about.
const (
	LinkDown      = "down"    // the peer has ended, or its node was taken down
	LinkFailed    = "failed"  // by an error
	LinkLost      = "lost"    // its connection, and it is to be resumed
	LinkResumed   = "resumed" // after that
	ImportRevoked = "revoked" // an export was closed, of which the link goes on
)

// LinkEvent happened to a link of the process that tells of it.
type LinkEvent struct {
	Kind    string
	Peer    ProcessID
	Imports bool // the process imports on it
	Why     string
	State   string // that its connection is in now, if the event is about that
}

// Severed counts the links that were ended.
type Severed struct{ Links int }

// Control goes from a tool to its daemon: ControlRequest -> ControlAnswer. It is
// a call of the daemon's service for sessions, here or on another node, as the
// user that has the tool's connection. It needs no registration.
const Control Method = 33

// MaxControl bounds the body of a call and of its answer, so that it fits into a
// packet.
const MaxControl = 44 << 10

// ControlRequest is the call.
type ControlRequest struct {
	Node    string            // "": this one
	Path    string            // of the procedure
	Headers map[string]string // those that say what the body is
	Body    []byte
}

// ControlAnswer is what came of it.
type ControlAnswer struct {
	Status  int
	Headers map[string]string
	Body    []byte
}

// What a program finds in its environment, beside the socket ([Env]).
const (
	SessionEnv = "VMMCSESSION" // the session that it joins
	HostsEnv   = "VMMCHOSTS"   // the nodes of its session, see [vmmc.Process.SessionHosts]
	TokenEnv   = "VMMC_SPAWN"  // by which its node knows a program that it started
)

// A process whose daemon has ended rejoins at the next one: Rejoin names the process, Again
// announces what it has. No process reaches it before the last Again.
const (
	Rejoin Method = iota + 48 // RejoinRequest with the descriptor of what it counts -> Welcome
	Again                     // AgainRequest -> Empty
)

// RejoinRequest identifies a process. The daemon checks it against its member journal and the
// kernel.
type RejoinRequest struct {
	Version int
	Process ProcessID
	Pass    string // of its Welcome
	Order   uint64 // the greatest that an AcceptRequest had
}

// AgainRequest is a part of what it has. Exports with permissions come by [Export], before the last
// one.
type AgainRequest struct {
	Exports []ExportRequest
	Links   []LinkAgain
	Names   []PublishRequest `json:",omitempty"` // after the exports that have them
	Last    bool
}

// AgainAnswer answers it.
type AgainAnswer struct {
	Lost []LostName `json:",omitempty"`
}

// LostName is a name of an AgainRequest that the process cannot have any more.
type LostName struct {
	At    int        // which one of Names
	Taken *ProcessID `json:",omitempty"` // by which process; nil: Code and Why
	Code  code.Code  `json:",omitempty"`
	Why   string     `json:",omitempty"`
}

// LoseNameRequest is a name that the process had, and by which other one it is taken.
type LoseNameRequest struct {
	PublishRequest
	Taken ProcessID
}

// AgainEntries is how many exports or links go into one AgainRequest, so that it fits into a
// packet.
const AgainEntries = 256

// AgainNames is how many names go into one.
const AgainNames = 48

// LinkAgain is a link that an importer on another node has dialled, and may dial again.
type LinkAgain struct {
	Link uint64
	Key  []byte
}
