package rpcgo

import (
	"fmt"
	"strings"

	"github.com/vmmc-go/vmmc/internal/rpcl"
)

func (w *writer) union(d *rpcl.Def) {
	name := w.typeName(d)
	vars := []*rpcl.Var{d.Switch}
	for _, a := range d.Arms {
		if a.Var.Kind != rpcl.Void {
			vars = append(vars, a.Var)
		}
	}
	names := fields(vars)
	tag := "v." + names[d.Switch]
	w.printf("\n// %s is the union %s: %s says which other field is meant, if any.\ntype %s struct {\n", name, d.Name, names[d.Switch], name)
	w.printf("%s %s\n", names[d.Switch], w.goType(d.Switch))
	for _, a := range d.Arms {
		if a.Var.Kind == rpcl.Void {
			continue
		}
		when := w.cases(d, a)
		switch {
		case a.Default:
			when = append(when, "any other")
		case len(when) == 0:
			when = append(when, "never") // the discriminant cannot be it
		}
		w.printf("%s %s // %s%s\n", names[a.Var], w.goType(a.Var), strings.Join(when, ", "), limit(a.Var))
	}
	w.printf("}\n")
	w.methods(d, "*", func() {
		w.encode(tag, d.Switch)
		w.arms(d, tag, "e", func(a *rpcl.Arm) { w.encode("v."+names[a.Var], a.Var) })
	}, func() {
		// Nothing is left of another arm in a value that is decoded into again.
		if k, ok := d.Switch.Basic(); ok {
			w.printf("tag := d.%s()\n", basics[k].method)
		} else {
			w.printf("var tag %s\n", w.goType(d.Switch))
			w.decode("tag", d.Switch)
		}
		w.printf("if tag != %s {\n*v = %s{%s: tag}\n}\n", tag, name, names[d.Switch])
		w.arms(d, "tag", "d", func(a *rpcl.Arm) { w.decode("v."+names[a.Var], a.Var) })
	})
}

// arms writes a switch with what is done in each arm.
func (w *writer) arms(d *rpcl.Def, tag, coder string, do func(*rpcl.Arm)) {
	w.printf("switch %s {\n", tag)
	rest := true
	for _, a := range d.Arms {
		switch {
		case a.Default:
			rest = false
			w.printf("default:\n")
		case len(a.Numbers) == 0:
			continue
		default:
			w.printf("case %s:\n", strings.Join(w.cases(d, a), ", "))
		}
		if a.Var.Kind != rpcl.Void {
			do(a)
		}
	}
	if rest {
		w.noCase(d, tag, coder)
	}
	w.printf("}\n")
}

func (w *writer) noCase(d *rpcl.Def, tag, coder string) {
	number := "int64(" + tag + ")"
	if isBool(d) {
		has := map[int64]bool{}
		for _, a := range d.Arms {
			for _, n := range a.Numbers {
				has[n] = true
			}
		}
		if has[0] && has[1] {
			return
		}
		number = "0"
		if has[0] {
			number = "1"
		}
	}
	w.printf("default:\n%s.NoCase(%q, %s)\n", coder, d.Name, number)
}

func isBool(d *rpcl.Def) bool {
	_, end := d.Switch.Target()
	return end != nil && end.Kind == rpcl.Bool
}

// cases are the values of an arm in Go.
func (w *writer) cases(d *rpcl.Def, a *rpcl.Arm) (out []string) {
	enum, end := d.Switch.Target()
	for i, n := range a.Numbers {
		switch {
		case end != nil && end.Kind == rpcl.Uint64:
			out = append(out, fmt.Sprint(uint64(n)))
		case isBool(d):
			out = append(out, fmt.Sprint(n == 1))
		case enum != nil && a.Names[i] != "":
			out = append(out, w.valueName(enum, a.Names[i], n))
		default:
			out = append(out, fmt.Sprint(n))
		}
	}
	return out
}

// valueName is the Go name of an enum's value, or its number where another type has the name.
func (w *writer) valueName(enum *rpcl.Def, name string, n int64) string {
	for _, c := range enum.Values {
		if c.Name != name {
			continue
		}
		if enum.Imported {
			return constant(name)
		}
		if s, ok := w.consts[c]; ok {
			return s
		}
	}
	return fmt.Sprint(n)
}
