package via

import (
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/viapoll"
)

// The C library polls without Go. The words that it reads are no part of the API.
func init() {
	viapoll.Via.SetReader = func(nic any, r viapoll.Reader) {
		n := nic.(*NIC)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.reader = r
	}
	viapoll.Via.Queues = func(vi any) (send, recv viapoll.Queue) {
		v := vi.(*VI)
		return v.send.words(), v.recv.words()
	}
	viapoll.Via.Entries = func(cq any) *atomic.Int32 { return &cq.(*CompletionQueue).count }
}

func (q *queue) words() viapoll.Queue {
	return viapoll.Queue{Outstanding: &q.outstanding, Complete: &q.complete}
}

// setLinks replaces the list of links. mu is held.
func (n *NIC) setLinks(links []*link) {
	n.links.Store(&links)
	if n.reader == nil {
		return
	}
	words := make([]viapoll.Link, len(links))
	for i, l := range links {
		b := l.mem.Bytes()
		words[i] = viapoll.Link{
			Head: shm.Word(b, headOff), Taken: shm.Word(b, takenOff),
			SeenHead: &l.seenHead, SeenTaken: &l.seenTaken,
		}
	}
	n.reader.SetLinks(words)
}

// release is closeBuffer of a link that was one of the NIC's: a reader outside of Go may still be
// loading its words.
func (l *link) release() {
	if l.own.Close() != nil { // a process that ends gives back its exports
		return
	}
	free := func() { _ = l.mem.Close() }
	if r := l.n.reader; r != nil {
		r.Retire(free)
	} else {
		free()
	}
}
