// Package directory finds the owners of names of the cluster, those that are written "/queue".
//
// The node of a process that has a name is the authority: it alone says whether the process has it
// (Names), and each import asks it in the end. The directory says which node that is. A name is
// registered with its directory nodes: the three of highest rendezvous weight for user, session and
// name ([View]), of fewer than three nodes the first alone. A claim needs two of the three (one of
// one), which it asks in descending order of weight, so that of two rivals the first one asked
// decides. The third is told later. A look-up asks one directory node and then the owner's node. A
// look-up that waits is one call, which the directory node answers when the name is registered.
//
// A [Directory] is one node's part: what is registered with it (table), the calls of other nodes
// (serve.go), the claims of its own processes (claim.go), what others are still to be told (outbox),
// and look-ups (find.go). It knows neither connections nor processes: Config has what it needs.
//
// # Why no name has two owners
//
// A directory node registers a name for one owner. Another claim is refused unless the node of that
// owner says that the process does not have the name: not while that node is silent. Any two
// majorities of one set have a node in common. So it remains that a directory node must not forget:
//
//   - What it registers is in a file before it answers (journal), which the next daemon reads if the
//     machine has not been started since.
//   - Without that file, and where the list of nodes has changed, it asks all nodes for what their
//     processes have ([Directory.recover]). Until each has answered it registers no claim, except of
//     names that it was a directory node of all the time. It answers "waiting", never "absent". So it
//     does of the names of single users, as long as processes of theirs may come back to their node,
//     or there is no room for all their names. A node that had left the list is heard first, too. A
//     node whose answer has a claim that is refused is asked again: the directory node may have
//     consented to that claim and forgotten it.
//   - Each registration, and each withdrawal, has an order that the owner's node takes under the lock
//     of its own table ([names.Ordered]). What arrives late undoes nothing newer.
//   - A claim, and the answer to such a question, are only taken between nodes with the same list
//     of nodes. A claim whose node's list changes meanwhile begins anew.
//
// The list of nodes itself can give a name two owners: where nodes were taken out of it, and have come
// back (contest.go). One of the owners loses the name then, and is told.
//
// The model is docs/models/names.pml.
//
// It begins with the first call of another node, so that a cluster without such names does nothing.
//
// # Locks
//
// Directory.mu comes before table.mu, under which the journal is written. outbox.mu is alone. No
// other node is asked, and no name of this one looked up, under any of them.
package directory
