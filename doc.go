// Package vmmc is remote memory: a process exports a piece of its memory;
// another one, on the same machine or across a network, imports it and from
// then on writes straight into it, or reads straight out of it. There is no
// receive call and no serializer, and once an import is made no daemon is
// involved: on one machine a send is a copy into the receiver's own pages,
// between machines it is one system call. A send may carry a notification,
// which runs a handler at the far end.
//
// It is the VMMC model of Princeton's SHRIMP project, for today's Linux.
//
// # Model
//
// A [Process] is joined to a node by [Open]. Memory for export comes from
// [Process.Alloc]; [Process.Export] offers it under a number of its own choice.
// [Process.Import] in another process returns an [Import], once the export
// exists. [Import.Send] and [Import.Get] move whole words (4 bytes);
// [Import.WriteAt] and [Import.ReadAt] move any bytes. A receiver finds out that
// something arrived by looking at its memory: it polls, or sleeps on, a [Word],
// usually the last one of a message, because the last word of a message is
// stored last, atomically, when all else of it is in place.
//
// [Import.SendAsync] and [Import.GetAsync] return before it is done, and their
// [Request] says when it is. [Import.FetchAdd32] and its like change a word as one
// step. A receiver may have a message put elsewhere than the sender addressed it
// ([Export.PostRedir]). [Import.SendNotify] runs a handler at the exporter, which
// [Process.BlockNotifications] holds back.
//
// All sends from one process to another arrive in the order in which they were
// made, to whichever exports and by whichever way they travel. Sends of
// goroutines that do not synchronise with each other have no order among them.
//
// # Two ways
//
// An import is mapped when exporter and importer are on one node and the export
// covers a whole allocation, or was made with [SharePages]; otherwise its data goes
// through a stream (a socket) into the exporting process, which the library serves
// in the background.
// [Import.Path] says which. The calls and their promises are the same.
//
// # Lifetimes
//
// Memory of [Process.Alloc] lives until [Memory.Close] or [Process.Close];
// slices of it must not be touched after that. An import ends with
// [Import.Close], with its exporter's [Export.Close], or with its exporter's
// death; then every call on it returns an error that says which of these it
// was. A process that is killed leaves nothing behind: its memory has no name
// in any file system.
//
// # Concurrency
//
// All methods may be called by many goroutines at once unless they say
// otherwise. A context is looked at only before a call has to wait.
package vmmc
