// Package testutil holds what the tests of all packages share: leak checks for TestMain, running
// the test binary again in a role, skips that name their reason, and network namespaces.
package testutil
