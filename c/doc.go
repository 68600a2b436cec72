// Package c is the folder of the C library, and has no Go code but tests: see the Makefile, src and
// docs/decisions/0029-the-c-library.md.
package c
