// Package wide is what vrpcgen makes of wide.x: types that take much more memory than on the wire,
// for tests.
package wide

//go:generate go run ../../../cmd/vrpcgen -package wide -o wide.go wide.x
