package rpcl

import "strings"

type tokenKind uint8

const (
	endOfFile tokenKind = iota
	endOfLine
	word
	number
	text    // a string in quotes, which are left out
	char    // one byte in single quotes, which are left out
	mark    // punctuation
	unknown // what C could have there and this language has not
)

type token struct {
	kind tokenKind
	text string
	at   Position
	// spaced says that there is blank space before it: "> >" is no shift.
	spaced bool
	// from are the macros that it comes from, which are not expanded in it again.
	from *expansion
}

type expansion struct {
	name  string
	outer *expansion
	depth int
}

func (x *expansion) has(name string) bool {
	for ; x != nil; x = x.outer {
		if x.name == name {
			return true
		}
	}
	return false
}

func (t token) is(mk string) bool { return t.kind == mark && t.text == mk }

func (t token) isWord(w string) bool { return t.kind == word && t.text == w }

// String is for errors.
func (t token) String() string {
	switch t.kind {
	case endOfFile:
		return "the end of the file"
	case endOfLine:
		return "the end of the line"
	case text:
		return `"` + t.text + `"`
	case char:
		return strings.ToValidUTF8("'"+t.text+"'", "?")
	}
	return strings.ToValidUTF8(`"`+t.text+`"`, "?")
}

func isLetter(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
