package nodeproto

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
)

// MaxName bounds the name of an export, in bytes. JSON may make six of each.
const MaxName = 128

// NameRef says which published name is meant: one of this node, of another node, or of the cluster.
type NameRef struct {
	Name    string
	Node    string `json:",omitempty"` // in canonical form; empty: the node that is asked
	Cluster bool   `json:",omitempty"`

	// The scope of the owner; nil: the caller's own.
	User, Session *string `json:",omitempty"`
}

// ParseName reads a name as programs write it: "queue" on this node, "n2/queue" on node n2,
// "/queue" in the whole cluster.
func ParseName(s string) (r NameRef, err error) {
	node, name, found := strings.Cut(s, "/")
	switch {
	case !found:
		name = s
	case node == "":
		r.Cluster = true
	default:
		if err := hosts.CheckName(node); err != nil {
			return NameRef{}, code.New(code.BadName, "before the \"/\" of a name stands a node, and this is none: %v",
				err)
		}
		r.Node = hosts.Canonical(node)
	}
	r.Name = name
	return r, CheckName(name)
}

// String is the name as ParseName reads it.
func (r NameRef) String() string {
	if r.Cluster || r.Node != "" {
		return r.Node + "/" + r.Name
	}
	return r.Name
}

// CheckName says what is wrong with a name that has no node. No byte is changed to compare names.
// Characters that are not seen are refused, because two names would look alike.
func CheckName(name string) error {
	switch {
	case name == "":
		return code.New(code.BadName, "the name is empty")
	case len(name) > MaxName:
		return code.New(code.BadName, "the name %.16q... has %d bytes, at most %d are possible", name,
			len(name), MaxName)
	}
	for i, c := range name {
		_, size := utf8.DecodeRuneInString(name[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			return code.New(code.BadName, "the name %q is not UTF-8 at byte %d", name, i)
		case c == '/':
			return code.New(code.BadName,
				"the name %q has a \"/\" at byte %d: one \"/\" at most, after a node or before a name of the cluster",
				name, i)
		case unicode.In(c, unicode.C, unicode.Zl, unicode.Zp):
			return code.New(code.BadName, "the name %q has the character %U at byte %d, which is not seen", name,
				c, i)
		case unicode.IsSpace(c) && (i == 0 || i+size == len(name)):
			return code.New(code.BadName, "the name %q begins or ends with a space", name)
		}
	}
	return nil
}
