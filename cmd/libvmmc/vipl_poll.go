//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/viapoll"
)

// What C polls without Go: words of package via, which are pinned until C's
// threads have left them.

// viplNews is the news of a NIC: a viapoll.Reader.
type viplNews struct {
	grace *grace
	words *C.struct_vmmcb_vip_news
	links *viplLinks // what words.links is, or nil. Guarded by via.NIC.mu.
}

// viplLinks are the links that a NIC has at a time.
type viplLinks struct {
	words *C.struct_vmmcb_vip_links
	pin   runtime.Pinner
}

func (l *library) newNews() *viplNews {
	return &viplNews{grace: &l.grace, words: &C.struct_vmmcb_vip_news{}}
}

func (n *viplNews) SetLinks(links []viapoll.Link) {
	var next *viplLinks
	var words *C.struct_vmmcb_vip_links
	if len(links) > 0 {
		list := make([]C.struct_vmmcb_vip_link, len(links))
		words = &C.struct_vmmcb_vip_links{n: C.uint64_t(len(links)), link: &list[0]}
		next = &viplLinks{words: words}
		next.pin.Pin(words)
		next.pin.Pin(&list[0])
		for i, o := range links {
			next.pin.Pin(o.SeenHead)
			next.pin.Pin(o.SeenTaken)
			list[i] = C.struct_vmmcb_vip_link{
				head: (*C.uint32_t)(unsafe.Pointer(o.Head)), seen_head: (*C.uint32_t)(unsafe.Pointer(o.SeenHead)),
				taken: (*C.uint32_t)(unsafe.Pointer(o.Taken)), seen_taken: (*C.uint32_t)(unsafe.Pointer(o.SeenTaken)),
			}
		}
	}
	atomic.StorePointer((*unsafe.Pointer)(unsafe.Pointer(&n.words.links)), unsafe.Pointer(words))
	if n.links != nil {
		n.grace.retire(n.links.pin.Unpin)
	}
	n.links = next
}

func (n *viplNews) Polls() uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&n.words.polls)))
}

func (n *viplNews) Retire(free func()) { n.grace.retire(free) }

// viplPoll is what C polls of a VI or a completion queue.
type viplPoll struct {
	entry *unsafe.Pointer // in C's table
	words *C.struct_vmmcb_vip_poll
	pin   runtime.Pinner
}

// newPoll lets C poll the queues of a handle.
func (l *library) newPoll(table **C.struct_vmmcb_vip_poll, h C.uint64_t, n *viplNews, queues ...viapoll.Queue) *viplPoll {
	p := &viplPoll{
		entry: (*unsafe.Pointer)(unsafe.Add(unsafe.Pointer(table), uintptr(number(h))*unsafe.Sizeof(*table))),
	}
	w := &C.struct_vmmcb_vip_poll{handle: h, news: n.words}
	p.words = w
	p.pin.Pin(w)
	p.pin.Pin(n.words)
	for i, q := range queues {
		p.pin.Pin(q.Complete)
		w.queue[i].complete = (*C.int32_t)(unsafe.Pointer(q.Complete))
		if q.Outstanding != nil {
			p.pin.Pin(q.Outstanding)
			w.queue[i].outstanding = (*C.int32_t)(unsafe.Pointer(q.Outstanding))
		}
	}
	atomic.StorePointer(p.entry, unsafe.Pointer(w))
	return p
}

// endPoll takes a poll from C. It may be nil.
func (l *library) endPoll(p *viplPoll) {
	if p != nil {
		// The handle has ended already, and its number may be another handle's by now.
		atomic.CompareAndSwapPointer(p.entry, unsafe.Pointer(p.words), nil)
		l.grace.retire(p.pin.Unpin)
	}
}

// show lets C poll the VI. nic.mu is held.
func (x *viplVI) show(l *library) {
	send, recv := viapoll.Via.Queues(x.vi)
	x.poll = l.newPoll(l.shared.vip_vis, x.handle, x.nic.news, send, recv)
}

// show lets C poll the completion queue. nic.mu is held.
func (x *viplCQ) show(l *library) {
	x.poll = l.newPoll(l.shared.vip_cqs, x.handle, x.nic.news, viapoll.Queue{Complete: viapoll.Via.Entries(x.c)})
}

// hide takes the VI's queues from C. nic.mu is held.
func (x *viplVI) hide(l *library) {
	l.endPoll(x.poll)
	x.poll = nil
}

// hide takes the completion queue from C. nic.mu is held.
func (x *viplCQ) hide(l *library) {
	l.endPoll(x.poll)
	x.poll = nil
}
