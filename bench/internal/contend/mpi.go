package contend

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/bench/internal/place"
	"github.com/vmmc-go/vmmc/bench/internal/sample"
	"github.com/vmmc-go/vmmc/bench/internal/setup"
)

// Names of contenders.
const (
	mpich   = "MPICH"
	openMPI = "Open MPI"
)

// mpi is our c/mpi.c under both MPIs. Over TCP they are kept from the memory that the ranks could
// share: UCX, which Debian's MPICH is built on, has no other transport then, and MPICH takes each
// rank for a node of its own; Open MPI gets one transport of messages, and one-sided calls made of
// it.
func (k *kit) mpi() []Job {
	var env []string
	first := []string{"-bind-to", "none", "-n", "2"}
	second := []string{"--allow-run-as-root", "--bind-to", "none", "--oversubscribe", "--mca", "pml", "ob1"}
	if k.shared() {
		second = append(second, "--mca", "btl", "vader,self")
	} else {
		env = []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=" + k.at.Device, "MPIR_CVAR_NOLOCAL=1"}
		second = append(second, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", k.at.Device, "--mca", "osc", "pt2pt")
	}
	if k.at.Apart() {
		hosts := k.at.Addr[place.Near] + ":1," + k.at.Addr[place.Far] + ":1"
		first = append([]string{"-launcher", "ssh", "-launcher-exec", k.Agent, "-iface", k.at.Device, "-hosts", hosts}, first...)
		second = append(second, "--mca", "plm_rsh_agent", k.Agent, "--mca", "oob_tcp_if_include", k.at.Device, "--host", hosts)
		for side, addr := range k.at.Addr {
			env = append(env, setup.HostVariable(addr)+"="+k.at.NS[side])
		}
	}
	return []Job{
		k.mpiJob(mpich, env, "mpirun.mpich", append(first, k.MPICH)),
		k.mpiJob(openMPI, env, "mpirun.openmpi", append(second, "-n", "2", k.OpenMPI)),
	}
}

func (k *kit) mpiJob(name string, env []string, command string, args []string) Job {
	// A put over TCP comes only while the process it is for calls MPI.
	every, exchanges, bytes := "16", 10000, 1<<28
	if k.shared() {
		every, exchanges, bytes = "64", 100000, 1<<31
	}
	var works []string
	for _, s := range small {
		for _, w := range []string{"send", "put", "get"} {
			works = append(works, fmt.Sprintf("%s:%d:%d", w, s, exchanges))
		}
	}
	for _, s := range large {
		for _, w := range []string{"sendbw", "putbw"} {
			works = append(works, fmt.Sprintf("%s:%d:%d", w, s, times(bytes)(s)))
		}
	}
	return Job{Name: name, run: func(ctx context.Context) ([]sample.Sample, error) {
		cmd := k.at.Command(ctx, place.Near, command, slices.Concat(args, []string{every}, works)...)
		cmd.Env = append(os.Environ(), env...)
		out, err := output(cmd)
		if err != nil {
			return nil, err
		}
		return k.parseWorks(name, out)
	}}
}

// parseWorks reads what c/mpi.c and our programs of RPC print.
func (k *kit) parseWorks(name string, out []byte) ([]sample.Sample, error) {
	lines, err := parseLines(out)
	if err != nil {
		return nil, err
	}
	var all []sample.Sample
	for _, l := range lines {
		how, isBandwidth := strings.CutSuffix(l.What, "bw")
		switch {
		case isBandwidth:
			all = append(all, bandwidth(k.key(name, how, sample.Bandwidth, l.Size), l.MBps))
		case l.What == "get":
			all = append(all, latency(k.key(name, how, sample.Fetch, l.Size), l))
		default:
			all = append(all, latency(k.key(name, how, sample.Latency, l.Size), l))
		}
	}
	return all, nil
}
