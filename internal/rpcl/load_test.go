package rpcl_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/internal/rpcl"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// load reads the file in.x of a few files.
func load(files map[string]string, o rpcl.Options) (*rpcl.File, error) {
	o.Open = func(path string) ([]byte, error) {
		if s, ok := files[path]; ok {
			return []byte(s), nil
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return rpcl.Load("in.x", o)
}

// Each error says what is wrong, and where.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"struct a {\n\tint b\n};", `in.x:3:1: "}" where ";" should be`},
		{"struct a { int b; }", `in.x:1:20: the end of the file where ";" should be`},
		{"struct a { };", "in.x:1:8: struct a has no members"},
		{"struct a { int x; hyper x; };", "in.x:1:25: x is declared at in.x:1:16 already"},
		{"struct a { nowhere x; };", "in.x:1:20: no type is called nowhere; if it is defined elsewhere, see --extern"},
		{"struct a { a x; };", "in.x:1:8: a is a part of itself; it can only be an optional one, a *next, or in a variable-length array"},
		{"struct a { b x; }; struct b { a x[2]; };", "in.x:1:8: a is a part of itself"},
		{"typedef a b; typedef b a;", "stands for itself"},
		{"typedef a *a;", "stands for itself"},
		{"struct a { int x; }; enum a { B };", "in.x:1:27: a is defined at in.x:1:8 already"},
		{"const A = B; const B = A;", "in.x:1:7: A is defined by itself"},
		{"const A = B;", "in.x:1:11: no constant is called B; if it is defined elsewhere, give its value by --define"},
		{"const A = 08;", `in.x:1:11: "08" is not an integer`},
		{"const A = 1 / 0;", "in.x:1:13: division by zero"},
		{"const A = 1 << 65;", "shift by 65 bits"},
		{"const A = 0x123456789abcdef01;", "A has more than 64 bits"},
		{"const A = 1; const A = 2;", "in.x:1:20: A is defined at in.x:1:7 already, otherwise"},
		{"const A = \"x\"; typedef int b[A];", "A is a string and is used as a number"},
		{"enum a { B = 0x123456789 };", "which is not an int"},
		{"typedef int a[-1];", "in.x:1:15: the length of a is -1, which is not an unsigned number of 32 bits"},
		{"typedef int a[0x7fffffff];", "the length of a is 2147483647"},
		{"typedef int a[0x8000000]; typedef a b[0x8000000];", "takes more than"},
		{"typedef int a<0x100000000>;", "the greatest length of a is 4294967296"},
		{"typedef string a;", "in.x:1:16: a string is declared as string a<>"},
		{"typedef string a[4];", "a string is declared as string a<>"},
		{"typedef opaque a;", "opaque data is declared as opaque a[N] or opaque a<N>"},
		{"typedef void a;", "a typedef of void"},
		{"struct int { int x; };", `in.x:1:8: "int" where the name of the struct should be`},
		{"union u switch (int x) { case 1: int a; case 1: int b; };", "in.x:1:46: the case is at in.x:1:31 already"},
		{"union u switch (int x) { int a; };", `in.x:1:26: "int" where case or default should be`},
		{"union u switch (int x) { default: void; default: void; };", "there is a default already"},
		{"union u switch (float x) { case 1: void; };", "a union cannot switch on x"},
		{"union u switch (int x[2]) { case 1: void; };", "a union cannot switch on x"},
		{"union u switch (unsigned char x) { case 256: int a; case 0x100: int b; };", "the case is at in.x:1:41 already"},
		{"union u switch (unsigned x) { case -1: int a; case 0xffffffff: int b; };", "the case is at in.x:1:36 already"},
		{"union u switch (char c) { case 'a': int a; case 97: int b; };", "the case is at in.x:1:32 already"},
		{"union u switch (char c) { case 'ab': int a; };", `in.x:1:32: "'" has no meaning here`},
		{"union u switch (char c) { case '\\n': int a; };", `in.x:1:32: "'" has no meaning here`},
		{"typedef int a['a'];", `"'" has no meaning here`},
		{"enum e { A = 'a' };", `"'" has no meaning here`},
		{"typedef int a; typedef hyper a;", "in.x:1:30: a is defined at in.x:1:13 already"},
		{"typedef int a<4>; typedef int a<5>;", "a is defined at in.x:1:13 already"},
		{"struct a { int x; }; struct a { int y; };", "a is defined at in.x:1:8 already"},
		{"enum a { X }; enum a { X, Y };", "a is defined at in.x:1:6 already"},
		{"const A = \"x\"; const A = \"y\";", "A is defined at in.x:1:7 already, otherwise"},
		{"program P { version V { void A(void) = 1; void B(void) = 1; } = 1; } = 1;", "in.x:1:48: V has a procedure 1 already, A"},
		{"program P { version V { void A(void) = 1; } = 1; version W { void A(void) = 1; } = 1; } = 1;", "P has a version 1 already, V"},
		{"program P { version V { void A(int, void) = 1; } = 1; } = 1;", "void among other arguments"},
		{"program P { version V { void A(opaque) = 1; } = 1; } = 1;", "in.x:1:38: opaque data of no length; make it a typedef"},
		{"program P { version V { opaque A(void) = 1; } = 1; } = 1;", "opaque data of no length"},
		{"program P { version V { void A(opaque x) = 1; } = 1; } = 1;", "opaque data of no length"},
		{"program P { version V { void A(void) = 0x1ffffffff; } = 1; } = 1;", "the number of A"},
		{"int x;", `in.x:1:1: "int" where const, typedef, enum, struct, union or program should be`},
		{"/* no end", "in.x:1:1: the comment does not end"},
		{"const A = 'x';", `in.x:1:11: "'" has no meaning here`},
		{"#if 1\n", "in.x:1:2: this condition has no #endif"},
		{"#endif\n", "in.x:1:2: #endif without an #if in this file"},
		{"#if 1\n#else\n#else\n#endif", "in.x:3:2: #else after the #else of in.x:1:2"},
		{"#if\n#endif", "where a number or a constant should be"},
		{"#if 1 1\n#endif", `in.x:1:7: "1" where the condition should end`},
		{"#ifdef\n#endif", "#ifdef wants a name"},
		{"#nonsense\n", `in.x:1:2: no directive is called "nonsense"`},
		{"#error it is wrong\n", "in.x:1:2: #error it is wrong"},
		{"#define F(x) x\nconst A = F(1, 2);", "in.x:2:11: F has 2 arguments, and takes 1"},
		{"#define F(x) x\nconst A = F(1;", "in.x:2:11: the arguments of F do not end"},
		{"#define F(x...) x\nconst A = F(1);", "in.x:2:11: F is a macro that cannot be used"},
		{"#define F(x, y) x ## y\nconst A = F(1, +);", "in.x:2:11: F makes 1+ of two words, which is none"},
		{"#define F(x\nconst A = 1;", "in.x:1:9: the parameters of macro F are not names with commas between them"},
		{"#define F(x,,y) x\nconst A = 1;", "in.x:1:9: the parameters of macro F are not names"},
		{"struct a { int int x; };", `in.x:1:16: "int" where the name of a member should be`},
		{"struct a { unsigned int int x; };", `in.x:1:25: "int" where the name of a member should be`},
		{"#define F(x) F(x) G(x)\n#define G(x) F(x)\nconst A = F(1);", "in.x:3:11:"},
		{"#include \"not.x\"\n", "in.x:1:2: #include of not.x: open not.x: file does not exist"},
		{"#include \"in.x\"\n", "files include each other more than 32 deep"},
		{"# 40 \"other.x\"\nwrong", `other.x:40:1: "wrong" where`},
		{"#line 7\nwrong", "in.x:7:1:"},
		{"\n  \t wrong \\\n\n", "in.x:2:5:"},
		{"const A = " + strings.Repeat("(", 200) + "1", "more than 100 things within each other"},
		{"typedef " + strings.Repeat("struct { ", 200), "more than 100 things within each other"},
		{row(300) + "const A = A0;", "macros stand for each other, more than 200 in a row"},
		{doubling(40) + "const A = A39;", "the macros make more than"},
		// What one macro makes, before it is read: tokens, text, one word.
		{"#define G(x, y)\n#define F(x) G()" + strings.Repeat(" x", 2048) + "\nF(" + strings.Repeat("1 ", 1024) + ")", "the macros make more than"},
		{"#define F(x)" + strings.Repeat(" #x", 1024) + "\nF(" + strings.Repeat("a", 16<<10) + ")", "the macros make more than"},
		{"#define F(x) x" + strings.Repeat(" ## x", 1024) + "\nF(" + strings.Repeat("a", 1<<10) + ")", "the macros make more than"},
	} {
		_, err := load(map[string]string{"in.x": c.in}, rpcl.Options{})
		var at *rpcl.Error
		if !errors.As(err, &at) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, wanted %s", c.in, err, c.want)
		}
	}
	if _, err := load(nil, rpcl.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// doubling is macros each of which is two of the one before.
func doubling(n int) string {
	s := "#define A0 1 +\n"
	for i := 1; i < n; i++ {
		s += fmt.Sprintf("#define A%d A%d A%d\n", i, i-1, i-1)
	}
	return s
}

// row is macros each of which is the next one.
func row(n int) (s string) {
	for i := range n {
		s += fmt.Sprintf("#define A%d A%d\n", i, i+1)
	}
	return s
}

func consts(f *rpcl.File) map[string]string {
	out := map[string]string{}
	for _, c := range f.Consts {
		if c.Text != nil {
			out[c.Name] = *c.Text
		} else {
			out[c.Name] = c.Num.String()
		}
	}
	return out
}

func TestPreprocessor(t *testing.T) {
	for _, c := range []struct {
		in   string
		want string // "NAME=value ..."
	}{
		{"#define A 1 + 2\nconst X = A * 2;", "X=5"},
		{"#define A B\n#define B A\nconst A = 1; const X = A;", "A=1 X=1"},
		{"#ifdef RPC_HDR\nconst X = 1;\n#else\nconst X = 2;\n#endif", "X=1"},
		{"#ifndef RPC_TBL\nconst X = 1;\n#endif", "X=1"},
		{"#if defined RPC_CLNT && defined(RPC_SVC) && !defined(RPC_TBL)\nconst X = 1;\n#endif", "X=1"},
		{"#if NOT_DEFINED\nconst X = 1;\n#elif 2 > 1 == 1\nconst X = 2;\n#elif 1\nconst X = 3;\n#else\nconst X = 4;\n#endif", "X=2"},
		{"#if 0\n#if 1\nconst X = 1;\n#else\nconst X = 2;\n#endif\n' \" unbalanced\n#else\nconst X = 3;\n#endif", "X=3"},
		{"#if 0\n#0x80000000\n#endif\nconst X = 1;", "X=1"},
		{"#if 0 && 1 / 0\n#else\nconst X = 1;\n#endif", "X=1"},
		{"#define GIVEN 3\n#undef GIVEN\n#ifndef GIVEN\nconst X = 1;\n#endif", "X=1"},
		{"#define F(x) ((x) + 1)\n#define G(x, y) F(x) * y\nconst X = G(F(2), 3);\nconst F = 5;", "X=12 F=5"},
		{"#define F() 4\n#define N(a, b) a ## b\n#define S(a) #a\nconst N(X, 1) = F(\n);\nconst Y = S(a b);", "X1=4 Y=a\x00b"},
		{"#define F(x) x\n#define E F\nconst X = E(7);", "X=7"},
		{"%#define PASSED 7\n%#define MORE PASSED + 1\nconst X = MORE;", "X=8"},
		{"%#ifdef SOMETHING_OF_C\n%#endif\nconst X = 1;\n%}", "X=1"},
		{"const X = -5; const Y = ~0 & 0xff; const Z = (3 | 4) ^ 1; const W = 7 % 4 << 2; const V = 0 ? 1 : 2;", "V=2 W=12 X=-5 Y=255 Z=6"},
		{"#define LONG 1 + \\\n 2\nconst X = LONG;", "X=3"},
		{"const X = 0xffffffffffffffff;", "X=18446744073709551615"},
		{"const X = TRUE; const Y = MAXNETNAMELEN;", "X=1 Y=255"},
		{"const X = GIVEN;", "X=42"},
		{"#include \"other.x\"\nconst X = OTHER;", "OTHER=9 X=9"},
		{"#include <far.x>\nconst X = FAR;", "FAR=8 X=8"},
		{"%#include <x/header.h>\nconst X = OF_HEADER;", "X=6"},
		{"const X = 1;\r\n#define A 2\r\nconst Y = A;\r\n", "X=1 Y=2"},
		{"const X = \"a // b /* c\"; // comment\n/* const Y = 2; */", "X=a // b /* c"},
		{"const X = P; program P { version V { void A(void) = 5; } = 2; } = 77; const Y = A + V;", "X=77 Y=7"},
	} {
		files := map[string]string{
			"in.x": c.in, "other.x": "const OTHER = 9;", "dir/far.x": "const FAR = 8;", "header.x": "const OF_HEADER = 6;",
		}
		f, err := load(files, rpcl.Options{Dirs: []string{"dir"}, Defines: map[string]string{"GIVEN": "42"}})
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		want := map[string]string{}
		for _, w := range strings.Fields(strings.ReplaceAll(c.want, " /", "\x00/")) {
			name, value, _ := strings.Cut(w, "=")
			want[name] = strings.ReplaceAll(value, "\x00", " ")
		}
		if strings.Contains(c.want, "//") {
			want = map[string]string{"X": "a // b /* c"}
		}
		if d := cmp.Diff(want, consts(f)); d != "" {
			t.Errorf("%q: %s", c.in, d)
		}
	}
}

// What rpcgen takes is taken, also where few would write it.
func TestTakenAsByRpcgen(t *testing.T) {
	for _, in := range []string{
		"typedef int a[0];", "struct a { opaque b[0]; int c[0]; };", "union u switch (int x) { case 0: opaque a[0]; default: void; };",
		"typedef int a<-1>; typedef string b<-1>; typedef opaque c<0>;",
		"typedef opaque a<64>; typedef opaque a<64>; struct s { a b; };",
		"struct a { int x; }; struct a { int x; }; enum b { C, D }; enum b { C, D };",
		"union u switch (int x) { case 1: void; }; union u switch (int x) { case 1: void; };",
		"const A = \"x\"; const A = \"x\"; const B = 1; const B = 01;",
		"program P { version V { void N(void) = 0; } = 1; } = 1; program P { version V { void N(void) = 0; } = 1; } = 1;",
		"union u switch (bool x) { case 2: void; };", "union u switch (unsigned char x) { case 256: int a; case -1: int b; };",
		"union u switch (hyper x) { case -1: void; case 0x7fffffffffffffff: int a; };",
		"union u switch (unsigned hyper x) { case 0xffffffffffffffff: int a; };",
		"typedef short n; union u switch (n x) { case 1: int x; default: void; };",
		"enum e { A }; union u switch (e x) { case 7: void; case A: int a; };",
		"union u switch (char c) { case 'a': int a; case '\"': int b; case '%': int d; case '\xe9': int e; default: void; };",
		"union u switch (int c) { case 'a': case 'b': int a; case 1: void; };",
		"struct a { hyper int x; unsigned hyper int y; long int z; unsigned short int w; };",
		"struct quadruple { int quadruple; }; typedef quadruple a<>;", "struct a { quadruple b; };",
		"program P { version V { void N(void nothing) = 0; void M() = 1; int O(int x *) = 2; } = 1; } = 1;",
		"const A = \"a\\\";\nconst B = 1;",
	} {
		if _, err := load(map[string]string{"in.x": in}, rpcl.Options{}); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// A case is the number that C makes of it, and is left out where the discriminant cannot be it.
func TestCases(t *testing.T) {
	for _, c := range []struct {
		discriminant, cases string
		want                []int64
	}{
		{"char c", "case 'a': case '\xe9': case 200: case -129:", []int64{97, -23}},
		{"unsigned char c", "case 'a': case 255: case 256: case -1:", []int64{97, 255}},
		{"short c", "case 32767: case 32768: case -32768:", []int64{32767, -32768}},
		{"unsigned short c", "case 65535: case 65536: case -1:", []int64{65535}},
		{"int c", "case 0xffffffff: case -2147483648: case 1:", []int64{-1, -2147483648, 1}},
		{"unsigned c", "case -1: case 0x100000001:", []int64{4294967295, 1}},
		{"hyper c", "case 0xffffffff: case -1:", []int64{4294967295, -1}},
		{"unsigned hyper c", "case -1: case 1:", []int64{-1, 1}},
		{"bool c", "case TRUE: case 2: case -1: case 0:", []int64{1, 0}},
		{"e c", "case B: case 5: case -1:", []int64{1, 5, -1}},
	} {
		in := "enum e { A, B }; union u switch (" + c.discriminant + ") { " + c.cases + " int x; default: void; };"
		f, err := load(map[string]string{"in.x": in}, rpcl.Options{})
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if d := cmp.Diff(c.want, f.Types[1].Arms[0].Numbers); d != "" {
			t.Errorf("%s: %s", in, d)
		}
	}
}

// Types of headers' files are known and not defined again. Other code defines those of Extern.
func TestImported(t *testing.T) {
	files := map[string]string{
		"in.x":    "%#include \"types.h\"\nstruct mine { theirs a; deep *b; said c; };",
		"types.x": "%#include <deep.h>\n%#include \"in.h\"\nstruct theirs { int x; };",
		"deep.x":  "typedef opaque deep<4>;",
	}
	f, err := load(files, rpcl.Options{Extern: []string{"said"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Types) != 1 || f.Types[0].Name != "mine" {
		t.Fatalf("%d types are the file's own", len(f.Types))
	}
	m := f.Types[0].Members
	if !m[0].Def.Imported || m[1].Def.Name != "deep" || m[2].Def.Form != rpcl.External {
		t.Errorf("the members are of %+v, %+v, %+v", m[0].Def, m[1].Def, m[2].Def)
	}
}

func TestTypes(t *testing.T) {
	const in = `
		typedef struct { int x; struct { hyper y; } in; } outer;
		struct list { int v; list *next; };
		typedef struct list *ptr;
		struct other { int v; ptr next; };
		struct back { ptr p; back *prev; int v; };
		struct tree { tree kids<>; };
		union u switch (int n) { case -1: opaque data[5]; default: void; };
		typedef u us<9>;
		typedef unsigned hyper uint64;
		struct own { uint64 a; netobj b; netbuf c; };`
	f, err := load(map[string]string{"in.x": in}, rpcl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Least           int
		List, Recursive bool
	}
	got := map[string]row{}
	for _, d := range f.Types {
		got[d.Name] = row{d.Least, d.List, d.Recursive}
	}
	want := map[string]row{
		"outer": {12, false, false}, "outer_in": {8, false, false}, "list": {8, true, false}, "ptr": {4, false, false},
		"other": {8, false, false}, "back": {12, false, true}, "tree": {4, false, true}, "u": {4, false, false},
		"us": {4, false, false}, "uint64": {8, false, false}, "own": {20, false, false}, "netbuf": {8, false, false},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A file that is long in whatever way takes time in proportion.
func TestLong(t *testing.T) {
	const n = 8000
	var types, chain, ifs, consts strings.Builder
	for i := range n {
		fmt.Fprintf(&types, "struct s%d { s%d *a; int b; };\n", i, (i+1)%n)
		fmt.Fprintf(&chain, "struct s%d { s%d a; };\n", i, i+1)
		fmt.Fprintf(&ifs, "#define M%d %d\n#if M%d\n#endif\n", i, i, i)
		fmt.Fprintf(&consts, "const C%d = C%d + 1;\n", i, i+1)
	}
	fmt.Fprintf(&chain, "struct s%d { int a; };\n", n)
	fmt.Fprintf(&consts, "const C%d = 1;\n", n)
	for _, in := range []string{types.String(), chain.String(), ifs.String(), consts.String(), "const A = 1" + strings.Repeat(" + 1", n) + ";"} {
		f, err := load(map[string]string{"in.x": in}, rpcl.Options{})
		if err != nil {
			t.Fatalf("%.60q: %v", in, err)
		}
		if len(f.Types) == n && !f.Types[n/2].Recursive {
			t.Error("types that lead to each other are not known to be recursive")
		}
	}
}

// FuzzLoad: whatever is in a file, it is read or refused with a place in it.
func FuzzLoad(f *testing.F) {
	for _, path := range []string{"../rpcgo/testdata/dialect.x", "../everyxdr/every.x"} {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
		for part := range strings.SplitSeq(string(b), "\n\n") {
			f.Add(part)
		}
	}
	f.Fuzz(func(t *testing.T, in string) {
		_, err := load(map[string]string{"in.x": in, "other.x": "struct other { int x; };"}, rpcl.Options{})
		var at *rpcl.Error
		if err != nil && (!errors.As(err, &at) || at.Position.Line < 0 || at.Message == "") {
			t.Fatalf("%q: %v", in, err)
		}
	})
}
