// Package vmmctest tests programs of package vmmc inside go test: nodes whose links the test cuts
// and delays, and processes of their own that it kills and stops.
//
//	func TestMain(m *testing.M) { vmmctest.Main(m) }
//
//	func TestBothNodes(t *testing.T) {
//		nodes := vmmctest.Nodes(t, 2)
//		a, b := nodes[0].Open(t), nodes[1].Open(t)
//		...
//		nodes[0].Cut()
//		...
//		nodes[0].Heal()
//	}
//
// All that a test starts ends with it. A test that leaves something open fails and says what: a
// process of a node that was not opened with [Node.Open], and with [Main] also goroutines and
// descriptors of the test binary. So does a test whose child ends by itself with an error, unless
// the test waits for it.
//
// Experimental: it may change in any release.
package vmmctest
