package link

import (
	"slices"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// What an exporting side says again when its link is resumed.

// maxKeptNotices bounds the notices that are kept. An importer that was not told of more
// than that learns of the others when it uses those imports.
const maxKeptNotices = 1024

// interrupted is called when the connection is gone, with rmu and tmu held. Of the
// message under way whole frames count.
func (in *In) interrupted() { in.replies, in.ackDue, in.unread = nil, false, nil }

// remember keeps a get, or the result of an atomic, until its importer has had it: one
// that asks once more than may be unanswered has had the oldest of them. tmu is held.
func (in *In) remember(r reply) {
	if in.limit == 0 {
		return
	}
	if in.asked.len() == maxFetches {
		in.asked.pop()
	}
	in.asked.push(r)
}

// notice numbers a notice and keeps it; tmu is held.
func (in *In) notice(h *wire.Header) {
	if in.limit == 0 {
		return
	}
	in.noticed++
	h.Serial = in.noticed
	if len(in.notices) == maxKeptNotices {
		in.notices = append(in.notices[:0], in.notices[1:]...)
	}
	in.notices = append(in.notices, *h)
}

// again queues what the importer has not had; rmu and tmu are held.
func (in *In) again(replied uint64, notices uint32) {
	for in.asked.len() > 0 && in.asked.at(0).seq <= replied {
		in.asked.pop()
	}
	in.replies = slices.Clone(in.asked.items[in.asked.head:])
	in.notices = slices.DeleteFunc(in.notices, func(h wire.Header) bool { return h.Serial <= notices })
	in.tx.ctl = append(in.tx.ctl, in.notices...)
}
