package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/mpilib"
	"github.com/vmmc-go/vmmc/internal/serve"
)

// ownMPILibraries are the folders that have this project's MPI libraries.
func ownMPILibraries() ([]string, error) {
	command, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the folder of the MPI libraries: %w", err)
	}
	if command, err = filepath.EvalSymlinks(command); err != nil {
		return nil, fmt.Errorf("find the folder of the MPI libraries: %w", err)
	}
	return mpilib.Ours(mpilib.Dirs(command, env.Get(mpilib.DirEnv))), nil
}

// librariesHere returns the variables by which programs on this machine find this project's MPI
// libraries. It refuses several ranks of a program that another library serves: that knows nothing of
// this launcher, and each rank would be a job of its own.
func (m *mpiRun) librariesHere(ctx context.Context) (variables []string, err error) {
	own, err := ownMPILibraries()
	if err != nil {
		return nil, err
	}
	if len(own) > 0 {
		variables = []string{mpilib.SearchEnv + "=" + mpilib.SearchPath(env.Get(mpilib.SearchEnv), own...)}
	}
	seen := map[string]bool{}
	for _, r := range m.ranks {
		path, err := exec.LookPath(r.Program.Path)
		if r.Program.Dir != "" && strings.Contains(r.Program.Path, "/") && !filepath.IsAbs(r.Program.Path) {
			if path, err = filepath.Abs(filepath.Join(r.Program.Dir, r.Program.Path)); err == nil { // as the start does
				path, err = exec.LookPath(path)
			}
		}
		if err != nil || seen[path] { // the start tells what is wrong with it
			continue
		}
		seen[path] = true
		p, err := mpilib.Examine(ctx, path, own...)
		switch {
		case err != nil:
			if m.Verbose {
				fmt.Fprintf(m.stderr, "vmmc mpirun: which MPI library serves %s is not known: %v\n", path, err)
			}
		case p.MPI.Path != "" && !p.Served():
			if len(m.ranks) > 1 {
				return nil, serve.Usage("%s is built for %v, and %s serves it, which does not know this launcher: start it by that library's own, or give the folder of this one's libraries in %s", path, p.ABI, p.MPI.Path, mpilib.DirEnv)
			}
		case m.Verbose:
			fmt.Fprintf(m.stderr, "vmmc mpirun: %s\n", p)
		}
	}
	return variables, nil
}
