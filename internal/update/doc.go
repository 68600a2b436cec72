// Package update carries plain stores to memory over to another memory: automatic
// update. It watches the near memory, finds the words that changed, and gives runs
// of them to the transport that writes them to the far one.
//
// # Why no store is lost
//
// A [Binding] has a copy of the near memory, the twin: the far memory holds, or is on
// the way to holding, what the twin holds. A pass looks at memory and, for each word
// that differs from its twin, takes over the value it has just loaded into the twin
// and sends that. One pass runs at a time, under the binding's lock. So a word whose
// near and far values differ for good would be one that differs from its twin and that
// no pass compares again. Which words does a pass compare?
//
//   - The edges: pages that are not wholly the binding's, and all of a small region.
//     Always.
//   - Hot pages: always, whether or not they are protected.
//   - All others are cold. A cold page is compared if the kernel says that it was
//     stored to since it was protected. It was protected *before* it was compared
//     the last time. So a store after that comparison either finds the page protected,
//     which makes the kernel note it, or came after another store that did.
//
// A page that was compared without being protected is noted as stored to still, so it
// is compared in the next sweep as well. A page becomes hot without being protected.
// When it cools it is protected first, then compared once more, and only then left to
// the scan. A sweep that protects does so in one step with the kernel's note, and
// compares after it. To compare first and protect then loses the stores between the
// two; docs/models has both (update.pml).
//
// A full pass over much memory asks with several threads, without protecting anything
// and after it has loaded the flags, which pages were stored to, and looks at those
// alone. What it leaves out a look at that moment would leave out as well.
//
// A region without the kernel's help has cold pages too: they are compared one after
// another.
//
// A look at cold pages may end before it is through: for a flush whose context ends,
// or for a goroutine that waits for the lock. Pages that it has protected are compared
// before that, all of them. A full pass that ends so is none: it sends no flag, and
// the flush that asked for it is not over.
//
// # Order
//
// Passes go through memory in the order of addresses, and stores are made in any
// other, so data has no order. Flags have: a pass first loads all flags, then, if
// one of them differs from its twin, compares *all* other memory and sends what
// changed, and then sends the flags as it loaded them. Data that was stored before a
// flag was in memory when the flag was loaded, so the comparison after that finds
// it. A flag's later value waits for the next pass. Flags are left out wherever data
// is compared.
//
// # Waiting
//
// No store ever waits: the writer has no part in any of this but a fault of about a
// microsecond at the first store to a protected page. A pass may wait for a socket or a
// credit, and holds the lock. A goroutine that then wants it waits with a context.
//
// So each binding has a goroutine. One for all bindings of a process would let a
// reader that does not read the stream, or a handler that gives no credit back, hold
// up the stores of all bindings.
//
// # Passes and scanners
//
// The kernel notes which cold pages were stored to (asynchronous write protection and scans of the
// page map). What has changed goes in pieces of up to 256 KiB, which is what of the twin the
// processor's cache still holds when it is sent, or in messages of up to 1 MiB. On the mapped path
// the words are stored into the exporter's pages; on the stream, and where a message must be one
// (notifications, redirectable exports), they are sent. An alias has nothing to compare: the
// exporter's pages are mapped in the place of the memory's own.
//
// The scanner looks without a pause for 200 µs after something has changed, with short naps for 5
// ms, and then with naps that grow until all bindings of the process together take a 256th of a
// processor. A first store after idleness is then seen within 128 ms where the kernel watches 1
// GiB, after up to 66 s where 1 GiB is compared. Naps end on a common beat, since waking the
// processor costs more than a look. On the mapped path a flush makes its pass itself, and leaves it
// to the scanner when its context ends. Elsewhere a pass may have to wait for a socket or a credit,
// so the scanner makes it and the flush waits with its context. Failing ends a binding and waits
// for nothing; the engine calls it.
//
// Bound memory and exports have no page in common, because an export's end replaces its pages, and
// with them goes the kernel's watch without a word.
package update
