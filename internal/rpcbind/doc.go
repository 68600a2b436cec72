// Package rpcbind is what vrpcgen makes of rpcbind.x: the protocols by which a machine's programs
// are found.
package rpcbind

//go:generate go run ../../cmd/vrpcgen -package rpcbind -o rpcbind.go rpcbind.x
