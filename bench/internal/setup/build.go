package setup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs are paths of what was built for a run.
type Programs struct {
	Raw     string // c/raw.c
	Floor   string // c/floor.c
	MPICH   string // c/mpi.c
	OpenMPI string
	VMMC    string // our tool
	Self    string // this program, which has the far ends of gRPC and net/rpc
	Agent   string // what stands in for ssh when MPI starts a rank in another namespace
}

// agent is called as ssh is: options, a host, a command. Each namespace gets a host name of its
// own, or Open MPI and MPICH would take both ranks for neighbours with memory in common.
const agent = `#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
eval "namespace=\$VMMCBENCH_$(echo "$host" | tr . _)"
exec ip netns exec "$namespace" unshare --uts sh -c "hostname $namespace; $*"
`

// Build compiles our programs into dir. module is the directory of this module. vmmc is our tool
// where it is built already; empty: it is built from the module above.
func Build(ctx context.Context, module, dir, vmmc string) (*Programs, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Programs{
		Raw:     filepath.Join(dir, "raw"),
		Floor:   filepath.Join(dir, "floor"),
		MPICH:   filepath.Join(dir, "mpi.mpich"),
		OpenMPI: filepath.Join(dir, "mpi.openmpi"),
		VMMC:    vmmc,
		Self:    self,
		Agent:   filepath.Join(dir, "agent"),
	}
	for _, c := range [][3]string{{"gcc", p.Raw, "raw.c"}, {"gcc", p.Floor, "floor.c"}, {"mpicc.mpich", p.MPICH, "mpi.c"}, {"mpicc.openmpi", p.OpenMPI, "mpi.c"}} {
		if err := Compile(ctx, c[0], c[1], filepath.Join(module, "c", c[2])); err != nil {
			return nil, err
		}
	}
	if vmmc == "" {
		p.VMMC = filepath.Join(dir, "vmmc")
		cmd := exec.CommandContext(ctx, "go", "build", "-o", p.VMMC, "./cmd/vmmc")
		cmd.Dir = filepath.Dir(module)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building vmmc in %s: %w: %s", cmd.Dir, err, out)
		}
	}
	// Only root runs it, from a directory that is root's own.
	return p, os.WriteFile(p.Agent, []byte(agent), 0o700) //nolint:gosec // a script must be executable
}

// Compile compiles one C file.
func Compile(ctx context.Context, compiler, program, source string) error {
	out, err := exec.CommandContext(ctx, compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compiling %s with %s: %w: %s", source, compiler, err, out)
	}
	return nil
}

// HostVariable names the variable in which the agent finds the namespace of a host.
func HostVariable(addr string) string { return "VMMCBENCH_" + strings.ReplaceAll(addr, ".", "_") }
