// Package peers is the other nodes as one node sees them: which there are, how they are reached and
// asked, and whether they agree on the list of nodes.
//
// A Roster is the list of nodes at one time. It does not change: another hosts file is another
// Roster, and a Peer that is in both keeps its connections. hostsFile.mu is held for one look at
// the file; the node's certificate may be read under it. A Peer is not contacted, reachable or
// unreachable, which peerTransport.mu guards. No lock is held while a Peer is asked. What a Cluster
// needs of its node is in Config.
//
// The form of calls is here too: errors with our codes, and calls that a node relays for its users.
package peers
