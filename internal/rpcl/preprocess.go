package rpcl

import (
	"path/filepath"
	"regexp"
	"strings"
)

const (
	maxInclude = 32      // files within files
	maxExpand  = 200     // macros within macros
	maxTokens  = 1 << 20 // in all; macros could make any number of a short file
)

type macro struct {
	body   []token
	args   bool     // it takes arguments
	params []string // their names
	bad    string   // why it cannot be used
}

// condition is an #if that has not ended.
type condition struct {
	at              Position
	on, taken, last bool // lines count; some did; there was an #else
	outer           bool // lines count around it
}

// Open returns the text of a file that a file includes. Path is relative to the working directory.
type Open func(path string) ([]byte, error)

// The lines of C that matter: an include of a header, a macro without arguments.
var (
	passedInclude = regexp.MustCompile(`^\s*#\s*include\s*[<"]([^>"]+)[>"]`)
	passedDefine  = regexp.MustCompile(`^\s*#\s*define\s+(\w+)(?:\s+(.*))?$`)
)

// preprocessor turns files into the tokens that count, as the C preprocessor does for rpcgen.
type preprocessor struct {
	open    Open
	dirs    []string // where included files are looked for
	sources []*source
	conds   []condition
	macros  map[string]macro
	bodies  [][]token // of macros, what is left of each; the last one is read first
	count   int       // see charge
	// What lines that begin with % tell the C compiler.
	passed  map[string][]token // #define NAME ...
	headers []header           // #include "NAME.h"
}

// header is a C header that the generated C would include, as seen from a file.
type header struct {
	name string
	from string // path of the file
}

func newPreprocessor(open Open, dirs []string, defines map[string]string) *preprocessor {
	p := &preprocessor{open: open, dirs: dirs, macros: map[string]macro{}, passed: map[string][]token{}}
	for name, value := range defines {
		p.macros[name] = macro{body: lineOf("-D"+name, value)}
	}
	return p
}

// lineOf scans the tokens of a line.
func lineOf(name, line string) (out []token) {
	s := newSource(name, "", line)
	for t := s.scan(); t.kind != endOfFile; t = s.scan() {
		if t.kind != endOfLine {
			out = append(out, t)
		}
	}
	return out
}

func (p *preprocessor) source() *source { return p.sources[len(p.sources)-1] }

func (p *preprocessor) on() bool {
	return len(p.conds) == 0 || p.conds[len(p.conds)-1].on
}

// push begins a file, whose tokens come next.
func (p *preprocessor) push(s *source) {
	s.open = len(p.conds)
	p.sources = append(p.sources, s)
}

// next returns the next token that counts; after the last one endOfFile, again and again.
func (p *preprocessor) next() token {
	for {
		if n := len(p.bodies); n > 0 {
			if len(p.bodies[n-1]) == 0 {
				p.bodies = p.bodies[:n-1]
				continue
			}
			t := p.bodies[n-1][0]
			p.bodies[n-1] = p.bodies[n-1][1:]
			if p.expand(t) {
				continue
			}
			return t
		}
		s := p.source()
		for s.new && s.blank() { // a comment may have gone on to another line
		}
		if s.new && s.peek() == '%' {
			s.next()
			if line := s.rest(); p.on() {
				p.pass(line)
			}
			continue
		}
		fresh := s.new
		t := s.scan()
		switch {
		case t.kind == endOfFile:
			if n := len(p.conds); n > s.open {
				fail(p.conds[n-1].at, "this condition has no #endif")
			}
			if len(p.sources) == 1 {
				return t
			}
			p.sources = p.sources[:len(p.sources)-1]
		case t.kind == endOfLine:
		case fresh && t.is("#"):
			p.directive(s)
		case !p.on() || p.expand(t):
		case t.kind == unknown:
			fail(t.at, "%v has no meaning here", t)
		default:
			return t
		}
	}
}

// charge counts words that were read or made, and refuses the file when there are too many.
func (p *preprocessor) charge(n int, at token) {
	if p.count += n; p.count > maxTokens {
		fail(at.at, "the macros make more than %d words of the file", maxTokens)
	}
}

// expand has the body of the macro that the token names, if any, read next.
func (p *preprocessor) expand(t token) bool {
	p.charge(1, t)
	m, ok := p.macros[t.text]
	if t.kind != word || !ok || t.from.has(t.text) {
		return false
	}
	var args [][]token
	if m.args {
		var called bool
		if args, called = p.arguments(t, &m); !called {
			return false
		}
	}
	from := &expansion{name: t.text, outer: t.from}
	if t.from != nil {
		from.depth = t.from.depth + 1
	}
	if from.depth > maxExpand {
		fail(t.at, "macros stand for each other, more than %d in a row", maxExpand)
	}
	body := make([]token, 0, len(m.body))
	for _, b := range p.with(&m, args, t) {
		if b.from == nil {
			b.from = from
		}
		b.at = t.at // the reader is to find where the macro is used
		body = append(body, b)
	}
	p.bodies = append(p.bodies, body)
	return true
}

// pass reads a line that rpcgen would pass on to the C compiler. Constants and headers in it are
// looked at, since declarations may need them.
func (p *preprocessor) pass(line string) {
	if m := passedInclude.FindStringSubmatch(line); m != nil {
		p.headers = append(p.headers, header{m[1], p.source().path})
	}
	m := passedDefine.FindStringSubmatch(line)
	if m == nil {
		return
	}
	var body []token
	// A body that the C compiler would not understand either is no constant.
	var err error
	defer catch(&err)
	at := p.source().here()
	s := newSource(at.File, "", m[2])
	for t := s.scan(); t.kind != endOfFile; t = s.scan() {
		t.at = at
		body = append(body, t)
	}
	p.passed[m[1]] = body
}

// line returns the tokens up to the end of the line.
func (p *preprocessor) line(s *source) (out []token) {
	for {
		t := s.scan()
		if t.kind == endOfFile || t.kind == endOfLine {
			return out
		}
		out = append(out, t)
	}
}

func (p *preprocessor) directive(s *source) {
	at := s.here()
	name := s.scan()
	switch name.kind {
	case endOfLine, endOfFile:
		return
	case number:
		if p.on() {
			p.marker(s, name)
		} else {
			p.line(s)
		}
		return
	}
	switch name.text {
	case "if", "ifdef", "ifndef":
		c := condition{at: at, outer: p.on()}
		c.on = c.outer && p.holds(name, p.line(s))
		c.taken = c.on
		p.conds = append(p.conds, c)
		return
	case "elif", "else", "endif":
		p.otherwise(s, name)
		return
	}
	if !p.on() {
		p.line(s)
		return
	}
	switch name.text {
	case "define":
		p.define(s, name)
	case "undef":
		if l := p.line(s); len(l) > 0 {
			delete(p.macros, l[0].text)
		}
	case "include":
		p.include(s, at)
	case "line":
		if l := s.scan(); l.kind == number {
			p.marker(s, l)
		}
	case "error":
		fail(at, "#error %s", strings.TrimSpace(s.rest()))
	case "pragma", "ident", "sccs", "warning":
		s.rest()
	default:
		fail(at, "no directive is called %v", name)
	}
}

func (p *preprocessor) otherwise(s *source, name token) {
	if len(p.conds) <= s.open {
		fail(name.at, "#%s without an #if in this file", name.text)
	}
	c := &p.conds[len(p.conds)-1]
	l := p.line(s)
	if name.text == "endif" {
		p.conds = p.conds[:len(p.conds)-1]
		return
	}
	if c.last {
		fail(name.at, "#%s after the #else of %v", name.text, c.at)
	}
	c.last = name.text == "else"
	c.on = c.outer && !c.taken && (c.last || p.holds(name, l))
	c.taken = c.taken || c.on
}

func (p *preprocessor) define(s *source, directive token) {
	name := s.scan()
	if name.kind != word {
		fail(directive.at, "#define of %v: a name is missing", name)
	}
	m := macro{args: s.peek() == '('}
	m.body = p.line(s)
	if m.args {
		m.parameters(name)
	}
	p.macros[name.text] = m
}

// marker sets what the next line is called: # 12 "file.x".
func (p *preprocessor) marker(s *source, n token) {
	l := p.line(s) // s is in the next line now
	line, ok := parseNumber(n.text)
	if !ok || !line.IsInt64() || line.Int64() < 0 || line.Int64() > 1<<30 {
		fail(n.at, "%v is not the number of a line", n)
	}
	s.line = int(line.Int64())
	if len(l) > 0 && l[0].kind == text {
		s.name = l[0].text
	}
}

func (p *preprocessor) include(s *source, at Position) {
	name := strings.TrimSpace(s.rest())
	end := -1
	if len(name) > 1 && (name[0] == '"' || name[0] == '<') {
		end = strings.IndexAny(name[1:], `">`)
	}
	if end < 1 {
		fail(at, `#include wants "FILE" or <FILE>`)
	}
	if len(p.sources) >= maxInclude {
		fail(at, "files include each other more than %d deep", maxInclude)
	}
	path, src, err := p.find(name[1:end+1], s.path)
	if err != nil {
		fail(at, "#include of %s: %v", name[1:end+1], err)
	}
	p.push(newSource(path, path, string(src)))
}

// find opens a file beside that which includes it, or in one of the directories.
func (p *preprocessor) find(name, from string) (path string, src []byte, err error) {
	dirs := append([]string{filepath.Dir(from)}, p.dirs...)
	if filepath.IsAbs(name) {
		dirs = []string{""}
	}
	for _, dir := range dirs {
		path = filepath.Join(dir, name)
		b, e := p.open(path)
		if e == nil {
			return path, b, nil
		}
		if err == nil {
			err = e
		}
	}
	return "", nil, err
}

// holds reports whether a condition is true.
func (p *preprocessor) holds(directive token, l []token) bool {
	if directive.text == "ifdef" || directive.text == "ifndef" {
		if len(l) == 0 || l[0].kind != word {
			fail(directive.at, "#%s wants a name", directive.text)
		}
		_, ok := p.macros[l[0].text]
		return ok == (directive.text == "ifdef")
	}
	// A preprocessor of its own expands what is left after "defined" has gone.
	sub := &preprocessor{macros: p.macros, bodies: [][]token{p.defined(l)}, count: p.count}
	sub.push(newSource(directive.at.File, "", ""))
	e := newExpressions(sub)
	e.chars = true
	x := e.expression(0)
	if t := e.peek(); t.kind != endOfFile {
		fail(t.at, "%v where the condition should end", t)
	}
	p.count = sub.count
	v := evaluate(x, func(*Expr) *Expr { return zero })
	return v.Sign() != 0
}

func (p *preprocessor) defined(l []token) (out []token) {
	for i := 0; i < len(l); i++ {
		if !l[i].isWord("defined") {
			if l[i].kind == unknown {
				fail(l[i].at, "%v has no meaning here", l[i])
			}
			out = append(out, l[i])
			continue
		}
		rest := l[i+1:]
		var name token
		switch {
		case len(rest) > 0 && rest[0].kind == word:
			name, i = rest[0], i+1
		case len(rest) > 2 && rest[0].is("(") && rest[1].kind == word && rest[2].is(")"):
			name, i = rest[1], i+3
		default:
			fail(l[i].at, "defined wants a name")
		}
		v := "0"
		if _, ok := p.macros[name.text]; ok {
			v = "1"
		}
		out = append(out, token{kind: number, text: v, at: name.at})
	}
	return out
}
