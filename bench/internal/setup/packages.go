// Package setup gets what is measured: packages of Debian, our C programs, our tool.
package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

// programs are what runs need, and the packages of Debian that have them.
var programs = []struct{ program, pack string }{
	{"gcc", "gcc"},
	{"ip", "iproute2"},
	{"ucx_perftest", "ucx-utils"},
	{"fi_pingpong", "libfabric-bin"},
	{"mpirun.mpich", "mpich"},
	{"mpicc.mpich", "libmpich-dev"},
	{"mpirun.openmpi", "openmpi-bin"},
	{"mpicc.openmpi", "libopenmpi-dev"},
}

func missing() (packs []string) {
	for _, p := range programs {
		if _, err := exec.LookPath(p.program); err != nil {
			packs = append(packs, p.pack)
		}
	}
	return packs
}

// Install installs what is missing. Without root or apt it says what to install.
func Install(ctx context.Context, log io.Writer) error {
	packs := missing()
	if len(packs) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("programs of these packages of Debian are missing; install them, or run this as root: %v", packs)
	}
	fmt.Fprintln(log, "installing", packs)
	for _, args := range [][]string{
		{"update", "-qq"},
		slices.Concat([]string{"install", "-y", "-qq", "--no-install-recommends"}, packs),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, out)
		}
	}
	if packs = missing(); len(packs) > 0 {
		return errors.New("still missing after they were installed: programs of " + fmt.Sprint(packs))
	}
	return nil
}
