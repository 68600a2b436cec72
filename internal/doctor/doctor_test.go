//go:build linux

package doctor

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/root"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

func TestMain(m *testing.M) {
	testutil.RegisterRole("limited", limited)
	testutil.Main(m)
}

// well is a node of two with nothing wrong, on ports that outgoing connections do
// not get.
func well(t *testing.T) Node {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := cert.Init(filepath.Join(dir, "ca"), "test"); err != nil {
		t.Fatal(err)
	}
	var hs []hosts.Host
	for _, name := range []string{"n1", "n2"} {
		if err := cert.IssueNode(filepath.Join(dir, "ca"), name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		addr := quietPort(t, len(hs))
		hs = append(hs, hosts.Host{Name: name, Control: addr, Data: addr})
	}
	n := Node{
		Name: "n1",
		Places: root.Places{
			Hosts: filepath.Join(dir, "vmmc-hosts.txt"), Certs: filepath.Join(dir, "n1"),
			Socket: filepath.Join(dir, "n1.sock"), State: filepath.Join(dir, "state", "n1"),
		},
	}
	if err := os.WriteFile(n.Hosts, []byte(hosts.Format(hs)), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// quietPort is a free one below those of outgoing connections.
func quietPort(t *testing.T, i int) string {
	t.Helper()
	lo, _, ok := passing()
	if !ok || lo < 12000 {
		lo = 32768
	}
	for p := lo - 1 - os.Getpid()%1000 - i*1000; p > 1024; p-- {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// other starts node n2.
func other(t *testing.T, n Node) {
	t.Helper()
	hs, err := hosts.ReadFile(n.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	id, err := cert.Load(filepath.Join(filepath.Dir(n.Certs), "n2"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Start(daemon.Config{Name: "n2", Socket: "@vmmc-doctor-" + filepath.Base(t.Name()) + strconv.Itoa(os.Getpid()), Hosts: hs, Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
}

// expect finds the status of a check and what it says, in what is wrong or in how
// to mend it.
func expect(t *testing.T, found []Finding, s Status, says string) {
	t.Helper()
	for _, f := range found {
		if f.Status == s && strings.Contains(f.Found+"\n"+f.Mend, says) {
			if (f.Mend == "") != (s == OK) {
				t.Errorf("%+v: want a way to mend it, unless it is ok", f)
			}
			return
		}
	}
	t.Errorf("no finding %q that says %q in %+v", s, says, found)
}

func TestNothingWrong(t *testing.T) {
	n := well(t)
	other(t, n)
	found := Examine(t.Context(), n)
	if len(found) < len(checks) {
		t.Errorf("%d findings of %d checks", len(found), len(checks))
	}
	for _, f := range found {
		t.Logf("%+v", f)
		if f.Status == Failed {
			t.Errorf("%+v of a machine on which tests run", f)
		}
	}
	expect(t, found, OK, "memfd and its seals work")
	expect(t, found, OK, `is for node "n1" of cluster "test"`)
	expect(t, found, OK, "its clock is the same")
	expect(t, found, OK, "can be used")
}

func TestANodeAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	n := Node{Name: "x", Places: root.Places{Socket: filepath.Join(dir, "s"), State: dir}}
	for _, f := range Examine(t.Context(), n) {
		if f.Status == Failed || f.Check == "certificates" || f.Check == "own addresses" {
			t.Errorf("%+v", f)
		}
	}
}

func TestCertificates(t *testing.T) {
	for name, test := range map[string]struct {
		spoil  func(t *testing.T, n *Node)
		status Status
		says   string
	}{
		"expired":           {at(5 * 365 * 24 * time.Hour), Failed, "was good until"},
		"soon":              {at(time.Until(notAfter(t)) - 156*time.Hour), Warning, "for 6 days"},
		"not yet":           {at(-48 * time.Hour), Failed, "set the clock"},
		"another's name":    {func(_ *testing.T, n *Node) { n.Name = "n2" }, Failed, `this is node "n2"`},
		"none":              {func(_ *testing.T, n *Node) { n.Certs = "" }, Failed, "vmmc cert node"},
		"not there":         {func(_ *testing.T, n *Node) { n.Certs += "x" }, Failed, "no such file"},
		"garbage":           {write("cert.pem", "hello"), Failed, "holds no certificate"},
		"another authority": {foreign, Failed, "same authority"},
		"not in the list":   {func(t *testing.T, n *Node) { put(t, n.Hosts, "n2 127.0.0.1:1\n") }, Failed, `"n1" is not in`},
	} {
		t.Run(name, func(t *testing.T) {
			n := well(t)
			test.spoil(t, &n)
			expect(t, certificates(t.Context(), &n), test.status, test.says)
		})
	}
}

// notAfter is the end of a certificate that is issued now.
func notAfter(t *testing.T) time.Time {
	n := well(t)
	c, err := readCertificate(filepath.Join(n.Certs, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return c.NotAfter
}

// at has the machine's clock go wrong.
func at(d time.Duration) func(*testing.T, *Node) {
	return func(_ *testing.T, n *Node) { n.Now = func() time.Time { return time.Now().Add(d) } }
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func write(file, text string) func(*testing.T, *Node) {
	return func(t *testing.T, n *Node) { put(t, filepath.Join(n.Certs, file), text) }
}

func foreign(t *testing.T, n *Node) {
	b, err := os.ReadFile(filepath.Join(well(t).Certs, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(n.Certs, "ca.pem"), string(b))
}

func mode(file string, m os.FileMode) func(*testing.T, *Node) {
	return func(t *testing.T, n *Node) {
		if err := os.Chmod(filepath.Join(n.Certs, file), m); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKeys(t *testing.T) {
	for name, test := range map[string]struct {
		spoil  func(t *testing.T, n *Node)
		status Status
		says   string
	}{
		"well":                {func(*testing.T, *Node) {}, OK, "owner's alone"},
		"readable":            {mode("key.pem", 0o640), Failed, "chmod 600"},
		"replaceable":         {mode(".", 0o777), Failed, "chmod go-w"},
		"not there":           {func(t *testing.T, n *Node) { _ = os.Remove(filepath.Join(n.Certs, "key.pem")) }, Failed, "is not there"},
		"the authority's too": {write("ca-key.pem", "x"), Failed, "any node and user"},
	} {
		t.Run(name, func(t *testing.T) {
			n := well(t)
			test.spoil(t, &n)
			expect(t, keys(t.Context(), &n), test.status, test.says)
		})
	}
}

func TestPlaces(t *testing.T) {
	n := well(t)
	dir := filepath.Join(filepath.Dir(n.Socket), "open")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	n.Socket, n.State = filepath.Join(dir, "sub", "s"), filepath.Join(dir, "state")
	expect(t, socket(t.Context(), &n), Failed, "chmod go-w "+dir)
	expect(t, state(t.Context(), &n), Failed, "chmod go-w "+dir)
	n.Socket, n.State = n.Hosts+"/s", ""
	expect(t, socket(t.Context(), &n), Failed, "")
	expect(t, state(t.Context(), &n), Warning, "no sessions")
	n.Socket = "/" + strings.Repeat("x", 200)
	expect(t, socket(t.Context(), &n), Failed, "the system allows 107")
	if os.Getuid() == 0 { // what belongs to another user
		mine := filepath.Join(filepath.Dir(dir), "theirs")
		if err := os.Mkdir(mine, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(mine, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		n.State = mine
		expect(t, state(t.Context(), &n), Failed, "belongs to user 12345")
	}
}

func TestAddresses(t *testing.T) {
	n := well(t)
	hs, err := hosts.ReadFile(n.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", hs[0].Control)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, addresses(t.Context(), &n), Failed, "another program listens at "+hs[0].Control)
	_ = l.Close()
	expect(t, addresses(t.Context(), &n), OK, hs[0].Control)
	put(t, n.Hosts, "n1 192.0.2.1:7411\n")
	expect(t, addresses(t.Context(), &n), Failed, "is not an address of this machine")
	if lo, _, ok := passing(); ok {
		put(t, n.Hosts, fmt.Sprintf("n1 127.0.0.1:%d\n", lo+1))
		expect(t, addresses(t.Context(), &n), Warning, "ip_local_reserved_ports")
	}
	put(t, n.Hosts, "n3 127.0.0.1:1\n")
	expect(t, addresses(t.Context(), &n), Failed, `"n1" is not in`)
	put(t, n.Hosts, "nonsense\n")
	expect(t, addresses(t.Context(), &n), Failed, "mend the hosts file")
}

func TestOtherNodes(t *testing.T) {
	n := well(t)
	expect(t, others(t.Context(), &n), Warning, "nobody listens")
	other(t, n)
	expect(t, others(t.Context(), &n), OK, "its clock is the same")
	own, err := os.ReadFile(n.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	put(t, n.Hosts, "-\n"+string(own))
	expect(t, others(t.Context(), &n), Failed, "logical pids of other nodes")
	put(t, n.Hosts, string(own)+"n3 127.0.0.1:1\n")
	expect(t, others(t.Context(), &n), Warning, `lacks node "n3"`)
	put(t, n.Hosts, string(own))
	at(time.Minute+time.Second/2)(t, &n) // what the way there takes is reckoned as well
	expect(t, others(t.Context(), &n), Warning, "1m0")
	at(-time.Hour)(t, &n)
	expect(t, others(t.Context(), &n), Failed, "certificates may not be good yet")
	strangers := well(t)
	strangers.Hosts = n.Hosts
	expect(t, others(t.Context(), &strangers), Failed, "issue certificates by one authority")
}

// limited prints what checks find under limits that cannot be raised again.
func limited() int {
	for _, err := range []error{unix.LimitFiles(100), unix.LimitLocked(4096)} {
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	for _, c := range []check{files, lockedMemory} {
		for _, f := range c(context.Background(), nil) {
			fmt.Printf("%s %s: %s: %s\n", f.Status, f.Check, f.Found, f.Mend)
		}
	}
	return 0
}

func TestLowLimits(t *testing.T) {
	out, err := testutil.Command(t, "limited").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		"failed descriptors: 100 descriptors for a process, at least 256 are needed: raise it: LimitNOFILE=",
		"warning locked memory: 4096 bytes can be locked",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}
