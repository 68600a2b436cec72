package doctor

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/trust"
)

// accounts lists the users and groups of the system: those in its files, and those of the
// services that nsswitch.conf names, as getent asks them.
type accounts struct {
	passwd, group string
	getent        string // the program; empty, or not there: only the files are read
	nsswitch      string
}

var system = accounts{"/etc/passwd", "/etc/group", "getent", "/etc/nsswitch.conf"}

// runsAs is the user of the daemon: the system's user if root runs doctor, else the caller.
func runsAs() int {
	if uid, ok := trust.SystemUser(); ok && os.Getuid() == 0 {
		return int(uid)
	}
	return os.Getuid()
}

// alone says why a group is not the user's alone, or nil. Root does not count as another user: it
// reads everything.
func (a accounts) alone(ctx context.Context, gid, uid int) error {
	group, listed := strconv.Itoa(gid), []string(nil)
	for _, f := range slices.Concat(lines(a.group, 4), a.ask(ctx, 4, "group", strconv.Itoa(gid))) {
		if f[2] == strconv.Itoa(gid) {
			group = f[0]
			listed = append(listed, strings.FieldsFunc(f[3], func(r rune) bool { return r == ',' })...)
		}
	}
	var own, others []string // names of the user, and of others in the group
	in := false
	users := slices.Concat(lines(a.passwd, 7), a.ask(ctx, 7, "passwd"), a.ask(ctx, 7, "passwd", strconv.Itoa(uid)))
	for _, f := range users {
		primary := f[3] == strconv.Itoa(gid)
		switch f[2] {
		case strconv.Itoa(uid):
			own = append(own, f[0])
			in = in || primary || slices.Contains(listed, f[0])
		case "0":
		default:
			if primary && !slices.Contains(others, f[0]) {
				others = append(others, f[0])
			}
		}
	}
	for _, name := range listed {
		if name != "root" && !slices.Contains(own, name) && !slices.Contains(others, name) {
			others = append(others, name)
		}
	}
	switch {
	case len(others) > 0:
		return fmt.Errorf("its group %s also has %s, who can read it and be this node",
			group, strings.Join(others, ", "))
	case !in:
		return fmt.Errorf("user %s, whom the daemon runs as, is not in its group %s",
			strings.Join(append(own, strconv.Itoa(uid))[:1], ""), group)
	}
	return nil
}

// lines gives the fields of a file's lines that have so many.
func lines(file string, fields int) (out [][]string) {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	return split(f, fields)
}

func split(r io.Reader, fields int) (out [][]string) {
	for in := bufio.NewScanner(r); in.Scan(); {
		if l := strings.Split(in.Text(), ":"); len(l) == fields {
			out = append(out, l)
		}
	}
	return out
}

// ask gives the lines of getent: of one entry, or of all that the services list.
func (a accounts) ask(ctx context.Context, fields int, args ...string) [][]string {
	if a.getent == "" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, timeout.Ping)
	defer stop()
	// what came counts, whatever the status
	out, _ := exec.CommandContext(ctx, a.getent, args...).Output()
	return split(bytes.NewReader(out), fields)
}

// unseen names the services that may have users whom no list has: those with a group as their
// own are then not found.
func (a accounts) unseen() string {
	f, err := os.Open(a.nsswitch)
	if err != nil {
		return ""
	}
	defer f.Close()
	var services []string
	for in := bufio.NewScanner(f); in.Scan(); {
		line, _, _ := strings.Cut(in.Text(), "#")
		of, names, _ := strings.Cut(line, ":")
		if of = strings.TrimSpace(of); of != "passwd" && of != "group" {
			continue
		}
		for _, s := range strings.Fields(names) {
			// Of a condition as [NOTFOUND=return] each word is none; systemd's users have groups of
			// their own.
			if !strings.ContainsAny(s, "[]=") && s != "files" && s != "compat" && s != "systemd" &&
				!slices.Contains(services, s) {
				services = append(services, s)
			}
		}
	}
	return strings.Join(services, ", ")
}
