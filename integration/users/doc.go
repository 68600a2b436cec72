// Package users has no code: its tests run the programs as several users of one
// machine, in a mount namespace with directories for temporary files, sockets and
// state of their own.
package users
