// Package via is the Virtual Interface Architecture for Go programs: work queues of SENDs,
// receives and RDMA, completion queues, protection tags and three reliability levels, on the remote memory
// of package vmmc.
//
// The calls have the semantics of VIPL, the library of the Intel Virtual Interface Architecture
// Developer's Guide. docs/via.md maps them to these, and says what is not there yet.
//
//	nic, err := via.Open(p, "nic0")
//	tag, err := nic.NewTag()
//	mem, err := nic.Register(make([]byte, 4096), via.MemoryAttributes{Tag: tag})
//	vi, err := nic.NewVI(via.VIAttributes{
//		Level: via.ReliableDelivery, MaxTransferSize: 4096, Tag: tag,
//	}, nil, nil)
//	_, err = vi.Connect(ctx, local, remote)
//	d := &via.Descriptor{Segments: []via.Segment{mem.Segment(0, 64)}}
//	err = vi.PostSend(d)
//	d, err = vi.SendWait(ctx)
//
// # Model
//
// A [NIC] is an opening of a device. A [VI] has a queue of SENDs and a queue of receives, and is
// connected to one other VI, of any process that the node's names reach. A [Descriptor] names memory
// in segments. A SEND consumes the first receive that the other side has posted: its data is
// scattered over that descriptor's segments. Descriptors of a queue are completed in the order of
// their posts, and a Done or Wait call returns them in that order. Between queues there is no order.
// A [CompletionQueue] says which of many queues have completed descriptors.
//
// RDMA operations are posted to the send queue, and write or read memory of the other process
// ([Remote]), which calls nothing for them. Its VI and region must enable it.
//
// All memory that descriptors name must be registered ([NIC.Register]) with the [ProtectionTag] of
// the VI.
//
// # Levels
//
// On [Unreliable] VIs an error concerns one descriptor. On [ReliableDelivery] and
// [ReliableReception] an error breaks the connection: both VIs go to state Error ([Failed]), their
// descriptors are completed as [Flushed], and both programs are told by [ConnectionLost]
// ([NIC.OnError]). That also happens when the other process ends, its NIC is closed or its node is
// lost ([vmmc.WithResume] says for how long a link is kept), and when it disconnects, on all levels.
// [VI.Disconnect] makes the VI idle again.
//
// A receive must be posted before the message arrives. The library takes messages out of the
// network at once: by the calls of the program that poll or wait, and otherwise by a goroutine.
//
// # Concurrency
//
// All methods may be called concurrently. The error handler and the handlers of completions
// ([VI.SendNotify], [VI.ReceiveNotify], [CompletionQueue.Notify]) may call all but [NIC.Close]. Calls
// that wait, Listen and Close, must not be called in a handler of package vmmc.
//
// Experimental: this package may change in any release.
package via

// Where to change what:
//
//   - the layout of a link's buffer, kinds and headers of messages: message.go
//   - making a link: NIC.linkTo in link_dial.go; its goroutine and its end: link.run and link.finish
//     in link.go
//   - what a link sends, and in which order: link.pump in link_send.go; what it does with what
//     arrives: link.dispatch in link_receive.go
//   - posts, and the taking of complete descriptors: vi_queue.go
//   - what a SEND does: VI.transmit in vi_send.go; what a receive does: VI.receive in vi_receive.go;
//     RDMA: rdma.go, and without messages: direct.go
//   - calls of the program's handlers: notify.go
//   - requests for connections: connect.go on the side that asks, listener.go on the other one;
//     peer to peer: peer.go
//   - states of a VI and their transitions: vi.go
