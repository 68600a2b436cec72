// Package mpilib finds out which MPI library a program was built for, and which one serves it.
//
// It asks the dynamic linker of the program, as ldd does, which maps the program and does not run it: so
// libraries that are needed by libraries count, and run paths, and the linker's own cache.
package mpilib

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/internal/env"
)

// ABI is a binary interface of MPI libraries.
type ABI int

// The interfaces.
const (
	None     ABI = iota // no MPI library is needed
	Standard            // that of MPI 5.0, which several libraries have
	MPICH               // that of MPICH, Intel MPI, MVAPICH
	OpenMPI
)

// String names the interface as people do.
func (a ABI) String() string {
	switch a {
	case Standard:
		return "the standard's ABI (MPI 5.0)"
	case MPICH:
		return "MPICH's ABI"
	case OpenMPI:
		return "Open MPI's ABI"
	}
	return "no MPI library"
}

// Sonames are the names of libraries that have an interface, as programs ask the linker for them.
func (a ABI) Sonames() []string {
	switch a {
	case Standard:
		return []string{"libmpi_abi.so.1"}
	case MPICH:
		return []string{"libmpich.so.12", "libmpi.so.12"}
	case OpenMPI:
		return []string{"libmpi.so.40"}
	}
	return nil
}

// abiOf returns the interface of a library by its name.
func abiOf(soname string) ABI {
	for _, a := range []ABI{Standard, MPICH, OpenMPI} {
		if slices.Contains(a.Sonames(), soname) {
			return a
		}
	}
	return None
}

// Library is one that a program needs, or that one of its libraries needs.
type Library struct {
	Name string // its soname
	Path string // where the linker finds it; "": nowhere
}

// Program is what is known of a program.
type Program struct {
	Path   string
	ABI    ABI
	MPI    Library   // the library of that interface
	Absent []Library // what the linker does not find
	Static bool      // it has no libraries: what MPI it has lies in itself
}

// Served reports whether the program's MPI library is one of this project's.
func (p Program) Served() bool { return isOurs(p.MPI.Path) }

// isOurs reports whether a file is a library of this project: one that needs libvmmc. Its name and its
// folder, as /usr/local/lib, may be another one's.
func isOurs(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	needs, err := f.ImportedLibraries()
	return err == nil && slices.ContainsFunc(needs, func(name string) bool { return strings.HasPrefix(name, "libvmmc.so.") })
}

// String says which library serves the program.
func (p Program) String() string {
	switch {
	case p.Static:
		return p.Path + " is linked without libraries: what MPI library it has lies in itself"
	case p.ABI == None:
		return p.Path + " is linked to no MPI library"
	case p.MPI.Path == "":
		return fmt.Sprintf("%s is built for %v, and no %s is found", p.Path, p.ABI, p.MPI.Name)
	}
	return fmt.Sprintf("%s is built for %v, and %s serves it", p.Path, p.ABI, p.MPI.Path)
}

// ErrNoProgram means that a file is no program of this system's format, as a script is.
var ErrNoProgram = errors.New("it is not an ELF program")

// line is one of the linker's: a name, and where it is.
var line = regexp.MustCompile(`^\s*(\S+) => (not found|\S.*?)(?: \(0x[0-9a-f]+\))?$`)

// Examine looks at a program as it would be started with these folders before those of
// LD_LIBRARY_PATH. The program does not run.
func Examine(ctx context.Context, path string, before ...string) (Program, error) {
	p := Program{Path: path}
	linker, err := linkerOf(path)
	if err != nil || linker == "" {
		p.Static = err == nil
		return p, err
	}
	out, err := list(ctx, linker, path, SearchEnv+"="+SearchPath(env.Get(SearchEnv), before...))
	if err != nil {
		return p, fmt.Errorf("ask %s which libraries %s needs: %w", linker, path, err)
	}
	for l := range bytes.Lines(out) {
		m := line.FindSubmatch(bytes.TrimRight(l, "\n"))
		if m == nil {
			continue
		}
		lib := Library{Name: string(m[1])}
		if where := string(m[2]); where != "not found" {
			lib.Path = where
		} else {
			p.Absent = append(p.Absent, lib)
		}
		if a := abiOf(lib.Name); a != None && p.ABI == None {
			p.ABI, p.MPI = a, lib
		}
	}
	return p, nil
}

// list returns what the linker says of a program's libraries.
func list(ctx context.Context, linker, path, search string) ([]byte, error) {
	c := exec.CommandContext(ctx, linker, "--list", path)
	if strings.HasPrefix(filepath.Base(linker), "ld-linux") {
		// That of glibc ends --list at the first library that lacks. With this variable, by which ldd
		// works, it goes on. Another linker might not know the variable, and run the program.
		c = exec.CommandContext(ctx, linker, path)
		c.Env = []string{"LD_TRACE_LOADED_OBJECTS=1"}
	}
	c.Env = append(c.Env, search)
	out, err := c.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(failed.Stderr))
	}
	return out, err
}

// linkerOf returns the dynamic linker that a program names, "" for one without.
func linkerOf(path string) (string, error) {
	f, err := elf.Open(path)
	if bad := (*elf.FormatError)(nil); errors.As(err, &bad) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "", fmt.Errorf("%s: %w", path, ErrNoProgram)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return "", fmt.Errorf("%s: %w: it is of type %v", path, ErrNoProgram, f.Type)
	}
	for _, s := range f.Progs {
		if s.Type != elf.PT_INTERP {
			continue
		}
		const longest = 4096
		b, err := io.ReadAll(io.LimitReader(s.Open(), longest))
		name, _, _ := strings.Cut(string(b), "\x00")
		if err != nil || !filepath.IsAbs(name) {
			return "", fmt.Errorf("%s: %w: its dynamic linker is %q", path, ErrNoProgram, name)
		}
		return name, nil
	}
	return "", nil
}

// SearchEnv is the dynamic linker's variable with folders to look into.
const SearchEnv = "LD_LIBRARY_PATH"

// DirEnv is the variable that names a folder with this project's MPI libraries.
const DirEnv = "VMMC_LIBDIR"

// Dirs are the folders in which this project's MPI libraries are looked for, in this order: beside a
// command, in ../lib of it, and in that of [DirEnv], if it is not "".
func Dirs(command, named string) []string {
	dirs := []string{filepath.Dir(command), filepath.Join(filepath.Dir(command), "..", "lib")}
	if named != "" {
		dirs = append(dirs, named)
	}
	return dirs
}

// Ours are the folders that have an MPI library of this project, in the order of dirs.
func Ours(dirs []string) (has []string) {
	for _, dir := range dirs {
		for _, a := range []ABI{Standard, MPICH} {
			if slices.ContainsFunc(a.Sonames(), func(name string) bool { return isOurs(filepath.Join(dir, name)) }) {
				has = append(has, dir)
				break
			}
		}
	}
	return has
}

// SearchPath puts folders before those of a value of LD_LIBRARY_PATH.
func SearchPath(value string, before ...string) string {
	all := slices.Clone(before)
	if value != "" { // an empty folder would be the working directory
		all = append(all, value)
	}
	return strings.Join(all, string(os.PathListSeparator))
}
