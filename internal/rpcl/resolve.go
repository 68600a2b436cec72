package rpcl

import (
	"math"
	"math/big"
)

// resolveDef resolves what a definition mentions, once.
func (c *checker) resolveDef(d *Def) {
	if c.state == nil {
		c.state = map[*Def]int{}
	}
	if c.state[d] > 0 {
		return
	}
	c.state[d] = 1
	switch d.Form {
	case Typedef:
		c.resolve(d.Of)
	case Enum:
		for _, v := range d.Values {
			v.Num = nil
			c.signed(&Expr{At: v.At, Name: v.Name}, v.Name)
			if v.Num == nil { // of the same name and value as another
				v.Num = c.eval(v.Value)
			}
		}
	case Struct:
		if len(d.Members) == 0 {
			fail(d.At, "struct %s has no members", d.Name)
		}
		c.distinct(d.Members)
		for _, m := range d.Members {
			c.resolve(m)
		}
	case Union:
		c.union(d)
	}
}

func (c *checker) distinct(vars []*Var) {
	seen := map[string]Position{}
	for _, m := range vars {
		if at, ok := seen[m.Name]; ok && m.Name != "" {
			fail(m.At, "%s is declared at %v already", m.Name, at)
		}
		seen[m.Name] = m.At
	}
}

func (c *checker) resolve(v *Var) {
	switch {
	case v.Shape == Fixed:
		if v.N = c.unsigned(v.Size, "the length of "+v.Name); v.N > maxLeast {
			fail(v.Size.At, "the length of %s is %d", v.Name, v.N)
		}
	case v.Shape == Variable && v.Size != nil:
		v.N = c.most(v.Size, "the greatest length of "+v.Name)
	case v.Shape == Variable:
		v.N = math.MaxUint32
	}
	if v.Kind != Named {
		return
	}
	d := c.types[v.Type]
	// A typedef by which a file says what C's headers say too: typedef unsigned hyper uint64.
	if k := known[v.Type]; k != nil && (d == nil || IsKnown(d)) {
		v.As = k
		return
	}
	if d == nil && v.Type == "netbuf" {
		d = netbuf()
		c.types[v.Type] = d
		c.p.file.Types = append(c.p.file.Types, d)
	}
	if d == nil {
		fail(v.At, "no type is called %s; if it is defined elsewhere, see --extern", v.Type)
	}
	v.Def = d
	c.resolveDef(d)
}

// IsKnown reports whether a typedef defines what its name stands for anyway.
func IsKnown(d *Def) bool {
	k := known[d.Name]
	return k != nil && d.Form == Typedef && d.Of.Shape == Plain && k.Shape == Plain &&
		d.Of.Kind == k.Kind
}

// Basic returns what v is if it is one value of a type that has no definition of its own.
func (v *Var) Basic() (Kind, bool) {
	switch {
	case v.Shape != Plain:
		return 0, false
	case v.Kind != Named:
		return v.Kind, true
	case v.As != nil:
		return v.As.Basic()
	}
	return 0, false
}

// Target follows typedefs of one value to what they are in the end: a Def that is no such typedef,
// or nil and a declaration without a Def.
func (v *Var) Target() (*Def, *Var) {
	for v.Shape == Plain && v.Def != nil {
		if v.Def.Form != Typedef {
			return v.Def, nil
		}
		v = v.Def.Of
	}
	if v.Shape == Plain && v.As != nil {
		v = v.As
	}
	return nil, v
}

func (c *checker) union(d *Def) {
	c.resolve(d.Switch)
	c.noCycle(d.Switch)
	def, basic := d.Switch.Target()
	var names map[string]*Const
	switch {
	case def != nil && def.Form == Enum:
		names = map[string]*Const{}
		for _, v := range def.Values {
			names[v.Name] = v
		}
	case def != nil || basic.Shape != Plain || !discriminants[basic.Kind]:
		fail(d.Switch.At, "a union cannot switch on %s: only on integers, enums and bools", d.Switch.Name)
	}
	var vars []*Var
	seen := map[int64]Position{}
	other := false
	for _, a := range d.Arms {
		for _, x := range a.Cases {
			n := caseOf(basic, c.eval(x))
			if at, ok := seen[n]; ok {
				fail(x.At, "the case is at %v already", at)
			}
			seen[n] = x.At
			if basic != nil && !canBe(basic.Kind, n) {
				continue // as in C, where the compiler warns of it
			}
			a.Numbers = append(a.Numbers, n)
			name := ""
			if k := c.consts[x.Name]; x.Op == "" && k != nil && k.Text == nil &&
				(names == nil || names[x.Name] != nil) {
				name = x.Name
			}
			a.Names = append(a.Names, name)
		}
		if a.Default && other {
			fail(a.At, "there is a default already")
		}
		other = other || a.Default
		if a.Var.Kind != Void {
			c.resolve(a.Var)
			vars = append(vars, a.Var)
		}
	}
	c.distinct(vars)
}

// caseOf is a case as a number of the discriminant's type, by C's rules: what is shorter than an
// int is compared as an int, and what does not fit is cut off. The type is an enum if v is nil.
func caseOf(v *Var, n *big.Int) int64 {
	kind := Int32
	if v != nil {
		kind = v.Kind
	}
	// of a negative one: two's complement
	low := new(big.Int).And(n, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	switch kind {
	case Int64, Uint64:
		return int64(low)
	case Uint32:
		return int64(uint32(low))
	default:
		return int64(int32(low))
	}
}

// canBe reports whether a value of the kind may be n.
func canBe(kind Kind, n int64) bool {
	switch kind {
	case Bool:
		return n == 0 || n == 1
	case Uint16:
		return n == int64(uint16(n))
	case Uint8:
		return n == int64(uint8(n))
	case Int16:
		return n == int64(int16(n))
	case Int8:
		return n == int64(int8(n))
	default:
		return true
	}
}

var discriminants = map[Kind]bool{
	Int32: true, Uint32: true, Int16: true, Uint16: true, Int8: true, Uint8: true, Int64: true, Uint64: true, Bool: true,
}

func (c *checker) program(g *Program) {
	g.Number = c.unsigned(g.Value, "the number of "+g.Name)
	versions := map[uint32]string{}
	names := map[string]bool{}
	for _, v := range g.Versions {
		v.Number = c.unsigned(v.Value, "the number of "+v.Name)
		if other, ok := versions[v.Number]; ok || names[v.Name] {
			fail(v.At, "%s has a version %d already, %s", g.Name, v.Number, other)
		}
		versions[v.Number], names[v.Name] = v.Name, true
		procs, called := map[uint32]string{}, map[string]bool{}
		for _, f := range v.Procedures {
			f.Number = c.unsigned(f.Value, "the number of "+f.Name)
			if other, ok := procs[f.Number]; ok || called[f.Name] {
				fail(f.At, "%s has a procedure %d already, %s", v.Name, f.Number, other)
			}
			procs[f.Number], called[f.Name] = f.Name, true
			c.distinct(f.Args)
			for _, a := range f.Args {
				c.resolve(a)
			}
			if f.Result.Kind != Void {
				c.resolve(f.Result)
			}
		}
	}
}
