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
	for _, d := range c.p.file.Types {
		d.Recursive = c.reaches(d)
	}
}

// noCycle fails where typedefs stand for each other, which would have no end to follow.
func (c *checker) noCycle(v *Var) {
	seen := map[*Def]bool{}
	for v.Def != nil && v.Def.Form == Typedef {
		if seen[v.Def] {
			fail(v.At, "%s stands for itself", v.Type)
		}
		seen[v.Def] = true
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

// isList says that d's last member is an optional d. Such a list is followed in a loop.
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

// reaches says whether values of d may lie within a value of d, by other ways than as its List.
func (c *checker) reaches(d *Def) bool {
	seen := map[*Def]bool{}
	var walk func(at *Def) bool
	walk = func(at *Def) bool {
		for i, v := range parts(at) {
			if at == d && d.List && i == len(d.Members)-1 {
				continue
			}
			if v.Def == nil || seen[v.Def] && v.Def != d {
				continue
			}
			if v.Def == d {
				return true
			}
			seen[v.Def] = true
			if walk(v.Def) {
				return true
			}
		}
		return false
	}
	return walk(d)
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
