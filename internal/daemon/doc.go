// Package daemon is a node: it serves the processes of one machine over a unix socket and other
// nodes over one TCP port, checks rights, matches imports to exports, and hands over descriptors.
// Then it has no further part: it maps no memory, no data passes through it, and links live on when
// it dies.
//
// A Node composes parts. They are packages below this one, which know nothing of a Node, or files
// with a prefix. Ingress has the connections that have not proved an identity, and the limits on
// them. The system logs are the node's own, and users say what they may. The registry has the
// processes that have joined, and members those that may rejoin or have ended. The broker matches
// imports with exports and introduces links; names has those under which exports are published,
// and names/directory finds those of the whole cluster on other nodes.
// Peers are the other nodes, and the network says whether links with them may be made. Sessions
// have a table, records in the state directory, and drives; children (spawn_) are the programs that
// the node or a session has started. Control is the services for other nodes and for tools.
//
// # Locks
//
// They are taken in this order:
//
//  1. session.connectLock, held while a supervisor is awaited; network.transitionMu, held while
//     links end and other nodes are told.
//  2. sessions.mu.
//  3. session.mu; registry.mu, before which endedTotals.mu may be taken.
//  4. Under registry.mu: members.Journal.mu, then departed.mu; Node.mu, then network.mu.
//
// directory.Directory.mu may be taken under hostsFile.mu, and Node.mu under it. names.Table.mu is
// last: no lock is taken under it. hostsFile.mu comes before ingress.Identity.mu,
// endedTotals.mu before linkCounters.mu. Under the other locks of the daemon and of its parts,
// whose package comments name theirs, none of these is taken.
//
// # Starting programs
//
// A program that spawns asks its node, which starts the program itself or asks the node that is to.
// That node first gives out the logical pid, then starts the program with a token in its
// environment, in a process group of its own, and answers when the program has begun. The first
// process of the right user that registers with the token is the child and gets the pid; until then
// imports from the pid wait. The node stays with each child until it has reaped it. No request is
// asked twice: each starts a program. A caller that gives up has the program killed, as far as its
// node still hears of it.
//
// A process may start a program itself and have the node expect it (Expect, for vmmc run --alone):
// the node gives out the pid and the token, and the program counts as a child until the process
// says that it has ended, or until the process's connection ends.
//
// On the caller's node the program has the ids and groups that the kernel named for the caller's
// connection. Elsewhere it is the user of the same name. Only a daemon of root can become another
// user, and none becomes root for another node without --spawn-root. What confines the caller
// (chroot, namespaces, limits) does not confine the program; what confines the daemon does.
//
// # Sessions
//
// The table of sessions is in the state directory. When a daemon starts, it dials all supervisors
// and learns of their programs, with the tokens by which they join. It takes a process for the
// supervisor only if the kernel says that it is the session's user, and trusts nothing in the
// session's directory otherwise. A spawn by a process in a session goes to the supervisor of the
// session on the node that is asked, with paths of the drive.
//
// Tools call the control service. On this machine the calls are packed into one request of the
// local protocol, which the daemon answers itself or passes to another node with the caller's name.
//
// The nodes that a daemon knows are a roster, which does not change; another hosts file is another
// roster. What the daemon logs goes to standard error and, by subject, to two files. Their rotation
// is our own, because readers over the control service need positions that go on from file to file,
// and lines must never wait for the disk.
//
// # Restart
//
// A process can announce again all that the daemon knows of it, except its identity
// (docs/models/rejoin.pml).
//
//   - The member journal is a file beside the socket, SOCKET.roll, of mode 0600. It has a line for
//     each process that joins, with its ids, the kernel's number and start time of the program, its
//     user, session and parent, and the hash of a token that it was given; a line
//     when it has its first name; and a line for each that ends, with the time. It is not synced,
//     for no process outlives the machine. An orderly stop removes it when no process that has
//     joined lives and no other node may still ask about one that has ended; then it removes
//     SOCKET.bell, and gives the lock back last.
//   - A daemon that starts reads it before it listens. A process that is dead by what the kernel
//     says is remembered as departed. Others are expected, and watched until they have rejoined or
//     are dead.
//     A request that concerns an expected process waits, 10 s at most. An unknown link that is
//     dialled is refused for now while any process is expected, and the importer tries again.
//   - A process dials until there is a daemon, of the same user as before or root. Between attempts
//     it sleeps on a word in SOCKET.bell, which a daemon changes when it serves; without that file
//     it tries every few milliseconds. It names itself and is checked against the journal and the
//     kernel. Then it announces what it has: exports with their serials, their names, and numbers
//     and keys of links that may be resumed. With the last of it the process is joined again, and
//     begins to use the connection. It repeats requests that were not answered, except a spawn. An
//     export that ended meanwhile is taken back by its serial. Grants whose links were not there
//     yet are dropped; importers ask again.
//   - A claim of a name waits for the absent processes of its user and session that have had a
//     name, 10 s at most, because one of them may have this one. A process only announces names
//     that an earlier daemon has agreed to.
//   - Epochs of the network begin at the machine's clock, so those of the next daemon are greater.
//
// A socket without a file is that of a node in a program, and no process waits for it to return.
//
// A daemon remembers the last processes that have ended their connection with it, and tells
// exporters that ask (docs/models/departed.pml). It says nothing of processes that joined the
// daemon before it.
//
// # Taking a node down
//
// Links are the processes' own, so a node that is taken down asks them to end theirs. Each link
// between nodes belongs to an epoch of each side's node, which the daemon gives out with it. Taking
// down ends the epoch:
//
//  1. Requests in the daemon that wait for another node end at once.
//  2. Its processes are told that the links of the epoch will end, and why.
//  3. The other nodes' daemons tell their processes, which end their links with the node.
//  4. Its processes end what is left, and refuse any link that is just being made in it.
//
// So the side that sees a link break knows why. A link that was granted in the old epoch and comes
// after all this is refused, by its number, also after the node is up again.
//
// # Trust
//
//   - On one node the kernel says which user a process is. A node without a socket file serves its
//     own user only.
//   - Nodes and users of a cluster have certificates of its authority, which name them. The control
//     service is TLS 1.3 with certificates on both sides. A node speaks for its own processes and
//     says of which user and session they are. The node's certificate is what its files have at
//     each handshake.
//   - A process may import from processes of the same user and session, and where an export's
//     permissions let it in. A check is for one export, by its serial: the exporter refuses if
//     another one has the id by then. A process that nothing lets in is refused at once whether or
//     not a buffer is there; others may wait for it.
//   - Connections that have not proved an identity are in one limiter, TLS handshakes included,
//     which the daemon makes itself: the HTTP server only sees connections whose certificate was
//     checked. Of too many, the oldest goes.
//   - Where descriptors run out, the last are for those that are there. The number of a new
//     descriptor, the lowest that is free, says how many there are at least; what processes hold
//     and will bring is booked. A process that is refused is told why, also where nothing is left
//     to keep the connection by.
//
// Counters of links are in a memory of each process, whose descriptor comes with its registration.
// The node reads it with pread and does not map it, so a process that lies or tears it spoils its
// own rows. The sums of a node leave out what a process had counted before it registered.
package daemon
