//go:build linux

package daemon_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/wire"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// linksOf asks a node for its links as the holder of a certificate.
func linksOf(
	t *testing.T, n *daemon.Node, id *cert.Identity, name string, r *nodev1.LinksRequest,
) ([]*nodev1.Link, error) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: id.ClientTLS(name), ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	c := nodev1connect.NewLinkServiceClient(&http.Client{Transport: tr, Timeout: bound},
		"https://"+n.Addr())
	a, err := c.Links(t.Context(), connect.NewRequest(r))
	if err != nil {
		return nil, err
	}
	return a.Msg.GetLinks(), nil
}

// A link is seen by the users of its processes, and by administrators.
func TestLinksAreTheirUsers(t *testing.T) {
	c, ann := administered(t, "")
	newTraffic(t, c.a, c.b).goesOn(t)
	newTraffic(t, c.b, c.b).goesOn(t)
	if l, err := linksOf(t, c.a, ann, "a", &nodev1.LinksRequest{}); err != nil || len(l) == 0 {
		t.Errorf("an administrator sees no links (%v)", err)
	}
	// A node names no user.
	l, err := linksOf(t, c.b, c.ids["a"], "b", &nodev1.LinksRequest{})
	check(t, "another node looks at links", ownCode(err), code.NoRights)
	if len(l) > 0 {
		t.Errorf("another node sees links: %v", l)
	}
	for _, r := range []*nodev1.LinksRequest{
		{}, {AfterPid: 1 << 31}, {AfterPid: 1, AfterPlace: 1<<32 - 1},
	} {
		if l, err := linksOf(t, c.b, ann, "b", r); err != nil || len(l) > 0 {
			t.Errorf("%v shows links of others: %v (%v)", r, l, err)
		}
	}
}

// A key of a link is in no log and no listing, however it might be written.
func TestKeysAreNotTold(t *testing.T) {
	ids, ann := userIdentity(t)
	log, logs := &syncBuffer{}, t.TempDir()
	c := &cluster{ids: ids}
	for _, n := range []string{"a", "b"} {
		addr := freePort(t)
		c.hosts = append(c.hosts, hosts.Host{Name: n, Control: addr, Data: addr})
	}
	start := func(name string) *daemon.Node {
		return startNode(t, daemon.Config{
			Name: name, Socket: anonymous(), Hosts: c.hosts, Identity: ids[name], Logs: filepath.Join(logs,
				name), Admins: []string{"ann"},
			Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
	}
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(logs, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c.a, c.b = start("a"), start("b")
	l := victim(t, c)
	h := helloFor(l.Link, 1)
	if _, err := greet(t, l.Address, h, prover(make([]byte, wire.KeySize), h)); err == nil {
		t.Error("a wrong key was taken")
	}
	h = helloFor(l.Link, 2)
	if _, err := greet(t, l.Address, h, prover(l.Key, h)); err != nil {
		t.Fatal(err)
	}
	accepted := filepath.Join(logs, "b", "driver.log")
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(accepted); strings.Contains(string(b), "a link was accepted") {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%s does not say that the link was accepted (%v): %s", accepted, err, b)
		}
	}
	said := log.text()
	for _, f := range []string{"a/driver.log", "b/driver.log", "a/server.log", "b/server.log"} {
		b, err := os.ReadFile(filepath.Join(logs, f))
		if err != nil {
			t.Fatal(err)
		}
		said += string(b)
	}
	links, err := linksOf(t, c.b, ann, "b", &nodev1.LinksRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		said += l.String()
	}
	// A part of it would be bad enough.
	part := l.Key[:9]
	for _, s := range []string{
		string(part), hex.EncodeToString(part), strings.ToUpper(hex.EncodeToString(part)),
		base64.StdEncoding.EncodeToString(part),
		base64.URLEncoding.EncodeToString(part), strings.Trim(fmt.Sprintf("%d", part), "[]"),
		strings.Trim(fmt.Sprintf("%q", part), `"`),
	} {
		if strings.Contains(said, s) {
			t.Errorf("the key is told as %q", s)
		}
	}
}

// modesRole is a user whose own daemon makes a socket in a directory.
func modesRole() int {
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(otherUser),
		syscall.Setuid(otherUser)); err != nil {
		fmt.Println(err)
		return 1
	}
	syscall.Umask(0)
	return modes(filepath.Join(testutil.Args()[0], "his", "run"))
}

// modes prints those of a new daemon's socket, and of the directory that it has made.
func modes(dir string) int {
	n, err := daemon.Start(daemon.Config{Name: "n", Socket: filepath.Join(dir, "s")})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer n.Close()
	for _, f := range []string{dir, filepath.Join(dir, "s"), filepath.Join(dir, "s.lock")} {
		i, err := os.Stat(f)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Printf("%o ", i.Mode().Perm())
	}
	return 0
}

// A user's own daemon is closed to other users, whatever the umask.
func TestModesOfAUsersSocket(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	dir, err := os.MkdirTemp("", "vmmc-modes") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	his := filepath.Join(dir, "his")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(his, 0o755), os.Chown(his, otherUser,
		otherUser)); err != nil {
		t.Fatal(err)
	}
	out, err := testutil.Command(t, "modes", dir).CombinedOutput()
	if want := "700 600 600 "; err != nil || !bytes.HasPrefix(out, []byte(want)) {
		t.Errorf("directory, socket and lock have modes %s (%v), want %s", out, err, want)
	}
}
