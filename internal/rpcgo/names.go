package rpcgo

import (
	"math/big"
	"regexp"
	"strings"
	"unicode"
)

// exported returns the Go name of a type, a member or a procedure: its words, each with a capital.
// A word without small letters gets them: NFS_V3 is NfsV3, and GETATTR3args stays.
func exported(name string) string {
	var b strings.Builder
	for w := range strings.SplitSeq(name, "_") {
		if w == "" {
			continue
		}
		if w == strings.ToUpper(w) {
			w = strings.ToLower(w)
		}
		b.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	if s := b.String(); s != "" && unicode.IsLetter(rune(s[0])) {
		return s
	}
	return "X" + b.String()
}

// constant returns the Go name of a constant: as it is if it is all capitals, for that is how those
// who know the protocol look for it.
func constant(name string) string {
	if c := strings.TrimLeft(name, "_"); c == strings.ToUpper(c) && c != "" &&
		unicode.IsLetter(rune(c[0])) {
		return c
	}
	return exported(name)
}

// local returns the Go name of an argument.
func local(name string) string {
	s := exported(name)
	return strings.ToLower(s[:1]) + s[1:]
}

var procedure = regexp.MustCompile(`^[A-Z0-9]*PROC[0-9]*_([A-Za-z].*)$`)

// method returns the Go name of a procedure, without the prefix that C has for want of packages:
// NFSPROC3_GETATTR is Getattr.
func method(name string) string {
	if m := procedure.FindStringSubmatch(name); m != nil {
		return exported(m[1])
	}
	return exported(name)
}

// scope has the names that are taken.
type scope map[string]bool

// free reports whether none of the names is taken.
func (s scope) free(names ...string) bool {
	for _, n := range names {
		if s[n] {
			return false
		}
	}
	return true
}

// claim takes a name, or the next free one that begins with it.
func (s scope) claim(name string) string {
	for s[name] {
		name += "_"
	}
	s[name] = true
	return name
}

func scopeOf(names ...string) scope {
	s := scope{}
	for _, n := range names {
		s[n] = true
	}
	return s
}

// notForArguments are names that mean something else in a method.
var notForArguments = []string{
	"break", "case", "chan", "const", "continue", "default", "defer", "else", "fallthrough", "for", "func", "go",
	"goto", "if", "import", "interface", "map", "package", "range", "return", "select", "struct", "switch", "type", "var",
	"bool", "byte", "error", "false", "true", "nil", "new", "string", "int8", "int16", "int32", "int64", "uint8", "uint16",
	"uint32", "uint64", "float32", "float64", "ctx", "err", "c", "xdr", "vrpc", "context", "call", "res",
}

func bigOf(n uint32) *big.Int { return new(big.Int).SetUint64(uint64(n)) }
