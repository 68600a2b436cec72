package rpcgo

import (
	"fmt"
	"strings"

	"github.com/vmmc-go/vmmc/internal/rpcl"
)

func (w *writer) define(d *rpcl.Def) {
	if rpcl.IsKnown(d) {
		return
	}
	switch d.Form {
	case rpcl.Typedef:
		w.typedef(d)
	case rpcl.Enum:
		w.enum(d)
	case rpcl.Struct:
		w.structure(d)
	case rpcl.Union:
		w.union(d)
	}
}

// methods writes the two methods of a type. Encode's receiver is star and the name.
func (w *writer) methods(d *rpcl.Def, star string, encode, decode func()) {
	name := w.typeName(d)
	w.printf("\n// EncodeXDR writes v.\nfunc (v %s%s) EncodeXDR(e *xdr.Encoder) {\n", star, name)
	if d.Recursive {
		w.printf("if !e.Enter() {\nreturn\n}\ndefer e.Leave()\n")
	}
	encode()
	w.printf("}\n\n// DecodeXDR reads v.\nfunc (v *%s) DecodeXDR(d *xdr.Decoder) {\n", name)
	if d.Recursive {
		w.printf("if !d.Enter() {\nreturn\n}\ndefer d.Leave()\n")
	}
	decode()
	w.printf("}\n")
}

func (w *writer) typedef(d *rpcl.Def) {
	name, of := w.typeName(d), w.goType(d.Of)
	w.printf("\n// %s is the type %s%s.\n", name, d.Name, limit(d.Of))
	if isAlias(d) {
		w.printf("type %s = %s\n", name, of)
		return
	}
	w.printf("type %s %s\n", name, of)
	v := d.Of
	if v.Shape == rpcl.Plain && v.As != nil {
		v = v.As
	}
	switch {
	case v.Kind == rpcl.String:
		w.methods(
			d, "",
			func() { w.printf("e.String(string(v), %s)\n", most(v)) },
			func() { w.printf("*v = %s(d.String(string(*v), %s))\n", name, most(v)) },
		)
	case v.Shape == rpcl.Plain:
		b := basics[v.Kind]
		w.methods(
			d, "",
			func() { w.printf("e.%s(%s(v))\n", b.method, b.goType) },
			func() { w.printf("*v = %s(d.%s())\n", name, b.method) },
		)
	case v.Shape == rpcl.Fixed:
		w.methods(d, "*", func() { w.encode("v", v) }, func() { w.decode("v", v) })
	default:
		w.methods(d, "", func() { w.encode("v", v) }, func() { w.decode("(*v)", v) })
	}
}

// limit is what the Go type does not say of a length.
func limit(v *rpcl.Var) string {
	if v.Shape != rpcl.Variable || v.N == 1<<32-1 {
		return ""
	}
	return fmt.Sprintf(", at most %d", v.N)
}

func (w *writer) enum(d *rpcl.Def) {
	name := w.typeName(d)
	w.printf("\n// %s is the enum %s.\ntype %s int32\n", name, d.Name, name)
	var lines []string
	var cases strings.Builder
	seen := map[int32]bool{}
	for _, c := range d.Values {
		con, ok := w.consts[c]
		n := int32(c.Num.Int64())
		if ok {
			lines = append(lines, fmt.Sprintf("%s %s = %d", con, name, n))
		}
		if !seen[n] {
			seen[n] = true
			fmt.Fprintf(&cases, "case %d:\nreturn %q\n", n, c.Name)
		}
	}
	w.block(fmt.Sprintf("// The values of %s.\n", name), lines)
	w.printf("\n// String returns the value's name in the protocol.\nfunc (v %s) String() string {\nswitch v {\n%s}\n", name, cases.String())
	w.printf("return \"%s(\" + strconv.Itoa(int(v)) + \")\"\n}\n", name)
	w.methods(
		d, "",
		func() { w.printf("e.Int32(int32(v))\n") },
		func() { w.printf("*v = %s(d.Int32())\n", name) },
	)
}

// fields gives the members of a struct their names.
func fields(vars []*rpcl.Var) map[*rpcl.Var]string {
	s := scopeOf("EncodeXDR", "DecodeXDR")
	names := map[*rpcl.Var]string{}
	for _, v := range vars {
		names[v] = s.claim(exported(v.Name))
	}
	return names
}

func (w *writer) structure(d *rpcl.Def) {
	name := w.typeName(d)
	names := fields(d.Members)
	w.printf("\n// %s is the struct %s.\ntype %s struct {\n", name, d.Name, name)
	for _, m := range d.Members {
		w.printf("%s %s%s\n", names[m], w.goType(m), comment(limit(m)))
	}
	w.printf("}\n")
	rest := d.Members
	if d.List {
		rest = rest[:len(rest)-1]
	}
	w.methods(d, "*", func() {
		if d.List {
			w.printf("for {\n")
		}
		for _, m := range rest {
			w.encode("v."+names[m], m)
		}
		if d.List {
			next := "v." + names[d.Members[len(rest)]]
			w.printf("e.Bool(%s != nil)\nif %s == nil || !e.OK() {\nreturn\n}\nv = %s\n}\n", next, next, next)
		}
	}, func() {
		if d.List {
			w.printf("for {\n")
		}
		for _, m := range rest {
			w.decode("v."+names[m], m)
		}
		if d.List {
			next := "v." + names[d.Members[len(rest)]]
			w.printf("if !xdr.Optional(d, &%s) {\nreturn\n}\nv = %s\n}\n", next, next)
		}
	})
}

func comment(s string) string {
	if s == "" {
		return ""
	}
	return " // " + strings.TrimPrefix(s, ", ")
}

// goType is the Go type of a declaration.
func (w *writer) goType(v *rpcl.Var) string {
	switch {
	case v.Kind == rpcl.String:
		return "string"
	case v.Kind == rpcl.Opaque && v.Shape == rpcl.Fixed:
		return fmt.Sprintf("[%d]byte", v.N)
	case v.Kind == rpcl.Opaque:
		return "[]byte"
	}
	one := basics[v.Kind].goType
	switch {
	case v.As != nil:
		one = w.goType(v.As)
	case v.Def != nil:
		one = w.typeName(v.Def)
	}
	switch v.Shape {
	case rpcl.Fixed:
		return fmt.Sprintf("[%d]%s", v.N, one)
	case rpcl.Variable:
		return "[]" + one
	case rpcl.Optional:
		return "*" + one
	}
	return one
}
