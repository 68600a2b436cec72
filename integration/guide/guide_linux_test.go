package guide

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmmc-go/vmmc/internal/testutil/script"
)

// All scripts share the lab, one after the other: they tell nodes by what they
// number, and cut them off.
func TestGuide(t *testing.T) {
	l := newLab(t)
	scripts, err := filepath.Glob("testdata/*.txtar")
	check(t, err)
	for _, file := range scripts {
		// It returns when the script has ended.
		t.Run("Script", func(t *testing.T) { l.script(t, file) })
	}
	if !t.Failed() {
		l.stop(t)
	}
}

func (l *lab) script(t *testing.T, file string) {
	testscript.Run(t, testscript.Params{
		Files:               []string{file},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", l.path("tools")+":"+os.Getenv("PATH"))
			e.Setenv("LAB", l.dir)
			e.Setenv("SHARE", l.path("share"))
			e.Setenv("ASK", "--hosts="+l.path("vmmc-hosts.txt"))
			e.Setenv("AS", "--certs="+l.path("certs"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": script.Status, "await": script.Await, "pattern": pattern,
		},
	})
}

// pattern KIND NODES ITERATIONS FILE: the pattern that a run has recorded is the
// manual's.
func pattern(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	iterations, err := strconv.Atoi(args[2])
	ts.Check(err)
	b, err := os.ReadFile(filepath.Clean(ts.MkAbs(args[3])))
	ts.Check(err)
	ts.Check(checkPattern(args[0], n, iterations, b))
}
