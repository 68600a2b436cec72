// Package vrpc is SunRPC, RFC 5531: remote procedure calls over UDP, TCP, unix sockets and remote
// memory. A server registers a service once and answers calls of all transports. What vrpcgen
// writes rests on the types of service.go alone.
//
// # Streams and datagrams
//
// On streams a record is read on the connection's goroutine and run on one of its own. A place to
// run in is taken before and given back before the reply is sent, so a client that does not read
// holds up its own calls only, until the write's deadline. Calls in datagrams are looked up among
// those of the last two minutes first. By TCP each end gives up a host that acknowledges nothing:
// keep-alives ask it while nothing is sent, and the time of the last acknowledgement tells it while
// something is.
//
// # Remote memory
//
//  1. The server exports a buffer under a known number. A client takes one of its 64 places by a
//     compare-and-swap and writes a letter there, with a notification: its process id, and the
//     number of its own buffer for replies. A place has the time at which it was taken, as its
//     client may die; a letter that another client has overwritten is written again after 2 s.
//  2. The server imports the client's buffer, and looks for the letter's token in it, since a
//     letter could name memory of a process that knows nothing of it. It exports a buffer for its
//     calls to that process alone, and writes its number at the beginning of the client's.
//  3. A call has a slot, which is where its reply will be, and its caller waits for the slot's last
//     word: no goroutine hands replies on. Requests of up to 240 bytes are one message to the next
//     entry of the server's buffer. Longer ones lie in the area behind the entries, which the
//     client allots, and the entry says where. Opaque data of 4 KiB and more is sent from where it
//     lies. There are as many entries as slots, so no entry is ever waited for: the new call's slot
//     shows that one of the calls in all entries was answered, and entries are taken in order.
//     Replies are sent the same way; the client says in a word of its slot that it is done with one
//     in the area.
//  4. One goroutine for each connection waits for entries and runs procedures itself: another one
//     would cost a short procedure more than its own time. If a procedure takes longer than 200 to
//     400 µs another goroutine takes the next entries: a tick that comes only while calls do finds
//     it running twice. Each tick wakes a thread, so it comes less often, after 3.2 ms at last,
//     where all calls have been short for 0.1 s.
//
// What a peer writes is checked when it is read, once. It may change under a procedure that sees
// its arguments in place, and then spoils its own call. A caller that waits for an answer must hear
// that the peer has died, so it waits by the import's own wait.
//
// # Shutdown
//
// Shutting down ends only what takes calls: listeners are closed, sockets read no more, readers of
// entries stop. The context that procedures run under goes on until all have returned. A connection
// by remote memory fences its last replies, because the end of the server's own buffer goes by the
// other link and could be there first.
package vrpc
