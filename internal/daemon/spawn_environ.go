package daemon

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/supervise"
)

// usualPath is where programs of other users than the daemon's look for programs.
const usualPath = "/usr/local/bin:/usr/bin:/bin"

// environ is all that a child finds in its environment. The caller's is not
// copied: it speaks of another machine, and may have secrets.
func (cs *children) environ(c *child) ([]string, error) {
	socket := cs.n.cfg.Socket
	if !strings.HasPrefix(socket, "@") { // the child is in another directory
		var err error
		if socket, err = filepath.Abs(socket); err != nil {
			return nil, err
		}
	}
	path, shell := usualPath, ""
	if c.runAs.As == nil { // the daemon's own user has chosen these
		path, shell = cmp.Or(env.Get("PATH"), path), env.Get("SHELL")
	}
	e := environment{}
	e.set("PATH", path)
	e.set("SHELL", shell)
	e.set("HOME", c.runAs.Home)
	e.set("USER", c.runAs.Name)
	e.set("LOGNAME", c.runAs.Name)
	e.set("LANG", env.Get("LANG"))
	if c.inSession == nil { // else its supervisor knows where that is
		e.set("PWD", string(c.Directory))
	}
	e.set(nodeproto.Env, socket)
	e.set(nodeproto.SessionEnv, c.session)
	e.set(nodeproto.HostsEnv, string(c.Hosts))
	e.set(nodeproto.TokenEnv, c.token)
	return e, nil
}

// checkVariables refuses what cannot be in a program's environment, and what its node alone sets.
func checkVariables(vars [][]byte) error {
	for _, v := range vars {
		name, _, is := strings.Cut(string(v), "=")
		switch {
		case !is || name == "" || strings.ContainsRune(string(v), 0):
			return code.New(code.BadArg, "the variable %q is not of the form NAME=VALUE, or has a zero byte",
				v)
		case slices.Contains([]string{
			nodeproto.Env, nodeproto.SessionEnv, nodeproto.HostsEnv, nodeproto.TokenEnv, supervise.MarkerEnv,
			"PWD",
		}, name):
			return code.New(code.BadArg,
				"the variable %s is set by the node, and cannot be another: choose another name", name)
		}
	}
	return nil
}

// sameVariable reports whether two variables have one name.
func sameVariable(a, b string) bool {
	a, _, _ = strings.Cut(a, "=")
	b, _, _ = strings.Cut(b, "=")
	return a == b
}

type environment []string

// set sets a variable, unless it would be empty: not all programs take that for
// unset.
func (e *environment) set(name, value string) {
	if value != "" {
		*e = append(*e, name+"="+value)
	}
}
