// Package shmlayout lays out the small pages that processes share: each has one writer and is
// mapped read-only by the other side. A hostile writer spoils what it says itself, never what
// others say; each value read from a peer's page is checked before use.
//
// Two processes on one node share four pages: each process's own page (count of sleepers with their
// words, and the state words of all its exports), the importer's ring of notifications, and the
// exporter's page of the link (entries taken, credits returned). A redirectable export has two
// more.
//
// A process counts what goes over its links in a memory of its own, one slot for each link, that
// only its node reads. Additions are plain. What is counted with a lock held has a lane of its own
// and is exact. Mapped sends take no lock, and count in lanes chosen by the goroutine's stack. When
// a link ends, its counters are added to one of the last two slots, by its side, so that sums never
// go back.
//
// # Golden traces
//
// The files internal/link/testdata/traces/*.txt say what a sender does to the pages of a link: for
// each call its stores, in their order, and its result. TestMappedTraces in internal/link holds
// Go's sender against them, and TestMappedTracesInC the C library's. A file is read line by line.
// Empty lines, and lines that begin with #, are comments. The words of a line are separated by
// single spaces. Numbers are decimal, or hexadecimal after 0x; bytes are pairs of hexadecimal
// digits, in the order of memory. A trace has these lines, in this order:
//
//	trace NAME
//	import HANDLE SLOT ALIVE ADDRESS SIZE
//	fill AREA OFFSET LENGTH BYTE
//	pattern AREA OFFSET LENGTH
//	given AREA OFFSET BYTES
//	word NAME VALUE
//	on AREA OFFSET LENGTH AREA OFFSET BYTES
//	call NAME OFFSET LENGTH [OFFSET]
//
// and then, to be compared,
//
//	plain AREA OFFSET LENGTH from N | BYTES
//	exchange AREA OFFSET LENGTH from N | BYTES
//	rouse AREA OFFSET
//	bell
//	result NAME
//	after NAME VALUE
//	end
//
// The areas are export (the exported memory, SIZE bytes), process (the exporter's [Process] page),
// exporter and importer (the pages of the link, [Exporter] and [Importer]), and buffer (the
// destination of a get). Before the lines fill to given all pages are as their makers leave them,
// and all words are 0; the [Process.State] of SLOT is ALIVE. ADDRESS is the export's on its
// exporter's board. Byte i of a pattern is 1 + i mod 200.
//
// A word is one that the sender keeps to itself: last_seq and acked_seq (of the stream's messages:
// they differ while one is outstanding), pending (deferred operations), link_ended, import_ended
// and closed (1: true), credits_taken and credits_seen, last_serial (of notifications).
//
// A line on has the peer process store BYTES into the second area, as soon as one of LENGTH bytes
// of the first has changed, and before the sender's next instruction; once. It is how a trace shows
// what the sender loads after a store.
//
// Calls are send, notify (a send with a notification), signal (OFFSET at the end is that of the
// word, which is d4c3b2a1 in hexadecimal), write (any bytes), get, and read (a get of any bytes).
// The message is a pattern of LENGTH bytes. With try- before it a call never waits. The result slow
// says that such a call has stored nothing, and that another path must take the message.
//
// Lines plain are stores without an order between them, up to the next line of another area or
// kind. An exchange is one store of whole words that is a full barrier too: what the sender loads
// next it loads after that store. Where the next line of the trace is an exchange too, a plain
// store serves on processors that keep stores in order. "from N" says that the bytes are those of
// the message from its byte N on; in the buffer, those of the pattern. A line rouse is a wake of
// the threads that sleep on a word (futex), a bell a frame of that type on the link's socket.
//
// Results are ok, slow, waits (it would wait for the stream), revoked, closed, and gone (the link
// has ended), with unknown- before it if some of the message may have been stored. Lines after have
// the sender's words, and its counters, that are not 0 after the call.
//
// After a change of the mapped path, look at what the test says, and then write the traces anew:
//
//	go test -run '^TestMappedTraces$' ./internal/link -update-traces
package shmlayout
