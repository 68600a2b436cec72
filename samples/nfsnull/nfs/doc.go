// Package nfs is what vrpcgen makes of nfs.x.
package nfs

//go:generate go run ../../../cmd/vrpcgen -package nfs -o nfs.go nfs.x
