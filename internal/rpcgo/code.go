package rpcgo

import (
	"fmt"

	"github.com/vmmc-go/vmmc/internal/rpcl"
)

// encode writes the statements that encode x, a Go expression of v's type.
func (w *writer) encode(x string, v *rpcl.Var) {
	switch {
	case v.Kind == rpcl.Opaque && v.Shape == rpcl.Fixed:
		w.printf("e.FixedOpaque(%s[:])\n", x)
	case v.Kind == rpcl.Opaque:
		w.printf("e.Opaque(%s, %s)\n", x, most(v))
	case v.Kind == rpcl.String:
		w.printf("e.String(%s, %s)\n", x, most(v))
	case v.Shape == rpcl.Fixed:
		w.printf("for i := range %s {\n", x)
		w.encodeOne(x+"[i]", v)
		w.printf("}\n")
	case v.Shape == rpcl.Variable:
		w.printf("e.Len(len(%s), %s)\nfor i := range %s {\n", x, most(v), x)
		w.encodeOne(x+"[i]", v)
		w.printf("}\n")
	case v.Shape == rpcl.Optional:
		w.printf("e.Bool(%s != nil)\nif %s != nil {\n", x, x)
		w.encodeOne(pointee(x, v), v)
		w.printf("}\n")
	default:
		w.encodeOne(x, v)
	}
}

// encodeOne does so for one value of the type that v is an array of, or a pointer to.
func (w *writer) encodeOne(x string, v *rpcl.Var) {
	switch {
	case v.As != nil:
		w.encode(x, v.As)
	case v.Def == nil:
		w.printf("e.%s(%s)\n", basics[v.Kind].method, x)
	case hasMethods(v.Def):
		w.printf("%s.EncodeXDR(e)\n", x)
	default:
		w.encode(x, v.Def.Of)
	}
}

// decode writes the statements that decode x, which can be assigned to.
func (w *writer) decode(x string, v *rpcl.Var) {
	switch {
	case v.Kind == rpcl.Opaque && v.Shape == rpcl.Fixed:
		w.printf("d.FixedOpaque(%s[:])\n", x)
	case v.Kind == rpcl.Opaque:
		w.printf("%s = d.Opaque(%s, %s)\n", x, x, most(v))
	case v.Kind == rpcl.String:
		w.printf("%s = d.String(%s, %s)\n", x, x, most(v))
	case v.Shape == rpcl.Fixed:
		w.printf("for i := range %s {\n", x)
		w.decodeOne(x+"[i]", v)
		w.printf("}\n")
	case v.Shape == rpcl.Variable && flat(v):
		w.printf("%s = xdr.Slice(d, %s, d.Len(%s, %d))\nfor i := range %s {\n", x, x, most(v), v.LeastElement(), x)
		w.decodeOne(x+"[i]", v)
		w.printf("}\n")
	case v.Shape == rpcl.Variable:
		w.printf("%s = xdr.Empty(d, %s)\nfor n := d.Len(%s, %d); n > 0 && xdr.Extend(d, &%s); n-- {\n", x, x, most(v), v.LeastElement(), x)
		w.decodeOne(fmt.Sprintf("%s[len(%s)-1]", x, x), v)
		w.printf("}\n")
	case v.Shape == rpcl.Optional:
		w.printf("if xdr.Optional(d, &%s) {\n", x)
		w.decodeOne(pointee(x, v), v)
		w.printf("}\n")
	default:
		w.decodeOne(x, v)
	}
}

func (w *writer) decodeOne(x string, v *rpcl.Var) {
	switch {
	case v.As != nil:
		w.decode(x, v.As)
	case v.Def == nil:
		w.printf("%s = d.%s()\n", x, basics[v.Kind].method)
	case hasMethods(v.Def):
		w.printf("%s.DecodeXDR(d)\n", x)
	default:
		w.decode(x, v.Def.Of)
	}
}

// pointee is what the pointer x leads to. Methods find it by themselves.
func pointee(x string, v *rpcl.Var) string {
	if v.As == nil && v.Def != nil && hasMethods(v.Def) {
		return x
	}
	return "(*" + x + ")"
}

// flat reports whether the elements take in Go what they take on the wire, or nearly so: memory for
// all of them is then no more than the input has.
func flat(v *rpcl.Var) bool {
	d, end := (&rpcl.Var{Kind: v.Kind, Def: v.Def, As: v.As}).Target()
	if d != nil {
		return d.Form == rpcl.Enum
	}
	return end.Shape == rpcl.Plain
}

// most is the greatest length.
func most(v *rpcl.Var) string {
	if v.N == 1<<32-1 {
		return "xdr.Unlimited"
	}
	return fmt.Sprint(v.N)
}
