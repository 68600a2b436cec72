//go:build amd64 || arm64

package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// The library for C beside the one for Go, with few exchanges.
func TestBenchC(t *testing.T) {
	library := testutil.CLibrary(t)
	socket := leash(t)
	testscript.Run(t, testscript.Params{
		Files:               []string{filepath.Join("testdata", "bench_c.txtar")},
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("LD_LIBRARY_PATH", library)
			e.Setenv("VMMC_SOCKET", "")
			e.Setenv(leashEnv, socket)
			return nil
		},
	})
}
