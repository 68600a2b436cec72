package samples

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.RegisterRole("node", node)
	testutil.Main(m)
}

// node serves until its input ends. Its arguments are the node's name, socket,
// certificates and hosts file.
func node() int {
	args := testutil.Args()
	if err := serve(args[0], args[1], args[2], args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serve(name, socket, certs, file string) error {
	id, err := cert.Load(certs)
	if err != nil {
		return err
	}
	hs, err := hosts.ReadFile(file)
	if err != nil {
		return err
	}
	d, err := daemon.Start(daemon.Config{
		Name: name, Socket: socket, Hosts: hs, Identity: id, SpawnRoot: true,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	defer d.Close()
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// up starts nodes and gives the first one's socket.
func up(t *testing.T, nodes int) string {
	t.Helper()
	l, err := cluster.Prepare(t.TempDir(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	l.Unlisted()
	for _, n := range l.Nodes {
		c := testutil.Command(t, "node", n.Name, n.Socket, n.Certs, filepath.Join(l.Dir, cluster.HostsFile))
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
		if _, err := out.Read(make([]byte, 3)); err != nil {
			t.Fatalf("node %s does not start: %v", n.Name, err)
		}
	}
	return l.Nodes[0].Socket
}
