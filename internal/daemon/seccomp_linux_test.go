//go:build linux

package daemon_test

import (
	"bufio"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/testutil"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// A node in a container whose filter of system calls knows neither pidfd_open nor close_range makes
// sessions, runs programs in them, which have the standard descriptors only, and deletes them with
// all that they have left.
func TestSessionsWithoutPidfds(t *testing.T) {
	const pidfdSendSignal, pidfdOpen, closeRange = 424, 434, 436 // on all architectures
	for _, calls := range [][]uintptr{{pidfdOpen}, {pidfdOpen, pidfdSendSignal, closeRange}} {
		dir := openDir(t)
		cmd := testutil.Command(t, "node with capabilities", dir)
		testutil.Without(t, cmd, calls...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if up, err := bufio.NewReader(out).ReadString('\n'); up != "up\n" {
			t.Fatal(up, err)
		}
		where := ask.Flags{Socket: filepath.Join(dir, "one.sock")}
		a, err := where.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := a.First.Client
		if _, err := s.AddSession(t.Context(), connect.NewRequest(&nodev1.AddSessionRequest{
			Name: "s", Drive: "-", Share: dir, OutputDirectory: "/out",
		})); err != nil {
			t.Fatal(err)
		}
		said, _ := output(t, s, "s", "setsid sleep 5093 >/dev/null 2>&1 & echo $!; ls /proc/$$/fd")
		words := strings.Fields(said)
		if len(words) < 4 || strings.Join(words[1:4], " ") != "0 1 2" || len(words) > 4 &&
			words[4] != "10" {
			// Dash's own.
			t.Errorf("without %v: a program printed %q, want a number and 0 1 2", calls, said)
		}
		if _, err := s.DeleteSession(t.Context(), connect.NewRequest(&nodev1.DeleteSessionRequest{
			Name: "s",
		})); err != nil {
			t.Errorf("without %v: delete the session: %v", calls, err)
		}
		if left, err := strconv.Atoi(words[0]); err != nil || syscall.Kill(left, 0) == nil {
			t.Errorf("without %v: process %d goes on (%v)", calls, left, err)
		}
		a.Close()
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
