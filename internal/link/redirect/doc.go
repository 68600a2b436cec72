// Package redirect is the transfer redirection of an export (docs/models: redir): which memory the
// data of a message goes to. The side that places the data redirects it. The package moves no frame
// and knows a link by one method.
//
//   - Stream ([Exporter]): the link that receives a message asks where the next bytes go, piece by
//     piece, with its receive lock held. A message claims the posted range with its first word in
//     it, and the first link that does so has it. After a new post links ask again, so the rest of
//     an arriving message is redirected. Ending it stops the claimant at a whole word.
//   - Mapped ([Claims]): the importer copies. Exporter and importer share two more pages for each
//     redirectable export, each with one writer: the post page has the exporter's state, range and
//     target, the claim page what the importer takes, how far it has come, and the end of data.
//     Each side stores its word and then loads the other's, so one of them sees the other. The
//     importer copies in pieces of 16 KiB and looks at the state between them; ending waits for the
//     piece that is being copied. Targets are memories that the export named: the importer maps
//     them with the export. All imports that a process has of one export share one set of claims,
//     because its messages go one after another.
//   - A target that the importer has not mapped: the post page says so, and the importer sends the
//     message that meets the range by the stream, from the next piece on. It keeps the claims'
//     semaphore until that message is acknowledged, so no two of its messages are in progress
//     together. The exporter stores the ending state before it claims, so no later message of that
//     importer claims the same redirection in the page. A mapped send still returns when the
//     message has arrived; an asynchronous one is deferred.
//
// At most one process has the export mapped. It begins a message when all its messages on the
// stream are acknowledged.
//
// An importer that dies in its piece never says that it has finished. The exporter sees that the
// link has ended, waits up to 100 ms for a live importer that only lost its link, and then reports
// what the claim page says. Ring entries carry the generation of the redirection that took the last
// word, so that the handler is given the place where it lies; the last 64 posts are remembered for
// that.
package redirect
