package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) {
	testscript.Main(testutil.Checked(m), map[string]func(){"vrpcgen": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			// Under the race detector each command would wait a second at its end.
			e.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": status,
		},
	})
}
