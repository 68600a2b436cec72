// Package mount mounts directories of other machines with mount(8), and knows
// what is mounted where.
package mount

import (
	"strings"
	"unicode"

	"github.com/vmmc-go/vmmc/internal/code"
)

// Share is a directory of another machine.
type Share struct {
	Type   string // as mount(8) has it: "cifs" or "nfs"
	Source string // as mount(8) has it: //server/path or server:/path
}

// IsRemote reports whether a text means a share of another machine, and not a
// directory of this one.
func IsRemote(text string) bool {
	return strings.HasPrefix(text, "//") || strings.HasPrefix(text, `\\`) ||
		!strings.HasPrefix(text, "/") && strings.Contains(text, ":")
}

// Parse reads a share of another machine: //server/path or \\server\path, which
// is CIFS, or server:/path, which is NFS. What mount(8), its programs for these
// types or the kernel would read as more than a name is refused.
func Parse(text string) (Share, error) {
	bad := func(why string) (Share, error) {
		return Share{}, code.New(code.BadArg, "share %q: %s; a share of another machine is //server/path, \\\\server\\path or server:/path", text, why)
	}
	for _, r := range text {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return bad("it has a control character, or is not UTF-8")
		}
	}
	switch {
	case strings.Contains(text, ","):
		return bad("it has a comma, which would begin an option or another server")
	case len(text) > maxSource:
		return bad("it is too long")
	}
	s := Share{Type: "cifs"}
	var server, path string
	if unc := strings.ReplaceAll(text, `\`, "/"); strings.HasPrefix(unc, "//") {
		var found bool
		server, path, found = strings.Cut(strings.TrimLeft(unc, "/"), "/")
		path = strings.Trim(path, "/")
		if !found || path == "" {
			return bad("it names a server and no path")
		}
		s.Source = "//" + server + "/" + path
	} else {
		s.Type = "nfs"
		var found bool
		if server, path, found = strings.Cut(text, ":/"); !found {
			return bad("it has no path that begins with /")
		}
		s.Source = text
	}
	if !isServer(server) {
		return bad("its server is no name or address")
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return bad(`its path has ".."`)
		}
	}
	return s, nil
}

const maxSource = 1024

// isServer accepts host names and addresses, those of IPv6 in brackets.
func isServer(s string) bool {
	if in, ok := strings.CutPrefix(s, "["); ok {
		in, ok = strings.CutSuffix(in, "]")
		return ok && in != "" && strings.Trim(in, "0123456789abcdefABCDEF:.%") == ""
	}
	for _, r := range s {
		if r != '.' && r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return s != "" && !strings.HasPrefix(s, "-")
}
