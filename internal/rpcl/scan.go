package rpcl

import (
	"slices"
	"strings"
)

// source is a file that is being scanned.
type source struct {
	name string // as it is in positions; line markers change it
	path string // where it lies, for what it includes
	src  string
	off  int
	line int
	bol  int  // offset of the line's first byte
	new  bool // nothing but blanks since the line began
	open int  // conditions that were open when the file began
}

func newSource(name, path, src string) *source {
	return &source{name: name, path: path, src: src, line: 1, new: true}
}

func (s *source) here() Position { return Position{s.name, s.line, s.off - s.bol + 1} }

// peek returns the next byte, or 0 at the end. A backslash at the end of a line joins the next to
// it.
func (s *source) peek() byte {
	for strings.HasPrefix(s.src[s.off:], "\\\n") || strings.HasPrefix(s.src[s.off:], "\\\r\n") {
		s.off += strings.IndexByte(s.src[s.off:], '\n') + 1
		s.line, s.bol = s.line+1, s.off
	}
	if s.off == len(s.src) {
		return 0
	}
	return s.src[s.off]
}

func (s *source) ended() bool { s.peek(); return s.off == len(s.src) }

func (s *source) next() byte {
	c := s.peek()
	if s.off == len(s.src) {
		return 0
	}
	if s.off++; c == '\n' {
		s.line, s.bol = s.line+1, s.off
	}
	return c
}

// follows reports whether the two bytes come next.
func (s *source) follows(a, b byte) bool {
	if s.peek() != a {
		return false
	}
	kept := *s
	s.next()
	ok := s.peek() == b
	*s = kept
	return ok
}

// blank leaves blanks and comments behind, and stays in the line.
func (s *source) blank() (any bool) {
	for {
		switch c := s.peek(); {
		case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v':
			s.next()
		case s.follows('/', '*'):
			s.comment()
		case s.follows('/', '/'):
			for !s.ended() && s.peek() != '\n' {
				s.next()
			}
		default:
			return any
		}
		any = true
	}
}

func (s *source) comment() {
	at := s.here()
	s.next()
	s.next()
	for !s.follows('*', '/') {
		if s.ended() {
			fail(at, "the comment does not end")
		}
		s.next()
	}
	s.next()
	s.next()
}

// rest returns what is left of the line, without its end.
func (s *source) rest() string {
	var b strings.Builder
	for !s.ended() && s.peek() != '\n' {
		b.WriteByte(s.next())
	}
	return strings.TrimRight(b.String(), "\r")
}

// pairs are the marks of two bytes. ">>" is none, since two may close what "<" has opened twice.
var pairs = []string{"==", "!=", "<=", ">=", "&&", "||", "<<"}

// scan returns the next token.
func (s *source) scan() token {
	spaced := s.blank()
	t := token{at: s.here(), spaced: spaced}
	if s.ended() {
		return t // endOfFile
	}
	c := s.next()
	switch {
	case c == '\n':
		t.kind = endOfLine
	case isLetter(c):
		t.kind, t.text = word, string(c)+s.while(func(c byte) bool { return isLetter(c) || isDigit(c) })
	case isDigit(c):
		t.kind, t.text = number, string(c)+s.while(func(c byte) bool { return isLetter(c) || isDigit(c) || c == '.' })
	case c == '"':
		s.quoted(&t)
	case c == '\'' && s.isChar():
		t.kind, t.text = char, string([]byte{s.next()})
		s.next()
	case strings.IndexByte("{}()[]<>*=,:;-+/%&|^~!?#", c) >= 0:
		t.kind, t.text = mark, string(c)
		if two := string(c) + string(s.peek()); slices.Contains(pairs, two) {
			s.next()
			t.text = two
		}
	default:
		t.kind, t.text = unknown, string(c)
	}
	s.new = t.kind == endOfLine
	return t
}

func (s *source) while(f func(byte) bool) string {
	var b strings.Builder
	for !s.ended() && f(s.peek()) {
		b.WriteByte(s.next())
	}
	return b.String()
}

// isChar reports whether a byte and a closing quote come next: rpcgen has no escapes there.
func (s *source) isChar() bool {
	kept := *s
	defer func() { *s = kept }()
	c := s.next()
	return c != 0 && c != '\n' && c != '\\' && c != '\'' && s.peek() == '\''
}

// quoted scans the rest of a string. A backslash escapes what follows it, unless the string does
// not end in its line then: for rpcgen it never does. One that does not end even so is unknown:
// text that is left out by a condition may have such.
func (s *source) quoted(t *token) {
	kept := *s
	if s.quotedTo(t, true); t.kind == unknown {
		*s = kept
		s.quotedTo(t, false)
	}
}

func (s *source) quotedTo(t *token, escapes bool) {
	var b strings.Builder
	for {
		switch c := s.peek(); {
		case s.ended() || c == '\n':
			t.kind, t.text = unknown, `"`
			return
		case c == '"':
			s.next()
			t.kind, t.text = text, b.String()
			return
		case c == '\\' && escapes:
			b.WriteByte(s.next())
			if !s.ended() && s.peek() != '\n' {
				b.WriteByte(s.next())
			}
		default:
			b.WriteByte(s.next())
		}
	}
}
