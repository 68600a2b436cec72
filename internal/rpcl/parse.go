package rpcl

import (
	"path/filepath"
	"strings"
)

// parser reads the definitions of a file.
type parser struct {
	*expressions
	file *File
}

func (p *parser) expect(mk string) token {
	t := p.advance()
	if !t.is(mk) {
		fail(t.at, "%v where %q should be", t, mk)
	}
	return t
}

func (p *parser) accept(mk string) bool {
	if !p.peek().is(mk) {
		return false
	}
	p.advance()
	return true
}

func (p *parser) acceptWord(w string) bool {
	if !p.peek().isWord(w) {
		return false
	}
	p.advance()
	return true
}

var keywords = map[string]bool{
	"bool": true, "case": true, "const": true, "default": true, "double": true, "enum": true,
	"float": true, "hyper": true, "int": true, "opaque": true, "string": true, "struct": true, "switch": true,
	"typedef": true, "union": true, "unsigned": true, "void": true, "char": true, "short": true, "long": true,
}

// name reads a name that is no keyword. "program" and "version" are names elsewhere.
func (p *parser) name(of string) token {
	t := p.advance()
	if t.kind != word || keywords[t.text] {
		fail(t.at, "%v where the name of %s should be", t, of)
	}
	return t
}

func (p *parser) definitions() {
	for {
		switch t := p.peek(); {
		case t.kind == endOfFile:
			return
		case t.is(";"):
			p.advance()
			continue
		case t.isWord("const"):
			p.constant()
		case t.isWord("typedef"):
			p.typedef()
		case t.isWord("enum"), t.isWord("struct"), t.isWord("union"):
			p.advance()
			p.define(p.name("the "+t.text), t.text).nameInner()
		case t.isWord("program"):
			p.program()
			p.accept(";")
			continue
		default:
			fail(t.at, "%v where const, typedef, enum, struct, union or program should be", t)
		}
		p.expect(";")
	}
}

func (p *parser) constant() {
	p.advance()
	n := p.name("the constant")
	p.expect("=")
	c := &Const{At: n.at, Name: n.text}
	if t := p.peek(); t.kind == text {
		p.advance()
		c.Text = &t.text
	} else {
		c.Value = p.expression(0)
	}
	p.file.Consts = append(p.file.Consts, c)
}

func (p *parser) typedef() {
	from := len(p.read)
	p.advance()
	v := p.declaration("the type")
	switch {
	case v.Kind == Void:
		fail(v.At, "a typedef of void")
	case v.inner != nil && v.Shape == Plain:
		nameInner(v, v.Name)
		return
	}
	nameInner(v, v.Name+"_item")
	// C's way to have a type without its tag; here it is so anyway.
	if v.Kind == Named && v.Shape == Plain && v.Type == v.Name {
		return
	}
	p.file.Types = append(p.file.Types, &Def{At: v.At, Form: Typedef, Name: v.Name, Of: v, text: p.since(from)})
}

// since is what was read since there were so many tokens.
func (p *parser) since(from int) string { return strings.Join(p.read[from:], " ") }

// define reads the body of a type.
func (p *parser) define(n token, form string) *Def {
	p.deeper(n.at)
	defer func() { p.depth-- }()
	d := &Def{At: n.at, Name: n.text}
	from := len(p.read)
	defer func() { d.text = p.since(from) }()
	// A type within this one comes before it, as C would have it.
	defer func() { p.file.Types = append(p.file.Types, d) }()
	switch form {
	case "enum":
		d.Form = Enum
		p.enum(d)
	case "struct":
		d.Form = Struct
		p.expect("{")
		for !p.accept("}") {
			if v := p.declaration("a member"); v.Kind != Void {
				d.Members = append(d.Members, v)
			}
			p.expect(";")
		}
	case "union":
		d.Form = Union
		p.union(d)
	}
	return d
}

func (p *parser) enum(d *Def) {
	p.expect("{")
	for last := (*Const)(nil); ; {
		n := p.name("a value")
		c := &Const{At: n.at, Name: n.text}
		switch {
		case p.accept("="):
			c.Value = p.expression(0)
		case last == nil:
			c.Value = zero
		default:
			one := &Expr{At: n.at, Num: truth(true)}
			c.Value = &Expr{At: n.at, Op: "+", Args: []*Expr{{At: n.at, Name: last.Name}, one}}
		}
		d.Values, last = append(d.Values, c), c
		comma := p.accept(",")
		if p.accept("}") {
			return
		}
		if !comma {
			p.expect(",")
		}
	}
}

func (p *parser) union(d *Def) {
	if t := p.advance(); !t.isWord("switch") {
		fail(t.at, "%v where switch should be", t)
	}
	p.expect("(")
	d.Switch = p.declaration("the discriminant")
	p.expect(")")
	p.expect("{")
	for !p.accept("}") {
		a := &Arm{At: p.peek().at}
		for p.label(a) {
			p.expect(":")
		}
		if t := p.peek(); len(a.Cases) == 0 && !a.Default {
			fail(t.at, "%v where case or default should be", t)
		}
		a.Var = p.declaration("the arm")
		p.expect(";")
		d.Arms = append(d.Arms, a)
	}
}

// label reads a case or default up to its colon, if there is one.
func (p *parser) label(a *Arm) bool {
	if p.acceptWord("default") {
		a.Default = true
		return true
	}
	if !p.acceptWord("case") {
		return false
	}
	p.chars = true
	a.Cases = append(a.Cases, p.expression(1)) // ?: would take the colon
	p.chars = false
	return true
}

// declaration reads a type, a name and what stands around it.
func (p *parser) declaration(of string) *Var {
	v := new(Var)
	form := p.specifier(v)
	if v.Kind == Void {
		return v
	}
	if v.Kind == Named && v.Type == "" {
		v.inner = p.define(token{at: v.At}, form)
	}
	if p.accept("*") {
		v.Shape = Optional
	}
	n := p.name(of)
	v.At, v.Name = n.at, n.text
	p.bounds(v)
	return v
}

// nameInner gives a type that is defined within a declaration a name, made of those around it, and
// then those within it.
func nameInner(v *Var, name string) {
	d := v.inner
	if d == nil {
		return
	}
	d.Name, v.Type, v.inner = name, name, nil
	d.nameInner()
}

func (d *Def) nameInner() {
	for _, m := range d.Members {
		nameInner(m, d.Name+"_"+m.Name)
	}
	for _, a := range d.Arms {
		nameInner(a.Var, d.Name+"_"+a.Var.Name)
	}
	if d.Switch != nil {
		nameInner(d.Switch, d.Name+"_"+d.Switch.Name)
	}
}

// bounds reads what follows the name, and checks that the whole is a type.
func (p *parser) bounds(v *Var) {
	at := p.peek().at
	switch {
	case v.Shape == Optional:
	case p.accept("["):
		v.Shape, v.Size = Fixed, p.expression(0)
		p.expect("]")
	case p.accept("<"):
		v.Shape = Variable
		if !p.peek().is(">") {
			p.angled++
			v.Size = p.expression(0)
			p.angled--
		}
		p.expect(">")
	}
	switch {
	case v.Kind == String && v.Shape != Variable:
		fail(v.At, "a string is declared as string %s<>, with its greatest length or without", v.Name)
	case v.Kind == Opaque && v.Shape != Variable && v.Shape != Fixed:
		fail(v.At, "opaque data is declared as opaque %s[N] or opaque %s<N>", v.Name, v.Name)
	case v.Kind == Void:
		fail(at, "%s is void", v.Name)
	}
}

func (p *parser) program() {
	from := len(p.read)
	p.advance()
	n := p.name("the program")
	g := &Program{At: n.at, Name: n.text}
	p.expect("{")
	for !p.accept("}") {
		if t := p.advance(); !t.isWord("version") {
			fail(t.at, "%v where version should be", t)
		}
		n := p.name("the version")
		v := &Version{At: n.at, Name: n.text}
		p.expect("{")
		for !p.accept("}") {
			v.Procedures = append(v.Procedures, p.procedure())
		}
		p.expect("=")
		v.Value = p.expression(0)
		p.expect(";")
		g.Versions = append(g.Versions, v)
	}
	p.expect("=")
	g.Value = p.expression(0)
	g.text = p.since(from)
	p.file.Programs = append(p.file.Programs, g)
}

func (p *parser) procedure() *Procedure {
	result := p.parameter()
	bounded(result)
	n := p.name("the procedure")
	f := &Procedure{At: n.at, Name: n.text, Result: result}
	p.expect("(")
	for !p.accept(")") {
		a := p.parameter()
		if t := p.peek(); t.kind == word {
			a.Name = p.name("the argument").text
			if a.Shape == Plain && a.Kind != Void && a.Kind != String && a.Kind != Opaque && p.accept("*") {
				a.Shape = Optional // rpcgen takes the star on either side of the name
			}
			if a.Kind != Void && a.Shape == Plain && (p.peek().is("[") || p.peek().is("<")) {
				p.bounds(a)
			} else if a.Kind == String && p.accept("<") {
				p.angled++
				if !p.peek().is(">") {
					a.Size = p.expression(0)
				}
				p.angled--
				p.expect(">")
			}
		}
		bounded(a)
		if a.Kind == Void && (len(f.Args) > 0 || !p.peek().is(")")) {
			fail(a.At, "void among other arguments")
		}
		if a.Kind != Void {
			f.Args = append(f.Args, a)
		}
		if !p.peek().is(")") {
			p.expect(",")
		}
	}
	p.expect("=")
	f.Value = p.expression(0)
	p.expect(";")
	return f
}

// parameter reads the type of an argument or a result: without a name, and a string without <>.
func (p *parser) parameter() *Var {
	v := &Var{At: p.peek().at}
	p.specifier(v)
	v.At = p.peek().at
	switch {
	case v.Kind == Void:
		return v
	case p.accept("*"):
		v.Shape = Optional
		if v.Kind == String || v.Kind == Opaque {
			fail(v.At, "optional strings and opaque data want a typedef")
		}
	case v.Kind == String || p.peek().is("<"):
		v.Shape = Variable
		if p.accept("<") {
			p.angled++
			if !p.peek().is(">") {
				v.Size = p.expression(0)
			}
			p.angled--
			p.expect(">")
		}
	}
	return v
}

// bounded fails for opaque data of no length.
func bounded(v *Var) {
	if v.Kind == Opaque && v.Shape == Plain {
		fail(v.At, "opaque data of no length; make it a typedef")
	}
}

// specifier reads the name of a type, and returns what form it is said to have, if any.
func (p *parser) specifier(v *Var) (form string) {
	t := p.peek()
	v.At = t.at
	if t.kind != word {
		fail(t.at, "%v where a type should be", t)
	}
	p.advance()
	switch t.text {
	case "void":
		v.Kind = Void
	case "unsigned":
		v.Kind = Uint32
		for _, s := range unsigned {
			if p.acceptWord(s.name) {
				v.Kind = s.kind
				p.long(s.name)
				break
			}
		}
	case "struct", "union", "enum":
		v.Kind, form = Named, t.text
		if n := p.peek(); n.is("{") || n.isWord("switch") {
			return form
		}
		v.Type = p.name("the " + t.text).text
	default:
		if k, ok := specifiers[t.text]; ok {
			v.Kind = k
			p.long(t.text)
			return ""
		}
		if keywords[t.text] {
			fail(t.at, "%v where a type should be", t)
		}
		v.Kind, v.Type = Named, t.text
	}
	return form
}

// long leaves C's second word behind: long int, short int, hyper int.
func (p *parser) long(first string) {
	if first == "short" || first == "long" || first == "hyper" {
		p.acceptWord("int")
	}
}

var unsigned = []struct {
	name string
	kind Kind
}{{"int", Uint32}, {"long", Uint32}, {"hyper", Uint64}, {"short", Uint16}, {"char", Uint8}}

var specifiers = map[string]Kind{
	"int": Int32, "long": Int32, "hyper": Int64, "short": Int16, "char": Int8, "float": Float32, "double": Float64,
	"bool": Bool, "string": String, "opaque": Opaque,
}

// fileOf is where the definitions of a header come from, by rpcgen's custom: NAME.x for NAME.h.
func fileOf(header string) (string, bool) {
	base, ok := strings.CutSuffix(filepath.Base(header), ".h")
	return base + ".x", ok
}
