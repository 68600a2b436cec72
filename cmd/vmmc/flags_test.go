package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// calledWith are the arguments that commands need beside the flag in question. DIR is a directory
// with an authority in it.
var calledWith = map[string][]string{
	"vmmc cert init": {"--dir", "DIR/new", "--cluster", "lab"}, "vmmc cert node": {"--dir", "DIR/ca", "--out", "DIR/out", "n9"},
	"vmmc cert user": {"--dir", "DIR/ca", "--out", "DIR/out", "ann"},
	"vmmc kill":      {"s"}, "vmmc run": {"real", "true"}, "vmmc mpirun": {"true"}, "vmmc logs": {"s"}, "vmmc node down": {"n1"}, "vmmc node up": {"n1"},
	"vmmc session add": {"--share", "/tmp", "--out", "/out", "s"}, "vmmc session del": {"s"},
	"cfgvmmc": {"n1", "kill", "s"}, "vrpcgen": {"DIR/a.x"}, "vmmc top": {"--once"},
}

// bad is a value that a flag cannot have. Status is 2 where the value alone shows that, and 1 where
// it depends on what is there.
type bad struct {
	value  string
	status int
	with   []string // what the flag needs
}

// badValues are of flags, by command if that matters; those without any say why.
var badValues = map[string][]bad{
	"--mpi":     {{"/nonexistent/p", serve.Failed, nil}, {"DIR/hosts", serve.Failed, nil}},
	"--socket":  {{"/nonexistent/s", serve.Failed, nil}},
	"--node":    {{"n77", serve.Failed, nil}, {"a b", serve.Failed, nil}},
	"--certs":   {{"/nonexistent/c", serve.Failed, []string{"--hosts", "DIR/hosts"}}},
	"--hosts":   {{"/nonexistent/h", serve.Failed, []string{"--certs", "DIR/ann"}}, {"DIR/a.x", serve.Failed, []string{"--certs", "DIR/ann"}}},
	"--path":    {{"sideways", serve.Misused, nil}},
	"--pin":     {{"down", serve.Misused, nil}},
	"--size":    {{"many", serve.Misused, nil}, {"-1", serve.Misused, nil}, {"0", serve.Misused, nil}},
	"--sizes":   {{"4", serve.Misused, nil}, {"8:4", serve.Misused, nil}, {"a:b", serve.Misused, nil}},
	"--rounds":  {{"0", serve.Misused, nil}, {"1001", serve.Misused, nil}},
	"--count":   {{"-1", serve.Misused, nil}, {"99999999", serve.Misused, nil}},
	"--plot":    {{"/proc/figures", serve.Failed, nil}, {"/dev/null", serve.Failed, nil}},
	"--peers":   {{"/nonexistent/p", serve.Failed, []string{"--plot", "DIR/plot"}}, {"/nonexistent/p", serve.Misused, nil}},
	"--peer":    {{"nocommand", serve.Misused, nil}},
	"--dir":     {{"/proc/none", serve.Failed, nil}},
	"--out":     {{"/proc/none", serve.Failed, nil}, {"DIR/ca", serve.Failed, nil}},
	"--state":   {{"/dev/null", serve.Failed, nil}},
	"--drives":  {{"/dev/null", serve.Failed, nil}},
	"--name":    {{"a b", serve.Misused, nil}},
	"--listen":  {{"nowhere", serve.Misused, []string{"--certs", "DIR/ca"}}, {"127.0.0.1:0", serve.Misused, nil}},
	"--metrics": {{"nowhere", serve.Misused, nil}, {"192.0.2.1:80", serve.Misused, nil}},
	"--root":    {{"/nonexistent/r", serve.Failed, nil}},

	"--near-addr":  {{"host.example", serve.Misused, nil}},
	"--far-addr":   {{"host.example", serve.Misused, nil}},
	"--far-netns":  {{"nowhere", serve.Misused, nil}},
	"--log-format": {{"xml", serve.Misused, nil}},
	"--log-level":  {{"loud", serve.Misused, nil}},

	"vmmcd --certs":            {{"/nonexistent/c", serve.Failed, []string{"--listen", "127.0.0.1:0"}}},
	"vmmcd --hosts":            {{"/nonexistent/h", serve.Failed, nil}},
	"vmmcd --socket":           {{"/proc/none/s", serve.Failed, nil}, {"/" + strings.Repeat("long/", 30), serve.Failed, nil}},
	"vmmc bench au --ways":     {{"sideways", serve.Misused, nil}},
	"vmmc bench au --sizes":    {{"0", serve.Misused, nil}, {"4097", serve.Misused, nil}, {"x", serve.Misused, nil}},
	"vmmc bench au --rounds":   {{"9", serve.Misused, nil}},
	"vmmc bench au --idle":     {{"-4", serve.Misused, nil}, {"3", serve.Misused, nil}},
	"vmmc demo --size":         {{"many", serve.Misused, nil}, {"-1", serve.Misused, nil}},
	"vmmc demo --file":         {{"/nonexistent/f", serve.Failed, nil}, {"/dev/null", serve.Failed, nil}},
	"vmmc cert init --cluster": {{"a b", serve.Misused, nil}, {"", serve.Misused, nil}, {strings.Repeat("x", 64), serve.Misused, nil}},
	"vmmc cluster up --nodes":  {{"0", serve.Misused, nil}, {"65", serve.Misused, nil}},
	"vmmc kill --signal":       {{"LOUD", serve.Misused, nil}, {"0", serve.Misused, nil}, {"65", serve.Misused, nil}},
	"vmmc logs --tail":         {{"-1", serve.Misused, nil}, {"x", serve.Misused, nil}},
	"vmmc logs --lines":        {{"-1", serve.Misused, nil}, {"x", serve.Misused, nil}},
	"vmmc logs --system":       {{"n77", serve.Misused, nil}},
	"vmmc node ls --remote":    {{"nowhere", serve.Misused, []string{"--certs", "DIR/ann", "--node", "n1"}}},
	"vmmc node ls --certs":     {{"/nonexistent/c", serve.Failed, []string{"--remote", "127.0.0.1:1", "--node", "n1"}}},
	"vmmc node ls --node":      {{"a b", serve.Misused, []string{"--remote", "127.0.0.1:1", "--certs", "DIR/ann"}}},
	"vmmc rpc info --program":  {{"nosuchprogram", serve.Misused, nil}},
	"vmmc rpc info --network":  {{"ipx", serve.Misused, nil}},
	"vmmc rpc info --at":       {{"nowhere", serve.Misused, []string{"--program", "100003"}}},
	"vmmc rpc info --timeout":  {{"0s", serve.Misused, nil}},
	"vmmc mpirun --socket":     {{"/proc/none/" + strings.Repeat("long/", 30), 125, nil}},
	"vmmc mpirun --session":    {{"nosuchsession", 125, nil}},
	"vmmc mpirun --host-list":  {{"n1:0", serve.Misused, nil}, {"n1:x", serve.Misused, nil}},
	"vmmc mpirun --host":       {{"n1:0", serve.Misused, nil}, {",", serve.Misused, nil}},
	"vmmc mpirun --hostfile":   {{"/nonexistent/h", serve.Misused, nil}, {"DIR/a.x", serve.Misused, nil}},
	"vmmc mpirun --ppn":        {{"0", serve.Misused, nil}},
	"vmmc mpirun --np":         {{"0", serve.Misused, nil}, {"100001", serve.Misused, nil}},
	"vmmc mpirun --map-by":     {{"colour", serve.Misused, nil}},
	"vmmc mpirun --bind-to":    {{"x", serve.Misused, nil}, {"3-1", serve.Misused, nil}},
	"vmmc mpirun --stdin":      {{"all", serve.Misused, nil}, {"7", serve.Misused, nil}},
	"vmmc mpirun --genv":       {{"=x", serve.Misused, nil}},
	"vmmc mpirun --genvlist":   {{"NO_SUCH_VARIABLE", serve.Misused, nil}},
	"vmmc mpirun --env":        {{"=x", serve.Misused, nil}},
	"vmmc mpirun --export":     {{"NO_SUCH_VARIABLE", serve.Misused, nil}},
	"vmmc mpirun --wdir":       {{"/nonexistent/w", 125, nil}},
	"vmmc run --count":         {{"0", serve.Misused, nil}, {"100001", serve.Misused, nil}},
	"vmmc run --dir":           {{"relative", 125, nil}, {"/../up", 125, nil}},
	"vmmc run --env":           {{"NO_SUCH_VARIABLE", serve.Misused, nil}, {"VMMCSESSION=x", 125, nil}, {"=x", serve.Misused, nil}, {"VMMCSESSION=x", 125, nil}},
	"vmmc run --node":          {{"n77", 125, nil}},
	"vmmc run --socket":        {{"/nonexistent/s", 125, nil}},
	"vmmc run --certs":         {{"/nonexistent/c", 125, []string{"--hosts", "DIR/hosts"}}},
	"vmmc run --hosts":         {{"/nonexistent/h", 125, []string{"--certs", "DIR/ann"}}},
	"vmmc top --sort":          {{"colour", serve.Misused, nil}},
	"vmmc top --interval":      {{"1ms", serve.Misused, nil}, {"2h", serve.Misused, nil}},

	"vmmc session add --drive":       {{"KK", serve.Failed, nil}, {"7:", serve.Failed, nil}},
	"vmmc session add --out":         {{"relative", serve.Failed, nil}},
	"vmmc session add --share":       {{"/nonexistent/d", serve.Failed, nil}},
	"vmmc session add --user":        {{"nosuchuser77", serve.Failed, nil}},
	"vmmc session add --credentials": {{"/nonexistent/c", serve.Failed, []string{"--share", "//fs/x"}}},
	"vmmc bench restart --processes": {{"0", serve.Misused, nil}, {"1001", serve.Misused, nil}},
	"vmmc bench restart --restarts":  {{"0", serve.Misused, nil}},
	"vmmc bench restart --away":      {{"-1s", serve.Misused, nil}},
	"vmmc bench names --names":       {{"16001", serve.Misused, nil}},
	"vmmc bench names --waiters":     {{"1001", serve.Misused, nil}},
	"vmmc bench names --count":       {{"0", serve.Misused, nil}},
	"vmmc bench names --kills":       {{"0", serve.Misused, nil}},

	"cfgvmmc --completion": {{"csh", serve.Misused, nil}},
	"vrpcgen --package":    {{"a b", serve.Misused, nil}, {"_", serve.Misused, nil}},
	"vrpcgen --output":     {{"/nonexistent/o", serve.Failed, nil}},
	"vrpcgen --define":     {{"1x", serve.Misused, nil}, {"=1", serve.Misused, nil}},
	"vrpcgen --undefine":   {{"1x", serve.Misused, nil}},
	"vrpcgen --extern":     {{"1 x", serve.Misused, nil}},
}

// anyValue are flags that take every text, and why.
var anyValue = map[string]string{
	"vmmc node down --reason": "a text for people",
	"vmmcd --admin":           "a user may be another node's, or one of a certificate",
	"vrpcgen --include":       "as for rpcgen, a directory that is not there has nothing",
	"vmmc doctor --name":      "a name is what doctor looks at",
	"vmmc doctor --root":      "as above", "vmmc doctor --hosts": "as above", "vmmc doctor --certs": "as above",
	"vmmc doctor --socket": "as above", "vmmc doctor --state": "as above",
	"vmmc rpc info --rpcbind-port": "each port may have rpcbind", "vmmc rpc info --version": "each number may be a version",
	"vmmc cluster env --dir": "what is not there is no cluster", "vmmc cluster start --dir": "as above",
	"vmmc cluster ls --dir": "as above", "vmmc cluster down --dir": "as above",
}

// What is wrong with a flag's value is said with the flag's name and the value.
func TestBadValuesOfFlags(t *testing.T) {
	testutil.Require(t, runtime.GOOS == "linux", "nodes need Linux")
	testutil.Require(t, testutil.Slow == 1, "some 400 programs end at once: the race detector has nothing to see here")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv(leashEnv, leash(t))
	dir := t.TempDir()
	run := func(args ...string) (status int, says string) {
		ctx, stop := context.WithTimeout(t.Context(), patience)
		defer stop()
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.WaitDelay = time.Second
		var exit *exec.ExitError
		if err := cmd.Run(); errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return status, out.String()
	}
	well := func(args ...string) {
		t.Helper()
		if status, says := run(args...); status != 0 {
			t.Fatalf("%q: status %d: %s", args, status, says)
		}
	}
	cluster := filepath.Join(dir, "c")
	well("vmmc", "cluster", "up", "--nodes", "1", "--dir", cluster)
	defer well("vmmc", "cluster", "down", "--dir", cluster)
	t.Setenv("VMMC_SOCKET", filepath.Join(cluster, "n1.sock"))
	well("vmmc", "cert", "init", "--dir", filepath.Join(dir, "ca"), "--cluster", "lab")
	well("vmmc", "cert", "user", "--dir", filepath.Join(dir, "ca"), "--out", filepath.Join(dir, "ann"), "ann")
	well("vmmc", "session", "add", "--share", t.TempDir(), "--out", "/out", "real")
	for name, text := range map[string]string{"hosts": "n1 127.0.0.1:1\n", "a.x": "struct a { int b; };\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	known := map[string]bool{}
	for k := range maps.Keys(badValues) {
		known[k] = false
	}
	for k := range maps.Keys(anyValue) {
		known[k] = false
	}
	try := func(c *cobra.Command, f *pflag.Flag, b bad) {
		args := append(strings.Fields(c.CommandPath()), "--"+f.Name+"="+b.value)
		args = append(append(args, b.with...), calledWith[c.CommandPath()]...)
		seen := map[string]bool{}
		kept := args[:0:0]
		for i := 0; i < len(args); i++ {
			if name, _, _ := strings.Cut(args[i], "="); strings.HasPrefix(name, "--") {
				if seen[name] { // a flag is not given again
					i++
					continue
				}
				seen[name] = true
			}
			kept = append(kept, strings.ReplaceAll(args[i], "DIR", dir))
		}
		status, says := run(kept...)
		if status != b.status {
			t.Errorf("%q: status %d, want %d: %s", kept, status, b.status, says)
		}
		value := strings.ReplaceAll(b.value, "DIR", dir)
		if value == "/proc/none/s" { // the directory is at fault
			value = filepath.Dir(value)
		}
		if !strings.Contains(says, "-"+f.Name) || !strings.Contains(says, value) {
			t.Errorf("%q: the message lacks the flag or its value: %s", kept, says)
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			return
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			own, all := c.CommandPath()+" --"+f.Name, "--"+f.Name
			if f.Hidden {
				return
			}
			if _, any := anyValue[own]; any {
				known[own] = true
				return
			}
			key := all
			if badValues[own] != nil {
				key = own
			}
			values := badValues[key]
			known[key] = true
			switch f.Value.Type() {
			case "bool", "int", "int64", "uint32", "uint16", "duration", "intSlice", "level":
				values = append(slices.Clone(values), bad{"perhaps", serve.Misused, nil})
			}
			if len(values) == 0 {
				t.Errorf("%s: no bad value is known", own)
			}
			for _, b := range values {
				try(c, f, b)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	for _, root := range documented() {
		walk(root)
	}
	for k, used := range known {
		if !used {
			t.Errorf("%s: there is no such flag", k)
		}
	}
}
