// Package broadcast has logs between processes: one writer, and any number of readers on any node
// that the log's name reaches. Each reader reads all entries at its own pace, from the oldest one
// that is there, from a position, or from now on.
//
//	w, err := broadcast.NewWriter(ctx, p, "ticks", 1<<20) // the writer
//	pos, err := w.Append(tick)
//
//	r, err := broadcast.NewReader(ctx, p, "ticks", broadcast.Oldest) // a reader
//	for e, err := range r.All(ctx) {
//		if lost := (*broadcast.Overrun)(nil); errors.As(err, &lost) {
//			log.Printf("%d bytes were overwritten", lost.Lost)
//			continue
//		}
//		check(err)
//		show(e.Pos, e.Data)
//	}
//
// # The log
//
// The log is a ring in the writer's memory. An entry is any number of bytes, none included, up to
// [Writer.MaxEntry], an eighth of the ring. It takes its length, rounded up to 4 bytes, and 8 bytes
// more. Its position is how many bytes of the log lie before it, counted from a random number on, at
// which the log begins; positions rise for ever, and [At] takes one. Of what was appended at least the last half of the ring's size can be read.
//
// # Guarantees
//
// [Writer.Append] never waits for a reader: not for a slow one, nor for one that is stopped, dead
// or cut off. Entries that a reader has not read are overwritten when the ring is full. Then its
// next call returns an [Overrun], which says how many bytes of the log it has lost, and it goes on
// with the oldest entry. No loss is silent.
//
// A reader gets the entries in the order in which they were appended, each whole, none twice. No
// reader can write to the log, or disturb another reader or the writer: the ring is read-only for
// them. A writer that breaks the protocol gets its readers errors ([vmmc.ErrProtocol]), or entries
// that it could have appended.
//
// No call waits longer than its context, nor for a process that has ended. When [Writer.Close] has
// been called, readers get the entries that are left, and then [ErrEnded]. When the writer has died,
// they get those that had come to their processes, and then [vmmc.ErrPeerGone]: the ring's memory
// went with the writer. The writer forgets a reader that has died. A process that is stopped holds
// up nothing but itself; when it goes on, its next calls return entries or an Overrun.
//
// A link between nodes that is lost, and not resumed within the time of [vmmc.WithResume], ends the
// log for that reader as the writer's death does.
//
// # Costs
//
// A reader on the writer's node copies entries out of the ring without a system call. From another
// node a reader that is behind gets up to 256 KiB in two round trips. A reader that waits has told
// so by one message. The append then pushes an entry of up to 4 KiB to it, with one message: it
// arrives after one way of the network. So an append costs one short message for each reader that
// waits, and a load for each other one.
//
// # Use
//
// All methods may be called concurrently; appends, and reads of one reader, happen one at a time.
// [Writer.Append] and [Writer.Readers] may be called in a notification handler, and nothing else.
// On one node, with a buffer of sufficient capacity, Append and [Reader.Next] allocate nothing.
// [MaxReaders] bounds how many readers there are, and [Permit] says which processes may be readers;
// without it, all that may import from the writer. A program that blocks its notifications
// ([vmmc.Process.BlockNotifications]) holds up new readers.
//
// Experimental: this package may change in any release.
package broadcast

// Where to change what:
//
//   - layout: layout.go
//   - what an append does: Writer.Append and Writer.ringAll in writer.go
//   - what a reader does: Reader.fill, Reader.validate and Reader.await in reader.go
//
// The model is docs/models/broadcast.pml.
