package shmlayout

// ConnState is the state of a link's connection. Package link moves it; a process tells its node.
type ConnState uint8

// States of a connection. The numbers are part of the layout.
const (
	// ConnUnknown: the link has not started, or its process does not tell.
	ConnUnknown ConnState = iota
	ConnEstablished
	// ConnRetransmitting: there is a connection again, and messages of earlier ones are sent once
	// more.
	ConnRetransmitting
	// ConnDraining: the peer's end is announced, and a lost connection is not made again.
	ConnDraining
	// ConnLost: the connection is unusable, and its descriptors are still open.
	ConnLost
	// ConnReconnecting: there is no connection. The importer dials, the exporter waits for it.
	ConnReconnecting
	// ConnEnded: the link has ended.
	ConnEnded
	// ConnReleased: the descriptors are closed, and the link uses no memory of its process any more.
	ConnReleased
)

var connStateNames = [...]string{
	ConnUnknown: "unknown", ConnEstablished: "established", ConnRetransmitting: "retransmitting", ConnDraining: "draining",
	ConnLost: "lost", ConnReconnecting: "reconnecting", ConnEnded: "ended", ConnReleased: "released",
}

// String returns the name of the state. A peer may claim any number.
func (c ConnState) String() string {
	if int(c) >= len(connStateNames) {
		c = ConnUnknown
	}
	return connStateNames[c]
}

// Connected reports whether frames can be sent and received.
func (c ConnState) Connected() bool { return c >= ConnEstablished && c <= ConnDraining }
