package rpcl

import (
	"math/big"
	"strings"
)

// Expr is an expression of integers: a number, a name, or an operator and what it is applied to.
type Expr struct {
	At   Position
	Op   string // "" for a number or a name
	Name string
	Num  *big.Int
	Text string // of a number, as it is written
	Args []*Expr
}

var zero = &Expr{Num: new(big.Int)}

// maxNesting is how deep expressions and declarations may lie within each other.
const maxNesting = 100

// expressions reads tokens, and expressions of them.
type expressions struct {
	*preprocessor
	ahead  []token
	depth  int
	angled int      // within <...>, where > is no operator
	chars  bool     // characters are numbers
	read   []string // the tokens that were taken
}

func newExpressions(p *preprocessor) *expressions { return &expressions{preprocessor: p} }

func (e *expressions) look(n int) token {
	for len(e.ahead) <= n {
		e.ahead = append(e.ahead, e.next())
	}
	return e.ahead[n]
}

func (e *expressions) peek() token { return e.look(0) }

func (e *expressions) advance() token {
	t := e.peek()
	e.ahead = e.ahead[1:]
	e.read = append(e.read, t.String())
	return t
}

func (e *expressions) deeper(at Position) {
	if e.depth++; e.depth > maxNesting {
		fail(at, "more than %d things within each other", maxNesting)
	}
}

// How tightly operators bind.
var precedence = map[string]int{
	"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6,
	"<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}

// operator returns the operator that comes next, and of how many tokens it is made.
func (e *expressions) operator() (string, int) {
	t := e.peek()
	if t.kind != mark {
		return "", 0
	}
	if t.text == ">" || t.text == ">=" {
		if e.angled > 0 {
			return "", 0
		}
		if n := e.look(1); t.text == ">" && n.is(">") && !n.spaced {
			return ">>", 2
		}
	}
	return t.text, 1
}

// expression reads operators that bind more tightly than bound; 0 is all, with ?: around them.
func (e *expressions) expression(bound int) *Expr {
	e.deeper(e.peek().at)
	defer func() { e.depth-- }()
	x := e.unary()
	for {
		op, n := e.operator()
		p := precedence[op]
		if p <= bound {
			break
		}
		at := e.peek().at
		for range n {
			e.advance()
		}
		x = &Expr{At: at, Op: op, Args: []*Expr{x, e.expression(p)}}
	}
	if bound == 0 && e.peek().is("?") {
		at := e.advance().at
		yes := e.expression(0)
		if t := e.advance(); !t.is(":") {
			fail(t.at, `%v where ":" should be`, t)
		}
		x = &Expr{At: at, Op: "?", Args: []*Expr{x, yes, e.expression(0)}}
	}
	return x
}

func (e *expressions) unary() *Expr {
	t := e.advance()
	switch {
	case t.kind == word:
		return &Expr{At: t.at, Name: t.text}
	case t.kind == number:
		n, ok := parseNumber(t.text)
		if !ok {
			fail(t.at, "%v is not an integer", t)
		}
		return &Expr{At: t.at, Num: n, Text: t.text}
	case t.kind == char && e.chars:
		// C's char has a sign where rpcgen mostly runs.
		return &Expr{At: t.at, Num: big.NewInt(int64(int8(t.text[0])))}
	case t.kind == char:
		fail(t.at, `"'" has no meaning here: only a case may be a character`)
	case t.is("-") || t.is("+") || t.is("~") || t.is("!"):
		e.deeper(t.at)
		defer func() { e.depth-- }()
		return &Expr{At: t.at, Op: t.text, Args: []*Expr{e.unary()}}
	case t.is("("):
		outer := e.angled
		e.angled = 0
		x := e.expression(0)
		e.angled = outer
		if t := e.advance(); !t.is(")") {
			fail(t.at, `%v where ")" should be`, t)
		}
		return x
	}
	fail(t.at, "%v where a number or a constant should be", t)
	return nil
}

// parseNumber reads a number as C has it: 10, 010, 0x10, with u and l behind it or not.
func parseNumber(s string) (*big.Int, bool) {
	s = strings.TrimRight(s, "uUlL")
	base := 10
	switch {
	case len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X"):
		s, base = s[2:], 16
	case len(s) > 1 && s[0] == '0':
		s, base = s[1:], 8
	}
	if s == "" || len(s) > 64 || strings.ContainsAny(s, "_+-") {
		return nil, false
	}
	return new(big.Int).SetString(s, base)
}

// evaluate computes x. What names mean is for resolve to say, or to fail at.
func evaluate(x *Expr, resolve func(*Expr) *Expr) *big.Int {
	switch {
	case x.Num != nil:
		return x.Num
	case x.Op == "":
		return evaluate(resolve(x), resolve)
	}
	a := evaluate(x.Args[0], resolve)
	switch {
	case x.Op == "?" && a.Sign() != 0:
		return evaluate(x.Args[1], resolve)
	case x.Op == "?":
		return evaluate(x.Args[2], resolve)
	case x.Op == "&&" && a.Sign() == 0, x.Op == "||" && a.Sign() != 0:
		return truth(x.Op == "||") // without a look at the other side
	case len(x.Args) == 1:
		return unary(x.Op, a)
	}
	b := evaluate(x.Args[1], resolve)
	v := binary(x, a, b)
	if v.BitLen() > 64 {
		fail(x.At, "the result has more than 64 bits")
	}
	return v
}

func truth(b bool) *big.Int {
	if b {
		return big.NewInt(1)
	}
	return new(big.Int)
}

func unary(op string, a *big.Int) *big.Int {
	switch op {
	case "-":
		return new(big.Int).Neg(a)
	case "~":
		return new(big.Int).Not(a)
	case "!":
		return truth(a.Sign() == 0)
	}
	return a
}

func binary(x *Expr, a, b *big.Int) *big.Int {
	v := new(big.Int)
	switch x.Op {
	case "+":
		return v.Add(a, b)
	case "-":
		return v.Sub(a, b)
	case "*":
		return v.Mul(a, b)
	case "/", "%":
		if b.Sign() == 0 {
			fail(x.At, "division by zero")
		}
		if x.Op == "/" {
			return v.Quo(a, b)
		}
		return v.Rem(a, b)
	case "&":
		return v.And(a, b)
	case "|":
		return v.Or(a, b)
	case "^":
		return v.Xor(a, b)
	case "<<", ">>":
		if b.Sign() < 0 || b.Cmp(big.NewInt(64)) > 0 {
			fail(x.At, "shift by %v bits", b)
		}
		if x.Op == "<<" {
			return v.Lsh(a, uint(b.Uint64()))
		}
		return v.Rsh(a, uint(b.Uint64()))
	case "&&", "||":
		return truth(b.Sign() != 0)
	}
	c := a.Cmp(b)
	return truth(x.Op == "==" && c == 0 || x.Op == "!=" && c != 0 || x.Op == "<" && c < 0 || x.Op == ">" && c > 0 ||
		x.Op == "<=" && c <= 0 || x.Op == ">=" && c >= 0)
}
