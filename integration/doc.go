// Package integration has the tests that need several real processes and nodes.
package integration
