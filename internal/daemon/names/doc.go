// Package names is a node's table of the names under which its processes publish exports.
//
// A name belongs to a user and a session, see [Key]. Each process is an [Owner], and each name of
// an export is an [Entry]: claiming, then held, then ended (entryState has the diagram). Only held
// entries are found. An entry ends by [Table.Withdraw], with its export by [Table.EndExport], with
// its process by [Table.Drop], and a claim also if a returning process has the name
// ([Table.Restore]). A held name of the cluster ends by [Table.Lose] if another process has it, too.
//
// A name can be kept for a program that is started ([Table.Reserve]; reservationState has the
// diagram). No other process can have it, and a wait for it fails when that program has ended, also
// before it has joined.
//
// Table.mu guards all of it. It is the last of a daemon's locks: no other one is taken and no
// function of a caller is called under it. Each name has a channel for the
// imports and one for the claims that wait for it, so a change wakes only those that it serves.
package names
