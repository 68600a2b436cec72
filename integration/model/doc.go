// Package model has the test that compares the library with a plain model of
// what the manual says: random sequences of all calls by several processes, on
// one node and between two, and after each call the outcomes that the manual
// and docs/memory-model.md allow.
//
// One goroutine makes all calls, so a sequence is the same whenever its seed is.
// Where timing decides, the model has a set of outcomes: a message on a stream
// may or may not have arrived before a fence. A failing sequence is shrunk; run
// it again with -rapid.seed or -rapid.failfile, as the failure says.
//
// VMMC_MODEL says how long to go on: VMMC_MODEL=10m go test -timeout 20m
// ./integration/model. A run of a minute, or of 20 seconds on a fast machine, must
// have reached everything in the table that it prints.
package model
