package rpcl

import (
	"slices"
	"strings"
)

// parameters takes the names of the parameters off the body. A macro with any number of them is
// taken, but cannot be used.
func (m *macro) parameters(name token) {
	m.body = m.body[1:] // the parenthesis
	for {
		switch l := m.body; {
		case len(l) > 0 && l[0].is(")") && len(m.params) == 0:
			m.body = l[1:]
			return
		case len(l) > 1 && l[0].kind == word && (l[1].is(",") || l[1].is(")")):
			m.params = append(m.params, l[0].text)
			m.body = l[2:]
			if l[1].is(")") {
				return
			}
		case len(l) > 0 && strings.HasPrefix(l[0].text, ".") || len(l) > 1 && l[0].kind == word && strings.HasPrefix(l[1].text, "."):
			m.bad = "it takes any number of arguments"
			return
		default:
			fail(name.at, "the parameters of macro %s are not names with commas between them", name.text)
		}
	}
}

// raw returns the next token without a look at macros: of what is left of a macro, or else of the
// file, where a macro's arguments may go over several lines.
func (p *preprocessor) raw() token {
	for n := len(p.bodies); n > 0; n = len(p.bodies) {
		if l := p.bodies[n-1]; len(l) > 0 {
			p.bodies[n-1] = l[1:]
			return l[0]
		}
		p.bodies = p.bodies[:n-1]
	}
	for {
		if t := p.source().scan(); t.kind != endOfLine {
			return t
		}
	}
}

// arguments reads those of a macro whose name was read. It returns false where there are none: then
// the name is a name.
func (p *preprocessor) arguments(name token, m *macro) (args [][]token, called bool) {
	if t := p.raw(); !t.is("(") {
		p.bodies = append(p.bodies, []token{t})
		return nil, false
	}
	if m.bad != "" {
		fail(name.at, "%s is a macro that cannot be used: %s", name.text, m.bad)
	}
	arg := []token{}
	for depth := 0; ; {
		t := p.raw()
		p.charge(1, name)
		switch {
		case t.kind == endOfFile:
			fail(name.at, "the arguments of %s do not end", name.text)
		case depth == 0 && (t.is(",") || t.is(")")):
			args = append(args, arg)
			arg = []token{}
			if !t.is(")") {
				continue
			}
			if len(m.params) == 0 && len(args) == 1 && len(args[0]) == 0 {
				args = nil
			}
			if len(args) != len(m.params) {
				fail(name.at, "%s has %d arguments, and takes %d", name.text, len(args), len(m.params))
			}
			return args, true
		case t.is("("):
			depth++
		case t.is(")"):
			depth--
		}
		arg = append(arg, t)
	}
}

// with returns the body with arguments in the places of the parameters: # makes text of one, and ##
// one token of two. It charges what it makes before that takes memory: a body and an argument make
// as many tokens, or bytes of text, as the product of their lengths, and other macros may come
// before these are read.
func (p *preprocessor) with(m *macro, args [][]token, name token) (out []token) {
	if !m.args {
		return m.body
	}
	for i := 0; i < len(m.body); i++ {
		b := m.body[i]
		if b.is("#") && i+1 < len(m.body) {
			if n := m.param(m.body[i+1]); n >= 0 {
				p.charge(wordsOf(args[n]...), name)
				out = append(out, token{kind: text, text: spelled(args[n]), spaced: b.spaced})
				i++
				continue
			}
		}
		next := []token{b}
		if n := m.param(b); n >= 0 {
			p.charge(len(args[n]), name)
			next = slices.Clone(args[n])
		}
		if m.pastes(i-2) && len(out) > 0 && len(next) > 0 {
			last := out[len(out)-1]
			p.charge(wordsOf(last, next[0]), name)
			pasted := lineOf(name.at.File, last.text+next[0].text)
			if len(pasted) != 1 {
				fail(name.at, "%s makes %s%s of two words, which is none", name.text, last.text, next[0].text)
			}
			out[len(out)-1], next = pasted[0], next[1:]
		}
		if out = append(out, next...); m.pastes(i + 1) {
			i += 2
		}
	}
	return out
}

// wordsOf is how many words are charged for the text of tokens, which a new token is to have.
func wordsOf(l ...token) int {
	n := 1
	for _, t := range l {
		n += 1 + len(t.text)/8
	}
	return n
}

// pastes reports whether the body's token and the one behind it are ##.
func (m *macro) pastes(i int) bool {
	return i > 0 && i+2 < len(m.body) && m.body[i].is("#") && m.body[i+1].is("#") &&
		!m.body[i+1].spaced
}

// param is which parameter a token of the body is, or less than 0.
func (m *macro) param(t token) int {
	if t.kind != word {
		return -1
	}
	return slices.Index(m.params, t.text)
}

// spelled is the text of tokens.
func spelled(l []token) string {
	var b strings.Builder
	for i, t := range l {
		if i > 0 && t.spaced {
			b.WriteByte(' ')
		}
		switch t.kind {
		case text:
			b.WriteString(`\"` + t.text + `\"`)
		case char:
			b.WriteString("'" + t.text + "'")
		default:
			b.WriteString(t.text)
		}
	}
	return b.String()
}
