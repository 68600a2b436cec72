package doctor

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/internal/trust"
)

// accounts are the files that say who is in which group. Accounts of a directory
// service are not in them, and are not seen.
type accounts struct{ passwd, group string }

var system = accounts{"/etc/passwd", "/etc/group"}

// runsAs is the user of the daemon: the system's if root looks, else who looks.
func runsAs() int {
	if uid, ok := trust.SystemUser(); ok && os.Getuid() == 0 {
		return int(uid)
	}
	return os.Getuid()
}

// alone says why a group is not the user's alone, or nil. Root is nobody else: it reads
// everything.
func (a accounts) alone(gid, uid int) error {
	group, listed := strconv.Itoa(gid), []string(nil)
	for f := range lines(a.group, 4) {
		if f[2] == strconv.Itoa(gid) {
			group = f[0]
			listed = append(listed, strings.FieldsFunc(f[3], func(r rune) bool { return r == ',' })...)
		}
	}
	var own, others []string // names of the user, and of others in the group
	in := false
	for f := range lines(a.passwd, 7) {
		primary := f[3] == strconv.Itoa(gid)
		switch f[2] {
		case strconv.Itoa(uid):
			own = append(own, f[0])
			in = in || primary || slices.Contains(listed, f[0])
		case "0":
		default:
			if primary {
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
		return fmt.Errorf("its group %s also has %s, who can read it and be this node", group, strings.Join(others, ", "))
	case !in:
		return fmt.Errorf("user %s, whom the daemon runs as, is not in its group %s", strings.Join(append(own, strconv.Itoa(uid))[:1], ""), group)
	}
	return nil
}

// lines gives the fields of a file's lines that have so many.
func lines(file string, fields int) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		f, err := os.Open(file)
		if err != nil {
			return
		}
		defer f.Close()
		for in := bufio.NewScanner(f); in.Scan(); {
			if l := strings.Split(in.Text(), ":"); len(l) == fields && !yield(l) {
				return
			}
		}
	}
}
