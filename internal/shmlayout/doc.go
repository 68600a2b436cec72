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
package shmlayout
