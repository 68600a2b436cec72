package rpcmsg

import "github.com/vmmc-go/vmmc/xdr"

// The flavors of credentials that are known here.
const (
	FlavorNone = 0
	FlavorSys  = 1
)

// Sys is the Body of a credential of FlavorSys.
type Sys struct {
	Stamp    uint32
	Machine  string
	UID, GID uint32
	GIDs     []uint32
}

// What Sys holds at most.
const (
	MaxMachine = 255
	MaxGIDs    = 16
)

// EncodeXDR writes it.
func (s *Sys) EncodeXDR(e *xdr.Encoder) {
	e.Uint32(s.Stamp)
	e.String(s.Machine, MaxMachine)
	e.Uint32(s.UID)
	e.Uint32(s.GID)
	e.Len(len(s.GIDs), MaxGIDs)
	for i := 0; i < len(s.GIDs) && e.OK(); i++ {
		e.Uint32(s.GIDs[i])
	}
}

// DecodeXDR reads it.
func (s *Sys) DecodeXDR(d *xdr.Decoder) {
	s.Stamp = d.Uint32()
	s.Machine = d.String(s.Machine, MaxMachine)
	s.UID = d.Uint32()
	s.GID = d.Uint32()
	s.GIDs = xdr.Slice(d, s.GIDs, d.Len(MaxGIDs, 4))
	for i := range s.GIDs {
		s.GIDs[i] = d.Uint32()
	}
}
