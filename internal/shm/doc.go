// Package shm is memory that several processes share: regions, the words in them, their lifetimes,
// and copying that neither tears a message's last word nor holds up the garbage collector.
//
// # Memory and revocation
//
// An allocation is one memfd, and the memfd is the unit of protection. An export is mapped by
// importers only if it is a whole allocation, or its exporter asked for sharing pages; everything
// else goes by the stream. Before a descriptor leaves, the memory is sealed against resizing, and
// read-only exports against new writable mappings too. A process that receives a descriptor asks
// the kernel for size and seals before it maps.
//
// A mapping may be in use by a copy when it ends. Retiring a region puts private zero pages in its
// place at once and leaves the address range to the collector, which knows when no copy holds the
// region any more. That grace period costs a send nothing. When thousands of ranges wait for a
// collection, or a new mapping finds no room, one is made.
//
// The end of an export copies the contents to a fresh memfd and maps that over the same addresses.
// An importer that keeps its mapping keeps an orphan, which is cleared. Where there is no
// descriptor or address space for a fresh memfd, or a limit on the size of files, the mapping of
// the old one is made private in its place and each page is copied by a write fault; the memory has
// no descriptor then until it is renewed again. A few mappings are kept in reserve for what
// replaces a part of one. An export whose pages could not be taken away stays in its process's
// tables.
//
// Where exports share an allocation, only the pages that no other living export lies in are
// renewed, so one page after the other leaves the memfd. What has left it is not mapped by later
// importers; the region knows its pages that moved, until all of it is renewed. An export of the
// same allocation begins or ends only when no pages of it are moving: else it could be granted a
// page that is just being copied.
//
// An access to memory that may have been unmapped, protected or truncated goes through a guard,
// which makes a fault an error.
package shm
