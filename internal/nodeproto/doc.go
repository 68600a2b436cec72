// Package nodeproto is the protocol between a process and its node's daemon: packets over a unix
// socket that keeps their boundaries, with descriptors beside them. Both ends ask and answer.
//
// # An import
//
//  1. The importer asks its daemon. That daemon, or the exporter's that it asks over the control
//     service, waits until the buffer is exported and checks who may import it.
//  2. The exporter's daemon asks the exporting process to let the importer in. The grant has a
//     handle, size and rights, and on one node a descriptor of the memory if the export covers a
//     whole allocation. A handle is never used twice.
//  3. The first import from a process makes the link. On one node the importer sends descriptors of
//     its process page and its ring page; the exporter answers with those of its own two pages and
//     one end of a socket pair. Between nodes the exporter's daemon draws a key and gives it to
//     both processes over their control connections. The importer dials the exporter's node, which
//     challenges it, checks its proof and passes the connected socket to the exporting process.
//     That process answers with a proof of its own on the very connection that was checked, and
//     both sides start.
//
// The first import from a process of the same node asks for both at once: the question brings the
// importer's pages, and the grant comes with what the link needs. That takes four packets instead
// of eight, each of which wakes a process; and the importer polls for the answer before it sleeps.
// It is for buffers that are exported already: others are waited for without descriptors in the
// daemon. While such a question is under way no other link is made to that process, and a question
// that was given up makes none after the next one. An exporter forgets grants with the link that
// they were on, which may be one that the importer never had. It counts that and says the count
// with each grant and each link, so that an importer whose grant is older than its link has it asks
// again.
//
// Where there is a link on one node already, one frame on it asks for the import and one answers,
// with the descriptor. The exporter applies the permissions itself, the daemon's rules too, to what
// its daemon told it of the importer with the first grant. What it cannot grant at once it refuses
// without a reason, and the importer asks its node, which waits or says why not. The importer does
// so also if the exporter has not answered within a second, and then asks on the link again only
// after that answer has come. An answer that comes too late, or without its descriptor, is given
// back. A process whose daemon is gone neither asks nor answers.
package nodeproto
