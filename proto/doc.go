// Package proto holds the descriptions of the services that node daemons offer
// to one another and to tools. The Go code beside them is generated and
// committed, so that building the module takes the Go toolchain alone.
package proto

//go:generate ./generate.sh
