package mpi

import (
	"context"

	"github.com/vmmc-go/vmmc"
)

// Module is a transport: what the design of C-MPI calls a protocol module, with its table pt_*. All
// ranks have all modules, and each pair of ranks uses one.
//
//	pt_initialize, pt_initconns   Offer
//	pt_makeconns                  Connect, Port.Want
//	pt_closeconns, pt_finalize    Close
//	pt_fsend, pt_queuedsend       Port.Send
//	pt_frecv, pt_uirecv           Port.Poll, which gives a Sink what has arrived
//	pt_progress_nblk              Port.Poll and Port.News
//	pt_getpolls                   Port.Watches, Awaiter
type Module interface {
	// Name is what the option and the environment call it.
	Name() string
	// Offer exports what the other ranks need to connect to this one, and returns its number.
	Offer() (id uint32, err error)
	// Connect makes the port of a rank by the number that it has offered. What arrives is given to the
	// sink. It is called under the engine's lock, and exchanges nothing with the rank.
	Connect(rank int, id uint32, to Sink) (Port, error)
	// Rung reports whether another rank has connected to this one, or refused it, since Answer was called.
	// It is called without the engine's lock.
	Rung() bool
	// Answer has the ports know. It is called under the lock.
	Answer()
	// Bell is the word that changes then.
	Bell() vmmc.Watch
	// Close gives back what Offer has made. All ports are closed before.
	Close() error
}

// Awaiter is what a module is, too, if no words tell that packets have arrived. Step and Await are called
// without the engine's lock, by several goroutines.
type Awaiter interface {
	// Step finds out what has arrived, so that the ports' News tell it. It never waits.
	Step()
	// Await is Step that waits until something has arrived, or the context or the module ends.
	Await(ctx context.Context) error
}

// Sink takes packets. Data is valid until it returns. An error ends the connection.
type Sink interface {
	Deliver(h *Header, data []byte) error
}

// Port is what a rank has of another one. It connects when that is first wanted. It has the engine know,
// by Engine.activate, when Poll, News, Watches, Ended and Err may have something to say. All methods but
// News, Ended and Close are called under the engine's lock.
type Port interface {
	// Want has the port connect, unless it has begun to. Send wants it, too.
	Want()
	// Lost has the port end with an error, because the rank has ended, and reports that. If it is connected,
	// or imports something of the rank, it reports false: it finds the end itself, after what the rank has
	// sent.
	Lost(err error) bool
	// Send reports whether the packet has left: otherwise there is no room. It never waits.
	Send(h *Header, data []byte) bool
	// Poll gives the sink what has arrived.
	Poll() error
	// News reports whether Poll has something to do. It only reads atomics and words.
	News() bool
	// Watches are the words that change when there are news, or when the peer takes no packets any more.
	// If the module is an Awaiter they tell of no packets. They end with the connection.
	Watches() []vmmc.Watch
	// Ended reports whether the connection has ended. All that arrives has arrived then.
	Ended() bool
	// Err is why the connection has ended.
	Err() error
	// Polled reports whether it is worth to poll: news are seen without a system call.
	Polled() bool
	// Eager reports whether a message of n bytes may be sent without asking the receiver. If not, the
	// sender asks, and the message keeps its place.
	Eager(n int) bool
	// MaxPacket is the longest payload of a packet.
	MaxPacket() int
	// Refuse tells the peer that its packets are not taken any more: its Poll is an error then.
	Refuse()
	// Close ends the connection. It is called without the lock.
	Close() error
}
