package doctor

import (
	"strings"

	"github.com/vmmc-go/vmmc/internal/mpilib"
)

// MPI judges a program that was examined with the folders that have this project's MPI libraries.
func MPI(p mpilib.Program, own []string) []Finding {
	f := Finding{Check: "mpi", Status: OK, Found: p.String()}
	install := "install this project's libraries (make -C c install), or give their folder in " + mpilib.DirEnv
	if len(own) > 0 {
		install = "none of " + strings.Join(own, ", ") + " has " + p.MPI.Name + ": build the program for " + mpilib.Standard.String()
	}
	switch {
	case p.ABI == mpilib.None:
		f.Status, f.Mend = Warning, "if it is an MPI program, link it with libmpi_abi.so.1"
	case p.MPI.Path == "":
		f.Status, f.Mend = Failed, install
	case !p.Served():
		f.Status = Warning
		f.Found += ", which is not this project's: vmmc mpirun starts it as one rank only"
		f.Mend = install + "; a run path (RPATH) in the program goes before that"
	}
	all := []Finding{f}
	for _, lib := range p.Absent {
		if lib != p.MPI {
			all = append(all, Finding{
				Check: "libraries", Status: Failed, Found: p.Path + " needs " + lib.Name + ", which the dynamic linker does not find",
				Mend: "install it, or name its folder in LD_LIBRARY_PATH",
			})
		}
	}
	return all
}
