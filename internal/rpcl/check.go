package rpcl

import (
	"math"
	"math/big"
	"slices"
)

// maxLeast bounds the size of a type, which fixed arrays of each other could make beyond all
// memory.
const maxLeast = 1 << 28

type checker struct {
	p      *parser
	consts map[string]*Const
	types  map[string]*Def
	passed map[string]*Const
	state  map[*Def]int // of the walks: 1 under way, 2 done
}

func newChecker(p *parser) *checker {
	c := &checker{p: p, consts: map[string]*Const{}, types: map[string]*Def{}, passed: map[string]*Const{}}
	c.add(p, false)
	return c
}

// importFrom makes known what another file defines, where this one does not.
func (c *checker) importFrom(p *parser) { c.add(p, true) }

func (c *checker) add(p *parser, imported bool) {
	once := p.file.Types[:0]
	for _, d := range p.file.Types {
		d.Imported = imported
		old := c.types[d.Name]
		switch {
		case old == nil:
			c.types[d.Name] = d
		case old.Form == d.Form && old.text == d.text && old.Imported == imported:
			continue // the same again, which rpcgen takes
		case !imported:
			fail(d.At, "%s is defined at %v already", d.Name, old.At)
		}
		once = append(once, d)
		for _, v := range d.Values {
			c.addConst(v, imported)
		}
	}
	p.file.Types = once
	p.file.Programs = slices.CompactFunc(p.file.Programs, func(a, b *Program) bool { return a.text == b.text })
	for _, k := range p.file.Consts {
		c.addConst(k, imported)
	}
	for _, g := range p.file.Programs {
		g.Imported = imported
		c.addNumber(g.At, g.Name, g.Value, imported)
		for _, v := range g.Versions {
			c.addNumber(v.At, v.Name, v.Value, imported)
			for _, f := range v.Procedures {
				c.addNumber(f.At, f.Name, f.Value, imported)
			}
		}
	}
	for name, body := range p.passed {
		if k := passedConst(name, body); k != nil && c.passed[name] == nil {
			c.passed[name] = k
		}
	}
}

// passedConst makes a constant of a #define for the C compiler, if it is one.
func passedConst(name string, body []token) (k *Const) {
	if len(body) == 0 {
		return nil
	}
	var err error
	defer catch(&err)
	sub := newPreprocessor(nil, nil, nil)
	sub.bodies = [][]token{body}
	sub.push(newSource(name, "", ""))
	e := newExpressions(sub)
	e.chars = true
	x := e.expression(0)
	if e.peek().kind != endOfFile {
		return nil
	}
	return &Const{At: body[0].at, Name: name, Value: x, Imported: true}
}

// addConst adds a constant. C would take a second definition of the same name, if it is the same.
func (c *checker) addConst(k *Const, imported bool) {
	k.Imported = imported
	old := c.consts[k.Name]
	if old == nil {
		c.consts[k.Name] = k
		return
	}
	if imported {
		return
	}
	if k.Text != nil && old.Text != nil && *k.Text == *old.Text {
		return
	}
	if k.Text != nil || old.Text != nil || c.number(k).Cmp(c.number(old)) != 0 {
		fail(k.At, "%s is defined at %v already, otherwise", k.Name, old.At)
	}
}

// addNumber makes the number of a program, version or procedure a constant, as C has it. Versions
// may use the same name for different procedures; the first one is the constant's.
func (c *checker) addNumber(at Position, name string, x *Expr, imported bool) {
	if c.consts[name] == nil {
		c.consts[name] = &Const{At: at, Name: name, Value: x, Imported: imported}
	}
}

// busy marks a constant that is being computed.
var busy = new(big.Int)

func (c *checker) number(k *Const) *big.Int {
	switch {
	case k.Num == busy:
		fail(k.At, "%s is defined by itself", k.Name)
	case k.Num != nil:
		return k.Num
	case k.Text != nil:
		fail(k.At, "%s is a string and is used as a number", k.Name)
	}
	k.Num = busy
	k.Num = c.eval(k.Value)
	return k.Num
}

func (c *checker) eval(x *Expr) *big.Int {
	return evaluate(x, func(n *Expr) *Expr {
		if k := c.lookup(n.Name); k != nil {
			return &Expr{At: n.At, Num: c.number(k)}
		}
		if v := knownConsts[n.Name]; v != nil {
			return &Expr{At: n.At, Num: v}
		}
		fail(n.At, "no constant is called %s; if it is defined elsewhere, give its value by --define", n.Name)
		return nil
	})
}

func (c *checker) lookup(name string) *Const {
	if k := c.consts[name]; k != nil {
		return k
	}
	return c.passed[name]
}

// unsigned computes a number that has to be one of 32 bits.
func (c *checker) unsigned(x *Expr, what string) uint32 {
	v := c.eval(x)
	if v.Sign() < 0 || v.BitLen() > 32 {
		fail(x.At, "%s is %v, which is not an unsigned number of 32 bits", what, v)
	}
	return uint32(v.Uint64())
}

// signed computes an int. One that is written as unsigned is the int of the same bits.
func (c *checker) signed(x *Expr, what string) int64 {
	v := c.eval(x)
	if v.Cmp(big.NewInt(math.MinInt32)) < 0 || v.BitLen() > 32 {
		fail(x.At, "%s is %v, which is not an int", what, v)
	}
	return v.Int64()
}

// most computes the greatest length of an array. A negative one is the unsigned number of the same
// bits.
func (c *checker) most(x *Expr, what string) uint32 {
	if v := c.eval(x); v.Sign() < 0 && v.Cmp(big.NewInt(math.MinInt32)) >= 0 {
		return uint32(v.Int64())
	}
	return c.unsigned(x, what)
}

func (c *checker) check() {
	f := c.p.file
	for _, k := range f.Consts {
		if k.Text == nil {
			if v := c.number(k); v.BitLen() > 64 {
				fail(k.At, "%s has more than 64 bits", k.Name)
			}
		}
	}
	// Imported types are resolved as far as ours need it: by the walk below.
	for _, d := range f.Types {
		c.resolveDef(d)
	}
	for _, g := range f.Programs {
		c.program(g)
	}
	c.order()
}
