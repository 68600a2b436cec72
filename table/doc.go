// Package table has tables of keys and values in the memory of one process, the owner, which
// processes on any node read without its help.
//
//	t, err := table.New[Item, Price](ctx, p, "prices", 10_000) // the owner
//	err = t.Put(ctx, Item{Number: 7}, Price{Cents: 995})
//
//	r, err := table.Open[Item, Price](ctx, p, "prices") // a reader
//	price, ok, err := r.Get(ctx, Item{Number: 7})
//
// # Keys and values
//
// They are of types that package view accepts: fixed sizes, no pointers, no unnamed padding
// ([view.TypeError]). Keys have no floating-point numbers: they are compared by their bytes, but -0
// is 0 and NaN is not itself. Fields of a key whose name is _ do not count. A reader whose program
// has another definition of a type is refused by Open with a [view.LayoutError], which names the
// field.
//
// # Guarantees
//
// A look-up returns a value that the key had at some time during the call, whole. It does not find
// a key only if the key was not there at some time during the call. So when Put or Delete has
// returned, no later look-up finds what was there before; and what one look-up has found, a later
// one does not find older.
//
// No code of the owner's program runs for a look-up, and no call of the owner waits for readers.
// Readers do not wait for the owner: wherever it is stopped, also in the middle of a Put, they find
// the value before or the one after. A look-up is repeated if the owner changes the same bucket
// twice while it is got, for as long as the context allows.
//
// Between nodes the library of the owner's process answers the gets. So there a stopped process
// makes readers wait, within their contexts.
//
// Put of as many keys as the capacity succeeds, whatever the keys are; beyond that the error is
// [ErrFull], and the table stays as it is. When the owner dies, look-ups return [vmmc.ErrPeerGone],
// and if it closes the table [vmmc.ErrRevoked]. [Reader.Rejoin] opens the table that is published
// under the name next. The entries end with the owner.
//
// Readers have no right to write. What a false owner has in its memory makes look-ups fail with
// [vmmc.ErrProtocol]; it makes no look-up read outside of that memory. A false owner that goes on
// changing it keeps a look-up busy as long as the context allows.
//
// # How entries are found
//
// A key's bytes are hashed by SipHash-1-3, whose seed is the table's own and random: no process
// that cannot read the table can choose keys that collide. The hash names one of the buckets, which
// have room for seven entries each. On average they are two thirds full, and what one has no room
// for is in further buckets. So a look-up is one get of a whole bucket for nineteen keys of twenty,
// and two for the others but some of ten thousand. Where a bucket has more than 8 KiB, or on one
// node 1 KiB, a look-up gets its head first, some 150 bytes, and then the entry alone.
//
// Entries do not move, with one exception: when a key is deleted, one of the last bucket of the
// same hash takes its room. Buckets say so, and a look-up that this could mislead is repeated.
//
// An entry has a checksum of 64 bits over its version, key and value, and a bucket's head one over
// itself. A get reads words in any order, so equal versions at both ends would prove nothing. The
// checksums begin with a secret of the table, so a process that cannot read it cannot choose values
// of which a torn one passes.
//
// # Replicas
//
// A [Replica] is a copy in another process, for which the owner does nothing: the replica gets the
// owner's log of changes, and then the buckets of those keys. Readers open it under a name of its
// own. It is asynchronous: no Put waits for it, unless it confirms (below). A look-up in it finds a whole value that the key
// had in the table some time ago, and later look-ups of the key none older. [Replica.Behind] says
// how many changes it has not applied yet; while there are none it looks for some every millisecond
// ([Every]).
//
// When the owner has ended, [Replica.Promote] makes the replica a table that this process owns. It
// has all changes that were made before Behind was 0. Of later ones it may have some and not
// others: changes of different keys reach a replica in no order.
//
// # Replicas that confirm
//
// A table with [AwaitReplicas] makes each Put and Delete wait until so many replicas have the change;
// these are made with [Confirm]. When the change returns nil, each of these replicas has it, and with it
// all earlier changes. So if the owner dies then, a program that promotes the replica with the most
// changes ([Replica.Changes]), or the only one, loses none that had returned.
//
// A replica that dies, or whose link ends, counts no more. If too few are left, changes wait for another
// one, which first copies the table. A replica that is stopped holds up changes if no other one makes up
// the number, until it goes on or its link ends. The wait ends with the context, too: the error is
// [ErrUnconfirmed] then, the table has the change, and replicas get it when they can. Readers may find a
// value before it is confirmed. A replica that comes back after its end is made anew by [Replicate].
//
// A replica that can confirm no more has ended ([Replica.Done]). The processes that may open the table
// may confirm ([Permit]): a false replica may confirm what it has not.
//
// # Memory
//
// The table lies in the owner's memory, all of it from the beginning, and a replica has as much:
// about three times the bytes of as many entries as the capacity, where an entry is key, value and
// 16 bytes, and 60 bytes more for each.
//
// # Use
//
// All methods may be called concurrently, also in notification handlers, but for New, Open, Rejoin
// and Close; changes of a table with AwaitReplicas fail there with [vmmc.ErrNotInHandler]. Changes of one
// table happen one at a time. On one node Put, Delete and Get allocate nothing, but for changes of a
// table with AwaitReplicas.
//
// Experimental: this package may change in any release.
package table

// Where to change what:
//
//   - layout: layout.go
//   - changes: Table.put and Table.remove in table.go
//   - look-ups: source.attempt in reader.go
//   - replicas: Table.note in table.go, replica.go; those that confirm: confirm.go
//   - which types keys and values may have: types.go; the hash: hash.go
//
// The model is docs/models/table.pml.
//
// A key's home is the bucket that its hash names; an overflow bucket has what a home has no room
// for. A change of a bucket becomes visible by its last word, the committed word.
