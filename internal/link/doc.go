// Package link is all that joins one importing process to one exporting process: the mapped path
// (the exporter's own pages), the stream (frames over a socket), the order that holds over both,
// and the notifications.
//
// An [Engine] serves all links of a process. A goroutine that waits for a word polls the sockets of
// the most active links itself, so a message goes from socket to memory to waiter without another
// thread. When no goroutine waits, one background goroutine, which is parked on the runtime's
// poller, serves everything.
//
// # Sides
//
// The Requester is the importer's side of a link, the Responder the exporter's. The Requester
// numbers messages, sends, keeps them until they are acknowledged, and receives replies. The
// Responder checks each frame, places its payload, runs notifications and answers. It waits for
// nothing but the socket.
//
// # A send on the mapped path
//
// A send of up to 256 KiB that nothing must precede, to an import that lives and is not
// redirectable, takes one call, which does the following steps itself. Other sends, and those that
// must fail, go step by step.
//
//  1. The first send after a wait may be an answer for which the peer polls. It asks for its cache
//     line before all checks.
//  2. It waits if messages of this link are still in flight on the stream: two loads where there
//     are none.
//  3. It loads the export's state word. Another value than the import was made with means that the
//     export was revoked.
//  4. It copies all but the last word, then exchanges the last word.
//  5. It loads the state word again. If that changed, the outcome is unknown. The exchange keeps
//     this load behind the stores.
//  6. It loads the exporter's count of sleepers. Only if a goroutine sleeps there that may wait for
//     one of the message's words does it ring: one small frame on the socket pair, the only system
//     call on this path.
//
// A get is the same with the last word read first. A send with a notification takes a credit before
// step 2, and after step 6 puts an entry into the importer's ring page. A signal copies all of its
// data in step 4, and then exchanges its word.
//
// # A send on the stream
//
//  1. The send takes a credit if it notifies, and the send semaphore: one synchronous message at a
//     time is put on the stream.
//  2. The message goes in chunks of at most 256 KiB, each a 64-byte header and its payload, up to
//     four of them in one sendmsg. To a near end it is one chunk if the call has room for it. A
//     call that takes no time is followed by larger ones, up to sixteen chunks and 4 MiB. The last
//     header carries the last word. Where the socket is full, the sender waits as any waiter does.
//     Acknowledgements and other small frames go between chunks.
//  3. At the exporter the token's holder receives headers into a small buffer and payload straight
//     into the exported memory, after it has checked the header's sequence, range and rights.
//  4. The Responder stores the last word, queues the notification and counts the message as
//     applied, all under the receive lock. Then it wakes sleepers.
//  5. Acknowledgements go back every 1,024 messages or 512 KiB. They go at once when a frame asks:
//     a message over 64 KiB, whose send returns when it is acknowledged, or a fence. The ACK covers
//     what has begun to arrive. Where a message says that many are in flight, the ACK waits for
//     what arrives within a few polls, also if a fence follows.
//
// A signal, data and a word elsewhere, is two messages: the word's is a header alone. Where both
// are short they are built in one place and written at once. A longer one's data is acknowledged
// before the word is sent.
//
// A get is a numbered request. The answer's chunks go straight into the caller's memory. The
// answering side reads the last word first. The Responder remembers its last 64 gets and results of
// atomics: a Requester that asks for one more has had the answer to the 65th before.
//
// # Checksums
//
// The header of each frame has a CRC32C that begins with the frame's number on its connection. Both
// sides count frames and neither writes the number: a frame that the network has lost, repeated or
// moved damages the one in its place (docs/models/resume.pml, with -DBAD). Payloads have a checksum
// on links where one of the two processes asked for it. Memory at both ends may be written to while
// it is sent or received, so what is summed is a copy: a sender sums and sends a copy of up to 64
// KiB, and the receiver sums its buffer before it places the payload. A side that finds a wrong
// checksum counts it and looks at nothing that follows. The last word of that message is not
// stored.
//
// # Encrypted links
//
// Below a link its bytes may go through a Cipher, Go's TLS between two memories (package encrypt).
// Receiving fills one memory from the socket and lets TLS read when a whole record is there, so TLS
// never waits and never holds a part of a record. What is left there raises no event, and receiving
// goes on until nothing is left. Sending encrypts up to 64 KiB into the other memory and empties
// that into the socket. Bytes count as written in the measure in which their records have been
// written, so waiting for room, lending memory and arming need not know of it. Received bytes go by
// the link's buffer, as on links with payload checksums. In clear the cost is one test of a pointer
// for each send and receive.
//
// # Reconnect and retransmission
//
// A link between nodes whose connection breaks gets another one and goes on where it was, if both
// processes ask for it. Links on one node have no network that could break. The models are resume
// and cancel.
//
//   - Messages have numbers, from 1 on, in the order in which they are applied. The Requester keeps
//     each until it is acknowledged. Of a synchronous one of up to 64 KiB it keeps the frame
//     (package sendbuf), in a segment from a pool that all links of the process share: at most 1
//     MiB for a link and 32 MiB for a process. The frame is made there and written from there.
//     Others stay in the caller's memory: their sends return when they are acknowledged, and a
//     request does not complete before. Where no more may be kept, asynchronous messages stay in
//     the queue and hold up all that come after them. Gets and atomics are in the list of
//     unanswered ones already.
//   - The side that finds the connection unusable disconnects, and nothing is received or sent on
//     it after that. A wrong checksum is such a finding. A peer that breaks the protocol loses its
//     link, and one that says Bye has ended it. Waiters wait on, and senders are held up before
//     they begin a message.
//   - The Requester dials the exporter's node. Its hello has a number of the attempt greater than
//     any before, the last reply it has received, and how many notices of revocation. The
//     Responder, holding its locks, closes the old connection and answers which message was applied
//     last, how many bytes of the next one have come in whole frames, and the total of credits.
//     Each side then sends again what the other does not have. What is written counts from there,
//     so an acknowledgement is believed only of what is in frames on this connection.
//   - A message whose sender has given up, or whose import is closed, is sent again as an abort,
//     which takes the place of its number. So its last word was stored before, or never is. Closed
//     imports are reported after all earlier messages.
//   - A side that is not resumed within the limit ends the link, with an error that says why the
//     last attempt failed. All errors of ends say what was observed, and are ErrGone without
//     repeating its text. Bye carries a code that says why. The exporter waits longer, by the time
//     that a hello may take. A node that does not know the link, or a process that has closed it,
//     says so to the dialling side, and that ends the link at once. A connection that ends before
//     anything new was acknowledged does not begin the limit anew, unless nothing is waited for.
//     Pauses between attempts grow from 5 to 250 ms. A Responder does not dial: it asks its node
//     whether the importing process has ended.
//   - The kernel gives up a connection on which nothing is acknowledged (TCP_USER_TIMEOUT, and
//     keep-alive where nothing is sent). It acknowledges for a stopped process, too. So a Requester
//     that is owed something checks every 10 ms whether anything came, or whether its unsent bytes
//     decrease. A goroutine that waits for credits has them asked for once a second, since a lost
//     frame with credits and nothing behind it would not be missed. Time in which the process did
//     not run does not count (docs/models/silence.pml).
//   - A Requester that has sent nothing for 10 ms asks for an acknowledgement, so an idle link
//     keeps nothing.
//
// # Draining
//
// Both links with another process end together (docs/models/gone.pml). The one that has not failed
// is drained: it is not resumed any more, it receives what comes, says Bye when nothing has come
// for 100 ms, and fails after 2 s without anything or 10 s in all. The look at the socket comes
// before the look at the clock, so a process without a processor does not take its peer for silent.
//
// The event that the peer is gone is queued behind the notifications of all its links, when no link
// is left. A link joins the association that there was when it was asked for, an importer's before
// the importer is answered, since that may send from then on. A link whose association is over by
// then is refused. A new link waits until an ending association is over.
//
// # Asynchronous operations and the backlog
//
// An asynchronous send gets its number and goes into the link's inbox. The goroutine that next
// serves the link moves all of the inbox to the queue and writes it, short ones many in one call,
// when no synchronous message is between its chunks. For a short message that is the process's next
// waiter, or the background 20 µs later. Of a long one the call writes what the socket takes at
// once. The memory is borrowed until the message is acknowledged. A request completes when its
// number is acknowledged, or its get answered. The last message of the queue asks for its
// acknowledgement. A caller that polls a request that nothing has asked for sends one ping for all
// messages so far, which waits until the message is written.
//
// An asynchronous get goes through the same queue, as a frame without payload. Gets and atomics
// that are unanswered are in one list, in the order of their numbers. An update by this process
// that overlaps a get in that list waits for its answer, so that the answer is as of the call.
//
// On the mapped path a message or get of at most 64 KiB is copied at once. What cannot be done at
// once goes into the backlog of the link: a long copy, what must wait for stream messages, what
// must wait for a get. A worker goroutine does the backlog and ends with it. Where all of it is
// copies of at most 4 MiB, the process's next waiter makes them, in pieces of 256 KiB, between
// which it polls; a worker starts where a goroutine sleeps or waits for them, when one waiter has
// copied 4 MiB, or when no waiter has come for up to 1 ms. While there is a backlog, all later
// operations of the link go behind it: asynchronous ones are deferred too, synchronous ones wait.
// Queue and backlog have at most 1,024 entries.
//
// Closing an import turns what is queued for it into aborts, which take the place of its numbers.
// When the link ends, the backlog's operations fail one after the other.
//
// # Atomics
//
// On the mapped path an atomic is the processor's, on the shared pages, with the checks of a send
// around it. On the stream it is a frame with operands, in the order of messages; the Responder
// does it with the same instructions on the same memory and answers with the old value. So
// importers of both kinds and the exporter's words see one step.
//
// # Serving links
//
// One Engine has all sockets of a process in one epoll set, each armed for one event at a time. A
// link has a token: free, held, missed. Only the holder receives and arms. A goroutine that takes
// an event must serve it. If the token is taken it marks it as missed, and the holder receives
// again before it releases (docs/models/handoff.pml).
//
//   - A waiter polls for up to 50 µs. Where no link is active and its processor is its own, it
//     first loads memory alone 64 times, as any number of goroutines may. Then one goroutine of the
//     process holds the tokens of up to four active links and receives from them; now and then it
//     takes events of all other links off the set. Others sleep at once. The polling is bounded and
//     yields, and shrinks where yields return late: two ends on one processor would otherwise take
//     a scheduler's tick for each message.
//   - Before it polls links, a waiter makes deferred copies, up to 4 MiB.
//   - A waiter that found its word leaves its links unarmed, since the next wait usually follows at
//     once. The re-arm watchdog arms links that no wait takes any more. It has no thread: waiters
//     do its work as they pass and postpone its timer, which expires when none has come for 1 ms,
//     or for up to 4 ms where they have come for long. A waiter that goes to sleep arms all. A
//     waiter that leaves a link unarmed looks for sleepers after that.
//   - A waiter that finds at the first poll that its long message is complete drains what is ready
//     first, where long messages arrive, and the background leaves such links to it. For as long as
//     that is so, a sender writes 1 MiB between two polls, and the watchdog writes the rest.
//   - The dispatcher polls sockets like a waiter after each notification from another node, and
//     gives way to any other waiter. It leaves no link unarmed, as a handler may take its time.
//   - A waiter also writes what the sockets of its links had no room for, and the short
//     asynchronous messages of all links. Where none does, a timer in the set has the background do
//     it. A waiter that has written so leaves no link unarmed. It peeks at short messages without
//     taking them out of a TCP socket, which would send an acknowledgement for each, and a padding
//     frame of 4 KiB behind the first short ones keeps the kernel from acknowledging earlier. What
//     is in flight to a near end is bounded to two megabytes.
//   - A sleeper raises a count in the process page and then looks once more. The side that delivers
//     stores the word and then loads the count. Both are sequentially consistent, so one of them
//     sees the other.
//   - Polls are loads and system calls that Go's runtime does not know of, and its monitor sleeps
//     while it knows of none. With one processor a poller would keep all others from the network.
//     Every 16,384 polls, over all waits, and every 4,096 waits that begin with plain polls of
//     memory, the runtime is told.
//
// # Notifications
//
// Each message with a notification takes one of the link's 64 credits before it sends anything; the
// credit comes back when the handler has returned. Credits travel as totals, over a stream when a
// quarter of them is due or no notification follows for the time of a wait. A link has one serial
// for the notifications of both paths, given when the ring entry or the first chunk goes, and the
// exporter runs them in its order. A cancelled message with a notification goes on as an abort that
// carries its serial, so no later one waits for it for ever.
//
// Links that may have notifications, and events, are in one queue, beside the rings that are
// polled, whose handlers the dispatcher runs at once. It takes a link, runs one notification and
// puts the link behind the others. Blocking is a depth in that queue; levels that a handler adds
// are counted apart until it returns. Entries of the mapped path stay in the importer's ring until
// they are run, so what is queued is bounded by the credits on both paths. After a notification the
// dispatcher polls the rings of the links that notified last for a while, and then sleeps on them
// in the kernel, where the importer wakes it (docs/models/notes.pml). The exporter's page of the
// link says which. If it does neither, the importer rings if the exporter had taken all entries
// before. Handlers run one at a time on a goroutine of their own, never where links are served, so
// a handler may wait for a get.
//
// What a handler may not call asks whether it runs in one: one load while no handler runs anywhere
// in the program, else a comparison of the goroutine's number, which is read from the head of a
// stack trace. A goroutine that a handler starts is not a handler.
//
// # Locks
//
// Taken in this order, after the semaphores for sending (sendSem, [redirect.Claims]), which alone
// are held while waiting for a peer:
//
//  1. stream.rmu: receiving. Targets, the message that arrives.
//  2. stream.tmu: transmitting. Frames queued and owed, asynchronous queue, replies.
//  3. Requester.inboxMu: numbers and inbox. Under it: fetchTable.mu (unanswered gets),
//     Requester.notifyMu and Responder.notifyMu (serials and notifications).
//  4. stream.stateMu: the connection's state. It may be taken under any lock. Under it: Counters.mu.
//
// workQueue.mu (of the batch, the deferred copies and the watchdog) and backlog.mu are held for
// their lists. Sleepers.mu may be taken under backlog.mu. It and the dispatcher's lock are last.
//
// # Packages below
//
// What needs neither an Engine nor a stream is in packages of its own: redirection (redirect),
// copies of unacknowledged frames (sendbuf), and how much shares a call, a frame, an
// acknowledgement (pacing). The following stay, because they call back into the link under its
// locks:
//
//   - The dispatcher and its ring poller. They take notifications off a Responder, under rmu and
//     notifyMu, and share the ring's head and three flags with it. Their interface would have some
//     ten methods that Responder alone implements. The notify poller is a way of polling the
//     sockets: it holds Engine.polling.
//   - The re-arm watchdog. At the end of a wait that polled, its sweep reads a flag of each listed
//     stream, flushes the stream's unwritten data and arms it. An interface would add an indirect
//     call for each of them to every such wait.
//   - Deferred copies. A waiter runs them in the backlog of a Requester, in the order of the
//     messages on its stream, with credits and checks of Mapped. Only the list and its timer stand
//     apart, and these are workQueue, which the batch and the watchdog have too.
//
// # Memory that is taken away
//
// Memory that a program lends or exports may not be there when it is accessed. Accesses of other
// goroutines on the stream are guarded (package shm), and a fault becomes an error: sources of more
// than 448 bytes before they get a header, queued ones once for all of a queue, answers where they
// arrive, and exports outside of Alloc's memory at each access. What the calling goroutine copies
// itself, as mapped and short messages, faults as its own access would.
package link
