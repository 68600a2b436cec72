// Package mount3 is what vrpcgen makes of the protocol as RFC 1813 has it.
package mount3

//go:generate go run ../../../cmd/vrpcgen -package mount3 -o mount3.go ../../../internal/rpcgo/testdata/mount3.x
