package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/samples/nfsnull/mount3"
	"github.com/vmmc-go/vmmc/samples/nfsnull/nfs"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/vrpc/portmap"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// server is one of NFS and mount, as far as they are asked here.
type server struct {
	mount3.UnimplementedMountV3Server
	exports []export
}

func (server) Null(context.Context) error { return nil }

func (s *server) Export(context.Context) (l mount3.Exports, _ error) {
	for i := len(s.exports) - 1; i >= 0; i-- {
		x := s.exports[i]
		l = &mount3.Exportnode{ExDir: mount3.Dirpath(x.Directory), ExNext: l}
		for k := len(x.Groups) - 1; k >= 0; k-- {
			l.ExGroups = &mount3.Groupnode{GrName: mount3.Name(x.Groups[k]), GrNext: l.ExGroups}
		}
	}
	return l, nil
}

// serve has a server serve what register registers, with an rpcbind, and returns its port.
func serve(t *testing.T, register ...func(vrpc.Registrar) error) string {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := vrpc.NewServer()
	b, err := portmap.NewServer(tcp.Addr(), udp.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range append(register, func(r vrpc.Registrar) error { return b.Register(r) }) {
		if err := r(s); err != nil {
			t.Fatal(err)
		}
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(tcp) })
	serving.Go(func() { _ = s.ServePacket(udp) })
	t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
	c, err := portmap.Dial(t.Context(), "tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Register(t.Context(), "test", s.Services()[:len(register)], tcp.Addr(), udp.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(tcp.Addr().(*net.TCPAddr).Port)
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := newCommand()
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// What a server exports is what is printed, by each network.
func TestExports(t *testing.T) {
	s := &server{exports: []export{{"/home", []string{"red", "green.example.com"}}, {"/pub\x1b[2J", []string{}}}}
	for i := range 200 {
		s.exports = append(s.exports, export{fmt.Sprintf("/more/%d", i), []string{}})
	}
	port := serve(t,
		func(r vrpc.Registrar) error { return nfs.RegisterNfsV3(r, s) },
		func(r vrpc.Registrar) error { return nfs.RegisterNfsV4(r, s) },
		func(r vrpc.Registrar) error { return mount3.RegisterMountV3(r, s) })
	for _, network := range []string{"tcp", "udp"} {
		out, err := run(t, "--rpcbind-port", port, "--network", network, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"NFS version 3 at 127.0.0.1:" + port + " is ready", "NFS version 4 at ", "\n/home  to red green.example.com\n",
			"\n\"/pub\\x1b[2J\"  to everybody\n", "\n/more/199  to everybody\n",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		out, err = run(t, "--rpcbind-port", port, "--network", network, "--json", "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		var f found
		if err := json.Unmarshal([]byte(out), &f); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s.exports, f.Exports); d != "" || len(f.Versions) != 2 || f.Versions[0].Version != 3 {
			t.Errorf("%v\n%s", f.Versions, d)
		}
	}
}

// What NFS answers is printed also if mount is there and never answers.
func TestSilentMount(t *testing.T) {
	s := new(server)
	port := serve(t, func(r vrpc.Registrar) error { return nfs.RegisterNfsV3(r, s) })
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, err := portmap.Dial(t.Context(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mount := &vrpc.Service{Program: mount3.MOUNT_PROGRAM, Version: mount3.MOUNT_V3}
	if err := c.Register(t.Context(), "test", []*vrpc.Service{mount}, silent.Addr()); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "--rpcbind-port", port, "--timeout", "500ms", "127.0.0.1")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(out, "NFS version 3 at 127.0.0.1:"+port+" is ready") {
		t.Errorf("%v\n%s", err, out)
	}
}

// What is not there is said.
func TestNothingThere(t *testing.T) {
	if _, err := run(t, "--rpcbind-port", serve(t), "127.0.0.1"); !errors.Is(err, portmap.ErrNotRegistered) {
		t.Error(err)
	}
	s := new(server)
	port := serve(t, func(r vrpc.Registrar) error { return nfs.RegisterNfsV4(r, s) })
	if out, err := run(t, "--rpcbind-port", port, "127.0.0.1"); !errors.Is(err, portmap.ErrNotRegistered) || !strings.Contains(out, "mount:") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run(t, "--rpcbind-port", port, "--json", "127.0.0.1"); err == nil || !strings.Contains(out, `"version": 4`) || !strings.Contains(out, `"exports": null`) {
		t.Errorf("%v\n%s", err, out)
	}
	for _, wrong := range [][]string{{}, {"a", "b"}, {"--network", "ip", "a"}, {"--nonsense", "a"}} {
		if _, err := run(t, wrong...); !errors.As(err, new(usageError)) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
