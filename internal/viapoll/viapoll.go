// Package viapoll is how cmd/libvmmc reaches the words that an empty poll of package via reads. C
// reads the same words, and so finds out without Go that nothing is complete and nothing has arrived.
package viapoll

import "sync/atomic"

// Link has the words of a link between two NICs. The peer stores Head and Taken. The other two are
// what they were when package via last went by them.
type Link struct {
	Head, Taken         *atomic.Uint32
	SeenHead, SeenTaken *atomic.Uint32
}

// Queue has the words of a queue of descriptors: how many are not complete, and how many are
// complete and not taken. Package via stores Complete before Outstanding.
type Queue struct {
	Outstanding, Complete *atomic.Int32
}

// Reader is code outside of Go that polls a NIC.
type Reader interface {
	// SetLinks gives the links of the NIC, all of them. The NIC's lock is held.
	SetLinks(links []Link)
	// Polls counts the polls. The count may miss some of two threads that poll at once.
	Polls() uint32
	// Retire has free called when no thread can be reading the words of a link that was in an earlier
	// SetLinks and is not in the last one.
	Retire(free func())
}

// Via is set by package via.
var Via struct {
	// SetReader sets the reader of a *via.NIC that has no link yet.
	SetReader func(nic any, r Reader)
	// Queues returns the words of a *via.VI.
	Queues func(vi any) (send, recv Queue)
	// Entries returns the number of entries of a *via.CompletionQueue, below 0 if it is destroyed.
	Entries func(cq any) *atomic.Int32
}
