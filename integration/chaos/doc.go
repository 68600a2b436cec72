// Package chaos has a test that lets processes on three nodes use each other's memory while
// processes, daemons and nodes are killed, stopped and cut off, and then holds what has arrived
// against what was sent.
//
//	go test ./integration/chaos                                    some seconds
//	VMMC_CHAOS=30s go test -v -timeout 10m ./integration/chaos     as .ci/run does
//	VMMC_CHAOS=10m go test -v -timeout 30m ./integration/chaos     the long form, with 100 cuts
//	VMMC_CHAOS_SEED=n                                              the schedule of a run before
package chaos
