package local

// A process whose daemon has ended comes back to the one that has taken its place: Rejoin says
// who it is, Again what it has. Nobody reaches it before the last Again.
const (
	Rejoin Method = iota + 48 // RejoinRequest with the descriptor of what it counts -> Welcome
	Again                     // AgainRequest -> Empty
)

// RejoinRequest says who a process is. The daemon knows it from its roll, and by the kernel.
type RejoinRequest struct {
	Version int
	Process ProcessID
	Pass    string // of its Welcome
	Order   uint64 // the greatest that an AcceptRequest had
}

// AgainRequest is a part of what it has. Exports with permissions come by [Export], before the last one.
type AgainRequest struct {
	Exports []ExportRequest
	Links   []LinkAgain
	Last    bool
}

// AgainEntries is how many exports or links go into one AgainRequest, so that it fits into a packet.
const AgainEntries = 256

// LinkAgain is a link that an importer on another node has dialled, and may dial again.
type LinkAgain struct {
	Link uint64
	Key  []byte
}
