package rpcgo

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/rpcl"
)

// basics are the Go types of what has no definition, and the methods of package xdr for them.
var basics = map[rpcl.Kind]struct{ goType, method string }{
	rpcl.Int32: {"int32", "Int32"}, rpcl.Uint32: {"uint32", "Uint32"},
	rpcl.Int64: {"int64", "Int64"}, rpcl.Uint64: {"uint64", "Uint64"},
	rpcl.Int16: {"int16", "Int16"}, rpcl.Uint16: {"uint16", "Uint16"},
	rpcl.Int8: {"int8", "Int8"}, rpcl.Uint8: {"uint8", "Uint8"},
	rpcl.Float32: {"float32", "Float32"}, rpcl.Float64: {"float64", "Float64"},
	rpcl.Quadruple: {"xdr.Quadruple", "Quadruple"}, rpcl.Bool: {"bool", "Bool"},
}

// isAlias reports whether a type is another name in Go too. Pointers are, for they can have no
// methods.
func isAlias(d *rpcl.Def) bool {
	return d.Form == rpcl.Typedef &&
		(d.Of.Shape == rpcl.Optional || d.Of.Shape == rpcl.Plain && d.Of.Def != nil)
}

// hasMethods reports whether the Go type of d encodes and decodes itself.
func hasMethods(d *rpcl.Def) bool {
	for isAlias(d) {
		if d.Of.Shape == rpcl.Optional {
			return false
		}
		d = d.Of.Def
	}
	return true
}

// byPointer reports whether a value is large, and handed on by its address.
func byPointer(v *rpcl.Var) bool {
	if v.Shape != rpcl.Plain || v.Def == nil {
		return false
	}
	d, end := v.Target()
	return d != nil && d.Form != rpcl.Enum || d == nil && end.Shape == rpcl.Fixed
}

// isValue reports whether a value shares no memory with what it was decoded from or into.
func isValue(v *rpcl.Var) bool {
	d, end := v.Target()
	if d != nil {
		return d.Form == rpcl.Enum
	}
	return end.Kind == rpcl.String || end.Shape == rpcl.Plain && end.Kind != rpcl.Named
}

// literal is the value of a constant, in the base that it is written in.
func literal(c *rpcl.Const) string {
	if c.Text != nil {
		if s := `"` + legible(*c.Text) + `"`; utf8.ValidString(s) && unquotes(s) {
			return s
		}
		return strconv.Quote(*c.Text)
	}
	text := strings.TrimRight(strings.ToLower(c.Value.Text), "ul")
	switch {
	case strings.HasPrefix(text, "0x"):
		return text
	case len(text) > 1 && text[0] == '0':
		return "0o" + text[1:]
	}
	return c.Num.String()
}

// legible is a string of C as Go's source may have it: what is no UTF-8, and what Go does not take
// there, is written by its number. An escape stays what it is, whatever comes behind the backslash.
func legible(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '\\':
			n = min(2, len(s))
			b.WriteString(s[:n])
		case r == 0 || r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\ufeff':
			b.WriteString(`\ufeff`)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func unquotes(s string) bool {
	_, err := strconv.Unquote(s)
	return err == nil
}
