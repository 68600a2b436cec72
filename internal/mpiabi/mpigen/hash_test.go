package main

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/mpiabi"
)

// The C library and the Go part have the same hash of the table, and another table has another one.
func TestTableHash(t *testing.T) {
	calls, err := readCalls("../calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	if h := tableHash(calls); h != mpiabi.TableHash {
		t.Errorf("mpigen has %#x, and package mpiabi %#x", h, mpiabi.TableHash)
	}
	if tableHash(calls[1:]) == mpiabi.TableHash {
		t.Error("a table without the first call has the same hash")
	}
}
