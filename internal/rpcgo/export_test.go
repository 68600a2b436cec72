package rpcgo

import "github.com/vmmc-go/vmmc/internal/rpcl"

// TypeNames are the Go names of a file's types that have methods, by their names in the file: not
// of those that are pointers.
func TypeNames(f *rpcl.File) map[string]string {
	w := newWriter(f)
	w.names()
	out := map[string]string{}
	for d, name := range w.types {
		if hasMethods(d) {
			out[d.Name] = name
		}
	}
	return out
}
