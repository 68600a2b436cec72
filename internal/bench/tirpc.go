package bench

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed tirpc/null.x tirpc/null.c
var tirpcSource embed.FS

// tirpcHeaders is where the headers of libtirpc are.
const tirpcHeaders = "/usr/include/tirpc"

// buildTIRPC makes C's RPC, rpcgen's stubs with libtirpc over TCP, a peer; dir gets its program.
func buildTIRPC(ctx context.Context, dir string) (Peer, error) {
	p := Peer{"libtirpc over TCP", []string{filepath.Join(dir, "null")}}
	var errs []error
	for _, tool := range []string{"rpcgen", "cc"} {
		if _, err := exec.LookPath(tool); err != nil {
			errs = append(errs, err)
		}
	}
	if _, err := os.Stat(filepath.Join(tirpcHeaders, "rpc", "rpc.h")); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return p, fmt.Errorf("install a C compiler, rpcgen (Debian: rpcsvc-proto) and libtirpc-dev: %w",
			errors.Join(errs...))
	}
	for _, name := range []string{"null.x", "null.c"} {
		b, err := fs.ReadFile(tirpcSource, "tirpc/"+name)
		if err != nil {
			return p, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return p, err
		}
	}
	for _, args := range [][]string{
		{"rpcgen", "-C", "-h", "-o", "null.h", "null.x"},
		{"rpcgen", "-C", "-l", "-o", "null_clnt.c", "null.x"},
		{"rpcgen", "-C", "-m", "-o", "null_svc.c", "null.x"},
		{"cc", "-O2", "-I" + tirpcHeaders, "-o", "null", "null.c", "null_clnt.c", "null_svc.c", "-ltirpc"},
	} {
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			return p, fmt.Errorf("%q: %w: %s", args, err, out)
		}
	}
	return p, nil
}
