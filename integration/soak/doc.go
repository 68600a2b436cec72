// Package soak has a test that keeps processes and nodes busy for long, with links that are made
// and closed all the while, and sees that they do not grow.
//
//	go test ./integration/soak                                   some seconds
//	VMMC_SOAK=5m go test -v -timeout 20m ./integration/soak      as .ci/run does
//	VMMC_SOAK=1h go test -v -timeout 90m ./integration/soak      the long form
//	VMMC_SOAK_OUT=DIR                                            the curves, as soak.csv and PNG
package soak
