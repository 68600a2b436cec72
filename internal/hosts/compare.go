package hosts

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Digest is the same for two lists only if they have the same nodes, in the same
// places, at the same addresses. It is never 0.
func Digest(list []Host) uint64 {
	sum := sha256.Sum256([]byte(Format(list)))
	return max(binary.LittleEndian.Uint64(sum[:]), 1)
}

// Difference says how another node's list differs from this node's, or "". Lists are
// in conflict if a place is one node's in one and another's in the other, or a node has
// two places: both nodes then give out the same logical pids. Else one list has nodes
// that the other has not, as while a node is added, or addresses differ.
func Difference(own, its []Host) (how string, conflict bool) {
	places, at := map[int]string{}, map[string]int{}
	for i, h := range own {
		places[Place(own, i)], at[h.Name] = h.Name, Place(own, i)
	}
	for i, h := range its {
		place := Place(its, i)
		if here, ok := at[h.Name]; ok && here != place {
			return fmt.Sprintf("its hosts file has node %q in place %d, this node's in place %d",
				h.Name, place+1, here+1), true
		}
		if here, ok := places[place]; ok && here != h.Name {
			return fmt.Sprintf("its hosts file has node %q in place %d, this node's has node %q there",
				h.Name, place+1, here), true
		}
	}
	for _, h := range its {
		here, ok := Lookup(own, h.Name)
		switch {
		case !ok:
			return fmt.Sprintf("its hosts file has node %q, this node's has not", h.Name), false
		case here.Control != h.Control:
			return fmt.Sprintf("its hosts file has node %q at %q, this node's at %q",
				h.Name, h.Control, here.Control), false
		case here.Data != h.Data:
			return fmt.Sprintf("its hosts file has the data address %q of node %q, this node's %q",
				h.Data, h.Name, here.Data), false
		}
	}
	for _, h := range own {
		if _, ok := Lookup(its, h.Name); !ok {
			return fmt.Sprintf("its hosts file lacks node %q", h.Name), false
		}
	}
	return "", false
}
