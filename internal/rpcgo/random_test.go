package rpcgo_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/rpcgo"
	"github.com/vmmc-go/vmmc/internal/rpcl"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// randomFile makes a file at random that rpcgen takes and C's compiler too, of all that the
// language has. Its names mean something in Go, or in what vrpcgen writes.
func randomFile(r *rand.Rand) string {
	g := &randomX{Rand: r, used: map[string]bool{}}
	g.preamble()
	for range 3 + g.IntN(10) {
		g.definition()
	}
	for range g.IntN(3) {
		g.program()
	}
	return g.String()
}

type randomX struct {
	*rand.Rand
	strings.Builder
	used    map[string]bool
	types   []randomType
	numbers []string // constants of small numbers that are not negative
	count   int
}

// randomType is one that was defined.
type randomType struct {
	name, prefix string
	weight       int      // words that a value takes at least
	switchable   string   // "signed", "unsigned", "bool" or "enum"
	values       []string // of an enum, different ones
	pointer      bool
}

// The names of types and members: keywords and types of Go, packages and names in the code that is
// written, and those that become the same in Go.
var hostileNames = strings.Fields(`func var type go chan map range defer package import interface nil error len cap append
	any iota context xdr vrpc strconv Xdr EncodeXDR DecodeXDR Xdr_decoder ssl_context _x x_ x__y X_y XY a_b aB AB Ab ab a_B
	String tag server caller res args arg1 c e d v s n ctx err Value Do New Client Server Call Next encoder Uint32 uint8
	byte rune make new copy delete panic recover fallthrough Service Registrar Void Named Name_ names xdr_ vrpc_context
	Register Unimplemented Point point POINT Fixed x86 _1 __2 Go_ goTo`)

func (g *randomX) pick(of ...string) string { return of[g.IntN(len(of))] }

// name is one that is used nowhere else.
func (g *randomX) name() string {
	n := g.pick(hostileNames...)
	for g.used[n] {
		g.count++
		n = g.pick(hostileNames...) + g.pick("", "_") + strconv.Itoa(g.count)
	}
	g.used[n] = true
	return n
}

// macro is a name that becomes a macro in C, and so may be nowhere else.
func (g *randomX) macro() string {
	g.count++
	n := fmt.Sprintf(g.pick("K%d", "k_%d", "_K%d", "kK%d", "K__%d_", "FUNC%d", "_go%d", "XDR%d", "NewClient%d"), g.count)
	g.used[n] = true
	return n
}

// p writes words with what may be between them.
func (g *randomX) p(format string, args ...any) {
	for w := range strings.FieldsSeq(fmt.Sprintf(format, args...)) {
		g.WriteString(w)
		g.WriteString(g.pick(" ", " ", " ", " ", "\n", "\t", "  ", " /* xdr. context. */ ", "/* 'a' \" */"))
	}
}

func (g *randomX) preamble() {
	if g.IntN(2) == 0 {
		g.WriteString("%#include <stdlib.h>\n%/* what C alone reads: \" ' */\n")
	}
	if g.IntN(2) == 0 {
		g.WriteString("#define TWICE(x) (x) (x)\n#define NUMBER(a, b) a ## b\n#if 0\nthis is 'left out\n#else\n#endif\n")
		g.WriteString("#ifdef NOWHERE\nstruct nowhere;\n#endif\n#define THREE 3\n")
		g.numbers = append(g.numbers, "THREE", "NUMBER(0x,2)", "NUMBER(1,)")
	}
}

func (g *randomX) number() string {
	if len(g.numbers) > 0 && g.IntN(3) == 0 {
		return g.pick(g.numbers...)
	}
	return g.pick("1", "2", "3", "0x2", "01", "03", "0X1"[:1]+"x1")
}

func (g *randomX) definition() {
	switch g.IntN(9) {
	case 0:
		n := g.macro()
		v := g.pick("1", "2", "0x3", "02")
		g.p("const %s = %s ;", n, v)
		g.numbers = append(g.numbers, n)
	case 1:
		g.p("const %s =", g.macro())
		g.text()
		g.p(";")
		g.p("const %s = %s ;", g.macro(), g.pick("-1", "0xffffffff", "0x80000000", "0", "-7", "017", "4294967295", "0xffffffffffffffff"))
	case 2:
		g.enum()
	case 3, 4:
		g.typedef()
	case 5, 6:
		g.union()
	default:
		g.structure()
	}
}

// text is a string of any bytes that one may have.
func (g *randomX) text() {
	g.WriteByte('"')
	for range g.IntN(12) {
		switch g.IntN(6) {
		case 0:
			g.WriteString(g.pick("vrpc.", " xdr.", "context.", "strconv.", "*/", "//", "`", "%s", "'", "\\n", "\\q", "\\\\", "\\0", "\\x41", "é", "\xe9", "\ufeff", "?"))
		default:
			g.WriteByte(g.pick("a", "b", "Z", "0", " ", ".", "{", "$")[0])
		}
	}
	g.WriteString("\" ")
}

func (g *randomX) enum() {
	t := randomType{name: g.name(), prefix: "enum", weight: 1, switchable: "enum"}
	g.p("enum %s {", t.name)
	next := 0
	for i := range 1 + g.IntN(5) {
		if i > 0 {
			g.p(",")
		}
		n := g.macro()
		g.p("%s", n)
		switch g.IntN(5) {
		case 0:
			next = max(next, 0) + 1 + g.IntN(4)
			g.p("= %s", fmt.Sprintf(g.pick("%d", "0x%x", "0%o"), next))
		case 1:
			if i == 0 {
				next = -3
				g.p("= -3")
			}
		}
		if next >= 1 && next <= 3 {
			g.numbers = append(g.numbers, n)
		}
		t.values = append(t.values, n)
		next++
	}
	g.p("} ;")
	g.types = append(g.types, t)
}

// declaration writes one of a name, and returns what is known of its type.
func (g *randomX) declaration(name string) randomType {
	var t randomType
	word := ""
	basic := func(w, switchable string, weight int) {
		word, t = w, randomType{switchable: switchable, weight: weight}
	}
	switch k := g.IntN(10); {
	case k == 0:
		g.p("string %s < %s >", name, g.pick("", g.number(), "10"))
		return randomType{weight: 1}
	case k == 1:
		g.p("opaque %s < %s >", name, g.pick("", g.number(), "9"))
		return randomType{weight: 1}
	case k == 2:
		g.p("opaque %s [ %s ]", name, g.pick(g.number(), "7"))
		return randomType{weight: 1}
	case k < 6 && len(g.types) > 0:
		t = g.types[g.IntN(len(g.types))]
		word = t.name
		if t.prefix != "" && g.IntN(2) == 0 {
			word = t.prefix + " " + t.name
		}
	default:
		switch g.IntN(11) {
		case 0:
			basic(g.pick("int", "int32_t"), "signed", 1)
		case 1:
			basic(g.pick("unsigned", "unsigned int", "u_int", "uint32_t"), "unsigned", 1)
		case 2:
			basic(g.pick("char", "short", "short int"), "signed", 1)
		case 3:
			basic(g.pick("unsigned char", "unsigned short", "unsigned short int", "u_char", "u_short"), "signed", 1)
		case 4:
			basic(g.pick("hyper", "hyper int", "int64_t"), "signed", 2)
		case 5:
			basic(g.pick("unsigned hyper", "unsigned hyper int", "uint64_t"), "unsigned", 2)
		case 6:
			basic(g.pick("long", "long int"), "", 1)
		case 7:
			basic(g.pick("unsigned long", "unsigned long int"), "", 1)
		case 8:
			basic("float", "", 1)
		case 9:
			basic("double", "", 2)
		default:
			basic("bool", "bool", 1)
		}
	}
	switch g.IntN(7) {
	case 0:
		if t.weight < 40 {
			n := g.number()
			g.p("%s %s [ %s ]", word, name, n)
			return randomType{weight: 3 * t.weight}
		}
		fallthrough
	case 1:
		g.p("%s %s < %s >", word, name, g.pick("", g.number(), "5", "-1"))
		return randomType{weight: 1}
	case 2:
		g.p("%s * %s", word, name)
		return randomType{weight: 1, pointer: true}
	default:
		g.p("%s %s", word, name)
		return randomType{weight: t.weight, switchable: t.switchable, values: t.values, pointer: t.pointer}
	}
}

func (g *randomX) typedef() {
	n := g.name()
	g.p("typedef")
	t := g.declaration(n)
	t.name = n
	g.p(";")
	g.types = append(g.types, t)
}

// members are names, each different from the others.
func (g *randomX) members(n int) []string {
	var out []string
	for len(out) < n {
		if m := g.pick(hostileNames...); !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

func (g *randomX) structure() {
	t := randomType{name: g.name(), prefix: "struct"}
	g.p("struct %s {", t.name)
	names := g.members(1 + g.IntN(6))
	for i, m := range names {
		if i > 0 && i == len(names)-1 && g.IntN(4) == 0 {
			g.p("struct %s * %s ;", t.name, m)
			t.weight++
			continue
		}
		t.weight += g.declaration(m).weight
		g.p(";")
	}
	g.p("} ;")
	if t.weight <= 100 {
		g.types = append(g.types, t)
	}
}

func (g *randomX) union() {
	var on []randomType
	for _, t := range g.types {
		if t.switchable != "" {
			on = append(on, t)
		}
	}
	for _, b := range []struct{ names, switchable string }{
		{"int", "signed"},
		{"unsigned", "unsigned"},
		{"char", "signed"},
		{"short", "signed"},
		{"unsigned char", "signed"},
		{"hyper", "signed"},
		{"unsigned hyper", "unsigned"},
		{"bool", "bool"},
	} {
		on = append(on, randomType{name: b.names, switchable: b.switchable})
	}
	t := on[g.IntN(len(on))]
	u := randomType{name: g.name(), weight: 1}
	names := g.members(8)
	g.p("union %s switch ( %s %s ) {", u.name, t.name, names[0])
	cases := []string{"0", "1", "2", "0x3", "04", "'a'", "'\"'", "'e'", "-1", "-2", "300"}
	switch t.switchable {
	case "bool":
		cases = []string{g.pick("TRUE", "1"), g.pick("FALSE", "0"), "2"}
	case "enum":
		cases = append(slices.Clone(t.values), "1000", "0xfffffff0")
	}
	g.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	arms := names[g.IntN(2):] // an arm may have the name of the discriminant
	for i := 0; i < 5 && len(cases) > 0; i++ {
		for k := 1 + g.IntN(2); k > 0 && len(cases) > 0; k-- {
			g.p("case %s :", cases[0])
			cases = cases[1:]
		}
		g.arm(arms[i])
	}
	if g.IntN(2) == 0 {
		g.p("default :")
		g.arm(arms[5])
	}
	g.p("} ;")
	g.types = append(g.types, u)
}

func (g *randomX) arm(name string) {
	if g.IntN(4) == 0 {
		g.p("void ;")
		return
	}
	g.declaration(name)
	g.p(";")
}

func (g *randomX) program() {
	number := 0x20000000 + g.IntN(1000)*1000 + len(g.used)
	g.p("program %s {", g.macro())
	shared := g.macro()
	for v := range 1 + g.IntN(2) {
		g.p("version %s {", g.macro())
		for i := range 1 + g.IntN(4) {
			n := g.macro()
			if i == 0 && g.IntN(2) == 0 {
				n = shared
			}
			if g.IntN(3) == 0 {
				g.p("void %s ( void ) = %d ;", n, i)
				continue
			}
			g.p("%s %s (", g.parameter(), n)
			for a := range 1 + g.IntN(3) {
				if a > 0 {
					g.p(",")
				}
				g.p("%s", g.parameter())
				if g.IntN(2) == 0 {
					g.p("%s%d", g.pick(hostileNames...), a)
				}
			}
			g.p(") = %d ;", i)
		}
		g.p("} = %d ;", v+1)
	}
	g.p("} = %d ;", number)
}

func (g *randomX) parameter() string {
	if len(g.types) > 0 && g.IntN(2) == 0 {
		return g.types[g.IntN(len(g.types))].name
	}
	return g.pick("int", "unsigned", "hyper", "string", "bool", "double", "char", "unsigned hyper")
}

// randomFiles is how many files are made; more by VMMC_XDR_FILES. They are the same each time, from
// VMMC_XDR_SEED on.
func randomFiles(t *testing.T, few int) (n int, seed uint64) {
	t.Helper()
	n, seed = few, 1
	if s := os.Getenv("VMMC_XDR_FILES"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	if s := os.Getenv("VMMC_XDR_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return n, seed
}

// Files at random are taken, as rpcgen takes them, the Go of each compiles, and values at random of
// all of their types are the same bytes as in C.
func TestRandomFilesAsC(t *testing.T) {
	n, seed := randomFiles(t, 8)
	dir := t.TempDir()
	files := []string{"testdata/zero_arm.x", "testdata/char_switch.x", "testdata/names.x"}
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("random%d.x", seed+uint64(i)))
		if err := os.WriteFile(path, []byte(randomFile(rand.New(rand.NewPCG(seed+uint64(i), 0)))), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	sameAsC(t, files, 0, true)
}

// tools are those that the test holds vrpcgen against.
func tools(t *testing.T) (rpcgen, gcc string) {
	t.Helper()
	rpcgen, err := exec.LookPath("rpcgen")
	testutil.Require(t, err == nil, "there is no rpcgen: install rpcsvc-proto")
	gcc, err = exec.LookPath("gcc")
	testutil.Require(t, err == nil, "there is no gcc")
	_, err = os.Stat("/usr/include/tirpc/rpc/rpc.h")
	testutil.Require(t, err == nil, "there is no libtirpc to build with: install libtirpc-dev")
	return rpcgen, gcc
}

// takenByC reports whether rpcgen takes a file, and whether C's compiler takes what it makes of it.
func takenByC(t *testing.T, rpcgen, gcc, path string) (byRpcgen, byCompiler bool) {
	t.Helper()
	dir := t.TempDir()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "made.x"), src, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) bool {
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = dir
		err := c.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return err == nil
	}
	for flag, made := range map[string]string{"-h": "made.h", "-c": "made_xdr.c", "-m": "made_svc.c"} {
		if !run(rpcgen, "-N", "-C", flag, "-o", made, "made.x") {
			return false, false
		}
	}
	header, err := os.ReadFile(filepath.Join(dir, "made.h"))
	if err != nil {
		t.Fatal(err)
	}
	// A constant is only a macro for C, which is looked at where it is used.
	uses := "#include \"made_xdr.c\"\nlong use(long v) {\n"
	for _, m := range constantsOf.FindAllSubmatch(header, -1) {
		uses += fmt.Sprintf("v += (long)(%s);\n", m[1])
	}
	if err := os.WriteFile(filepath.Join(dir, "uses.c"), []byte(uses+"return v;\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return true, run(gcc, "-w", "-Dbool=bool_t", "-I.", "-I/usr/include/tirpc", "-fsyntax-only", "uses.c", "made_svc.c")
}

var constantsOf = regexp.MustCompile(`(?m)^#define (\w+) .`)

// takenByUs reports whether vrpcgen takes a file.
func takenByUs(t *testing.T, path string) error {
	t.Helper()
	f, err := rpcl.Load(path, rpcl.Options{Open: os.ReadFile})
	if err != nil {
		return err
	}
	if _, err := rpcgo.Write(f, "p"); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return nil
}

// A file at random one word of which is missing, there twice, or another is taken if rpcgen and C's
// compiler take it, and refused if rpcgen refuses it, unless it has what vrpcgen takes beyond
// rpcgen.
func TestDamagedFilesAsC(t *testing.T) {
	rpcgen, gcc := tools(t)
	n, seed := randomFiles(t, 30)
	dir := t.TempDir()
	both, taken, refused, beyond := 0, 0, 0, 0 // the last is what has an extension
	for i := range n {
		r := rand.New(rand.NewPCG(seed+uint64(i), 1))
		words, what := damage(r, randomFile(r))
		path := filepath.Join(dir, fmt.Sprintf("damaged%d.x", seed+uint64(i)))
		if err := os.WriteFile(path, []byte(words), 0o600); err != nil {
			t.Fatal(err)
		}
		byRpcgen, byCompiler := takenByC(t, rpcgen, gcc, path)
		err := takenByUs(t, path)
		if byRpcgen && byCompiler {
			both++
		}
		switch {
		case byRpcgen && byCompiler && err != nil:
			t.Errorf("rpcgen takes this, and vrpcgen does not: %v: %s\n%s", err, what, words)
		case !byRpcgen && err == nil && extensions.MatchString(comments.ReplaceAllString(words, " ")):
			beyond++
		case !byRpcgen && err == nil:
			t.Errorf("vrpcgen takes this, and rpcgen does not: %s\n%s", what, words)
		case err == nil:
			taken++
		default:
			refused++
		}
	}
	t.Logf("%d taken, %d of them by C, %d refused, %d taken by vrpcgen alone", taken, both, refused, beyond)
	if both == 0 || refused == 0 {
		t.Error("the test compares nothing")
	}
}

var comments = regexp.MustCompile(`(?s)/\*.*?\*/`)

// extensions is what vrpcgen takes, and rpcgen does not.
var extensions = regexp.MustCompile(strings.Join([]string{
	`;\s*;`, `{\s*;`, // a semicolon too many
	`}\s*=\s*[-\w]+\s*(\z|[a-z%#])`, // none after a program
	`[-\w]\s+-\d`, `-\s+\w`,         // expressions
	`\b(program|version)\s*[^\s\w{]`, `\bprogram\s+\w+\s*[^\s{]`, // names that are keywords elsewhere
	`,\s*}`,                                   // a comma after the last value of an enum
	`\b(struct|enum)\s*{`, `\bunion\s+switch`, // types without a name
	`\b(struct|enum|union)\s+\w+\s*{[^}]*\b(struct|enum)\s*{`, // types within types
	`default\s*:[^;]*;\s*case`, `switch[^{]*{\s*default`,      // default elsewhere than at the end
}, "|"))

// damage changes one word of a file, and says which.
func damage(r *rand.Rand, file string) (damaged, what string) {
	// Words in comments are none. What is instead of them has the same length.
	at := wordsOf.FindAllStringIndex(comments.ReplaceAllStringFunc(file, func(c string) string { return strings.Repeat(" ", len(c)) }), -1)
	w := at[r.IntN(len(at))]
	word := file[w[0]:w[1]]
	switch r.IntN(4) {
	case 0:
		word = ""
	case 1:
		word += " " + word
	case 2:
		other := at[r.IntN(len(at))]
		word = file[other[0]:other[1]]
	default:
		word = []string{
			"int", "void", "opaque", "string", "struct", "union", "case", "default", "const", "unsigned", "program", "version",
			"quadruple", "0", "-1", "1000", "'b'", "\"s\"", "<", ">", "[", "]", "{", "}", "(", ")", "*", ":", ";", ",", "=", "hyper", "bool", "x9",
		}[r.IntN(34)]
	}
	before, after := file[:w[0]], file[w[1]:]
	what = fmt.Sprintf("%q, then %q instead of %q, then %q", before[max(len(before)-60, 0):], word, file[w[0]:w[1]], after[:min(len(after), 40)])
	return before + " " + word + " " + after, what
}

// wordsOf are a file's words and marks, without what is in comments.
var wordsOf = regexp.MustCompile(`-?\w+|"[^"\n]*"|'.'|[{}()<>\[\];:,=*]`)
