package statedir

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/sessionnodes"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Record is what a node keeps of a session in its state directory.
type Record struct {
	Name   string
	User   string // that its processes run as
	As     string // the user that the session was made with; may be empty
	UID    uint32
	GID    uint32
	Groups []uint32
	Home   string
	Bytes  []byte `json:",omitempty"` // of Home, if JSON would change them
	Drive  string
	Share  string // the directory that the drive was made for; empty: it was there
	Mount  string // where the share is mounted; empty: it is a directory of this machine
	Output string
	Base   string
	Marker string // what its processes have in their environment
	Key    string // of the tokens of its programs; unlike the marker, its user does not know it
	Ending bool   // its deletion has begun

	Attempt string // the call that made it; may be empty
	Account bool   // the share was mounted with credentials, which are not kept
	Cgroup  string // that its processes are in; empty: none

	Made  time.Time `json:",omitzero"`  // when it was asked for; zero: the caller did not say
	Nodes []string  `json:",omitempty"` // that were asked for it, in that order
}

// read is what Dir.Write has kept.
func (r *Record) read(b []byte) error {
	if err := json.Unmarshal(b, r); err != nil {
		return err
	}
	if len(r.Bytes) > 0 {
		r.Home = string(r.Bytes)
	}
	return nil
}

// SetOrigin notes in a record how the session was made.
func (r *Record) SetOrigin(m *nodev1.AddSessionRequest) error {
	if at := m.GetMade(); at != nil {
		if !at.IsValid() {
			return code.New(code.BadArg, "the time at which the session is made is none: %v", at)
		}
		r.Made = at.AsTime()
	}
	if n := sessionnodes.Size(m.GetNodes()); n > sessionnodes.MaxNames || len(m.GetNodes()) > n {
		return code.New(code.BadArg,
			"the names of the session's nodes have %d bytes: at most %d, and none is empty", n,
			sessionnodes.MaxNames)
	}
	r.Nodes = m.GetNodes()
	return nil
}

// Origin is what the record says of that.
func (r *Record) Origin() *nodev1.SessionOriginResponse {
	o := &nodev1.SessionOriginResponse{Nodes: r.Nodes, User: r.User}
	if !r.Made.IsZero() {
		o.Made = timestamppb.New(r.Made)
	}
	return o
}
