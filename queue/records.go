package queue

import (
	"encoding/binary"
	"fmt"
)

// A queue of records is a queue of slotValues. A record is a run of them, and one message: the first
// one begins with the record's length, and the record's bytes follow, through all of them. As a
// message has no more than the slots up to the end of the ring, a record that is longer than that
// goes behind padding: slots up to the end that say so instead of a length. As every slot has its
// number, also those in a record, none has an earlier lap's bytes where the consumer expects a
// number.
//
// The consumer sees the number of a record's first slot, so all of the record is there.
type slotValue struct {
	RecordLength uint32 // or padding; in a record's other slots the first of its bytes
	RecordBytes  [14]uint32
}

const (
	valueSize  = 60
	lengthSize = 4
	padding    = 1<<32 - 1 // instead of a length

	// maxRecord bounds the length of records: a ring has room for four of the longest, and fits a lane.
	maxRecord = maxLane/8/(valueSize+wordSize)*valueSize - lengthSize
)

// slotsOf is how many slots a record of n bytes has.
func slotsOf(n int) uint64 { return uint64((lengthSize + n + valueSize - 1) / valueSize) }

// leastSlots is how many slots a ring has at least for records of up to n bytes, or for values.
func leastSlots(n int) uint64 {
	if n == noRecords {
		return 1
	}
	return 4 * slotsOf(n) // so a record is at most a quarter of the ring, and padding less
}

// recordOf reads the length of the longest record in a lane's header, or noRecords.
func (r *geometry) recordOf(b []byte) (int, error) {
	n := int64(binary.NativeEndian.Uint32(b[recordOff:])) - 1
	if n > maxRecord || n != noRecords && leastSlots(int(n)) > r.slots {
		return 0, fmt.Errorf("the lane has %d slots for records of %d bytes", r.slots, n)
	}
	return int(n), nil
}
