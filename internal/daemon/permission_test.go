//go:build linux

package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// Another user gets in where it is named, on one node and between nodes, and a
// session's name does not make it one of that session.
func TestPermittedUsers(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	dir, err := os.MkdirTemp("", "vmmc-user") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.a.Close() // in its place one that other users can join
	socket := filepath.Join(dir, "a.sock")
	startNode(t, daemon.Config{Name: "a", Socket: socket, Hosts: c.hosts, Identity: c.ids["a"]})
	near, err := vmmc.Open(t.Context(), vmmc.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	him := fmt.Sprint(otherUser)
	for _, q := range []*vmmc.Process{near, open(t, c.b)} {
		for _, p := range []struct {
			opts []vmmc.ExportOption
			want string
		}{
			{nil, "import: true"},
			{[]vmmc.ExportOption{vmmc.Permit(vmmc.Permission{})}, "import: true"},
			{[]vmmc.ExportOption{vmmc.Permit(vmmc.Permission{Users: []string{"root"}})}, "import: true"},
			{[]vmmc.ExportOption{vmmc.Permit(vmmc.Permission{Sessions: []string{"", "*"}})}, "import: true"},
			{
				[]vmmc.ExportOption{
					vmmc.Permit(vmmc.Permission{Users: []string{him}, Sessions: []string{"x"}}),
				}, "import: true",
			},
			{
				[]vmmc.ExportOption{vmmc.Permit(vmmc.Permission{Users: []string{"root", him}})},
				"import: false <nil>",
			},
			{
				[]vmmc.ExportOption{vmmc.Permit(vmmc.Permission{}, vmmc.Permission{Users: []string{"*"}})},
				"import: false <nil>",
			},
			{
				[]vmmc.ExportOption{
					vmmc.Permit(vmmc.Permission{Users: []string{him}, Nodes: []vmmc.NodeID{near.Node()}}),
				}, "import: false <nil>",
			},
		} {
			e, err := q.Export(1, make([]byte, 4), p.opts...)
			if err != nil {
				t.Fatal(err)
			}
			out, err := testutil.Command(t, "import", socket, q.Node().String(),
				fmt.Sprint(q.PID())).Output()
			if err != nil || !strings.HasPrefix(string(out), p.want) {
				t.Errorf("another user gets %q (%v), want %q", out, err, p.want)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A process cannot make its daemon keep more than so much.
func TestExportsWithoutEnd(t *testing.T) {
	n := alone(t)
	r := newRaw(t, n, 1, nil)
	names := strings.Repeat("x", nodeproto.MaxNames)
	export := func(id uint32, ps ...nodeproto.Permission) error {
		_, err := r.Call(t.Context(), nodeproto.Export, nodeproto.ExportRequest{
			ID: id, Size: 4, Rights: 3, Permit: ps,
		}, nil, nil)
		return err
	}
	check(t, "permissions too long", export(0, nodeproto.Permission{Users: []string{names + "x"}}),
		code.BadArg, "at most")
	var err error
	var id uint32
	for id = 0; err == nil && id < 1<<12; id++ {
		err = export(id, nodeproto.Permission{Users: []string{names}})
	}
	check(t, "too many permissions", err, code.NoMem, "whole sessions")
	last := id - 1
	if err := export(last); err != nil {
		t.Errorf("an export without permissions: %v", err)
	}
	if err := export(0, nodeproto.Permission{Users: []string{names}}); err != nil {
		t.Errorf("one that is there already, said again: %v", err)
	}
	if _, err := r.Call(t.Context(), nodeproto.Unexport, nodeproto.ExportRequest{ID: 0}, nil,
		nil); err != nil {
		t.Fatal(err)
	}
	if err := export(last, nodeproto.Permission{Users: []string{names}}); err != nil {
		t.Errorf("after the end of another: %v", err)
	}
}
