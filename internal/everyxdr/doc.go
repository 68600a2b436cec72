// Package everyxdr is what vrpcgen makes of every.x, which has every type of XDR: for tests, that
// hold it against the C that rpcgen makes of the same file.
package everyxdr

//go:generate go run ../../cmd/vrpcgen -package everyxdr -o every.go every.x
