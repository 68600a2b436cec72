package rpcl

import "slices"

// order finds the least sizes of types, which no type may be a part of itself for, and which types
// are recursive.
func (c *checker) order() {
	done := map[*Def]int{}
	for _, d := range c.p.file.Types {
		if d.Form == Typedef {
			c.noCycle(d.Of)
		}
	}
	for _, d := range c.p.file.Types {
		c.least(d, done)
	}
	for _, d := range c.p.file.Types {
		d.List = isList(d)
	}
	r := recursion{index: map[*Def]int{}, low: map[*Def]int{}}
	for _, d := range c.p.file.Types {
		r.visit(d)
	}
}

// maxTypedefs is how many typedefs may stand for each other in a row.
const maxTypedefs = 100

// noCycle fails where typedefs stand for each other without an end.
func (c *checker) noCycle(v *Var) {
	n := 0
	for at := v.Def; v.Def != nil && v.Def.Form == Typedef; n++ {
		if n > 0 && v.Def == at || n > maxTypedefs {
			fail(v.At, "%s stands for itself, or for more than %d others", v.Type, maxTypedefs)
		}
		c.resolveDef(v.Def)
		v = v.Def.Of
	}
}

// least computes the bytes that a value of d takes at least. A value that is not optional or in a
// variable-length array is a part of it.
func (c *checker) least(d *Def, done map[*Def]int) int {
	switch done[d] {
	case 1:
		fail(d.At, "%s is a part of itself; it can only be an optional one, %s *next, or in a variable-length array", d.Name, d.Name)
	case 2:
		return d.Least
	}
	done[d] = 1
	n := 0
	switch d.Form {
	case Typedef:
		n = c.leastOf(d.Of, done)
	case Enum:
		n = 4
	case Struct:
		for _, m := range d.Members {
			n = c.sum(d, n, c.leastOf(m, done))
		}
	case Union:
		arm := -1
		for _, a := range d.Arms {
			if l := c.leastOf(a.Var, done); arm < 0 || l < arm {
				arm = l
			}
		}
		n = c.sum(d, c.leastOf(d.Switch, done), max(arm, 0))
	}
	d.Least, done[d] = n, 2
	return n
}

func (c *checker) sum(d *Def, a, b int) int {
	if a+b > maxLeast {
		fail(d.At, "values of %s take more than %d bytes", d.Name, maxLeast)
	}
	return a + b
}

func (c *checker) leastOf(v *Var, done map[*Def]int) int {
	switch v.Shape {
	case Variable, Optional:
		return 4
	}
	one := c.leastOne(v, done)
	if v.Shape != Fixed {
		return one
	}
	if v.Kind == Opaque {
		return int(v.N+3) &^ 3
	}
	if one > 0 && int(v.N) > maxLeast/one {
		fail(v.At, "%s takes more than %d bytes", v.Name, maxLeast)
	}
	return one * int(v.N)
}

// LeastElement is how many bytes an element of the array takes at least.
func (v *Var) LeastElement() int {
	return (&checker{}).leastOne(v, nil)
}

func (c *checker) leastOne(v *Var, done map[*Def]int) int {
	switch {
	case v.Kind == Void:
		return 0
	case v.As != nil:
		return c.leastOf(v.As, done)
	case v.Def != nil && done == nil:
		return v.Def.Least
	case v.Def != nil:
		return c.least(v.Def, done)
	case v.Kind == Opaque || v.Kind == String:
		return 1
	}
	switch v.Kind {
	case Int64, Uint64, Float64:
		return 8
	case Quadruple:
		return 16
	}
	return 4
}

// isList reports whether d's last member is an optional d. Such a list is followed in a loop.
func isList(d *Def) bool {
	if d.Form != Struct {
		return false
	}
	last := d.Members[len(d.Members)-1]
	return slices.Contains(nextOf(last), d)
}

// nextOf returns what v is an optional one of, behind typedefs, if it is.
func nextOf(v *Var) []*Def {
	if v.Shape == Plain {
		if _, v = v.Target(); v == nil {
			return nil
		}
	}
	if v.Shape != Optional {
		return nil
	}
	if d, _ := (&Var{Kind: v.Kind, Def: v.Def, As: v.As}).Target(); d != nil {
		return []*Def{d}
	}
	return nil
}

// recursion finds the types whose values may lie within values of the same type: those that lead to
// each other, by Tarjan's algorithm. That a List leads to its next element does not count.
type recursion struct {
	index, low map[*Def]int // order of the visits, from 1; the earliest type that is led to
	stack      []*Def
}

func (r *recursion) visit(d *Def) {
	if r.index[d] > 0 {
		return
	}
	r.index[d] = len(r.index) + 1
	r.low[d] = r.index[d]
	at := len(r.stack)
	r.stack = append(r.stack, d)
	for i, v := range parts(d) {
		to := v.Def
		if to == nil || d.List && i == len(d.Members)-1 {
			continue
		}
		if to == d {
			d.Recursive = true
		}
		r.visit(to)
		if l := r.low[to]; l > 0 { // not in a set that is complete
			r.low[d] = min(r.low[d], l)
		}
	}
	if r.low[d] < r.index[d] {
		return
	}
	set := r.stack[at:]
	for _, m := range set {
		m.Recursive = m.Recursive || len(set) > 1
		r.low[m] = 0
	}
	r.stack = r.stack[:at]
}

func parts(d *Def) []*Var {
	switch d.Form {
	case Typedef:
		return []*Var{d.Of}
	case Struct:
		return d.Members
	case Union:
		var vars []*Var
		for _, a := range d.Arms {
			vars = append(vars, a.Var)
		}
		return vars
	}
	return nil
}
