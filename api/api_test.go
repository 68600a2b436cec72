// Package api_test holds the exported API of the public packages against v1.txt.
package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

var update = flag.Bool("update", false, "write the lists anew instead of comparing with them")

const (
	module    = "github.com/vmmc-go/vmmc"
	listFile  = "v1.txt"
	updateTip = "If it is meant, and CHANGELOG.md has the old and the new form, run\n\tgo test ./api -update"
)

// frozen are the packages whose API is in v1.txt.
var frozen = []string{
	"",
	"/broadcast", "/call", "/channel", "/group", "/lock", "/manual", "/mpi", "/node", "/queue", "/table", "/via", "/view", "/vmmctest", "/vrpc",
	"/vrpc/portmap", "/xdr",
}

// free are the trees whose packages users do not import: they have no promise.
var free = []string{"/c/", "/examples/", "/integration/", "/proto/", "/samples/"}

// listed is a package as `go list` describes it.
type listed struct {
	ImportPath, Name, Dir, Export string
	GoFiles, XTestGoFiles         []string
}

var packages = sync.OnceValues(func() (map[string]*listed, error) {
	// The compiler's export data has exact types. Only examples import structs.
	args := []string{"-deps", "-export", "structs"}
	for _, name := range frozen {
		args = append(args, module+name)
	}
	return list(args...)
})

// list asks the go command for packages.
func list(args ...string) (map[string]*listed, error) {
	c := exec.Command("go", append([]string{"list", "-json=ImportPath,Name,Dir,Export,GoFiles,XTestGoFiles"}, args...)...)
	c.Dir = ".."
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, &stderr)
	}
	all := map[string]*listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(listed)
		if err := d.Decode(p); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
}

// load gives the frozen packages with all that they import, and an importer that reads what the
// compiler exported of them.
func load(t *testing.T) (map[string]*listed, types.Importer) {
	t.Helper()
	requireGo(t)
	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	return all, importer.ForCompiler(token.NewFileSet(), "gc", func(name string) (io.ReadCloser, error) {
		if p := all[name]; p != nil && p.Export != "" {
			return os.Open(p.Export)
		}
		return nil, fmt.Errorf("no export data of %s", name)
	})
}

func requireGo(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("go")
	testutil.Require(t, err == nil, "there is no go command")
}

// Every package that users can import is frozen, or is listed as one that they do not import.
func TestPublicPackagesAreFrozen(t *testing.T) {
	requireGo(t)
	all, err := list("./...")
	if err != nil {
		t.Fatal(err)
	}
	for full, p := range all {
		name, ours := strings.CutPrefix(full, module)
		internal := strings.Contains(name+"/", "/internal/")
		if !ours || internal || p.Name == "main" || len(p.GoFiles) == 0 || slices.Contains(frozen, name) {
			continue
		}
		if !slices.ContainsFunc(free, func(f string) bool { return strings.HasPrefix(name+"/", f) }) {
			t.Errorf("%s is public, and neither frozen nor free: choose", full)
		}
	}
}

// The exported API is the committed one. Lines that end in "experimental" may change in any
// release; the others are the promise of version 1.
func TestFrozenAPI(t *testing.T) {
	all, imp := load(t)
	var got []string
	for _, name := range frozen {
		got = append(got, describe(t, all[module+name], imp)...)
	}
	compare(t, listFile, got, "the exported API has changed")
}

// compare holds sorted lines against a committed file, or with -update writes it.
func compare(t *testing.T, file string, got []string, what string) {
	t.Helper()
	slices.Sort(got)
	got = slices.Compact(got)
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(append(got, ""), "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	var diff strings.Builder
	for _, l := range want {
		if _, found := slices.BinarySearch(got, l); !found && l != "" {
			diff.WriteString("\n- " + l)
		}
	}
	for _, l := range got {
		if !slices.Contains(want, l) {
			diff.WriteString("\n+ " + l)
		}
	}
	switch {
	case diff.Len() > 0:
		t.Errorf("api/%s: %s:%s\n%s", file, what, &diff, updateTip)
	case !slices.IsSorted(want):
		t.Errorf("api/%s is not sorted: run\n\tgo test ./api -update", file)
	}
}

// Every exported name is in an Example of a frozen package, but for those of unexampled.txt, which
// only shrinks.
func TestExamples(t *testing.T) {
	all, imp := load(t)
	used := map[types.Object]bool{}
	for _, name := range frozen {
		examples(t, all[module+name], imp, used)
	}
	var missing []string
	for _, name := range frozen {
		pkg, err := imp.Import(module + name)
		if err != nil {
			t.Fatal(err)
		}
		missing = append(missing, unused(pkg, used)...)
	}
	const file = "unexampled.txt"
	if *update {
		b, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		before := strings.Split(string(b), "\n")
		for _, l := range missing {
			if err == nil && !slices.Contains(before, l) {
				t.Errorf("%s is in no Example: write one", l)
			}
		}
	}
	compare(t, file, missing, "-: it is in an Example now; +: it is in none")
}

// examples notes the objects that a package's example files use.
func examples(t *testing.T, p *listed, imp types.Importer, used map[types.Object]bool) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.XTestGoFiles {
		if !strings.HasPrefix(name, "example") {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	c := types.Config{Importer: imp, Error: func(err error) { t.Errorf("an example uses what is not of the standard library or public: %v", err) }}
	_, _ = c.Check(p.ImportPath+"_test", fset, files, info)
	for _, o := range info.Uses {
		if f, ok := o.(*types.Func); ok {
			o = f.Origin()
		}
		used[o] = true
	}
	for _, v := range info.Types { // a type is shown by its values
		typ := v.Type
		if p, ok := typ.(*types.Pointer); ok {
			typ = p.Elem()
		}
		if n, ok := typ.(*types.Named); ok {
			used[n.Obj()] = true
		}
	}
}

// implicit are methods that other packages call.
var implicit = []string{"As", "Error", "Is", "MarshalText", "String", "UnmarshalText", "Unwrap"}

// unused are the exported names of a package that are not used.
func unused(pkg *types.Package, used map[types.Object]bool) (names []string) {
	note := func(name string, o types.Object) {
		if o.Exported() && !used[o] {
			names = append(names, path.Base(module)+strings.TrimPrefix(pkg.Path(), module)+"."+name)
		}
	}
	for _, name := range pkg.Scope().Names() {
		o := pkg.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		note(name, o)
		n, ok := o.Type().(*types.Named)
		if _, typ := o.(*types.TypeName); !ok || !typ {
			continue
		}
		for m := range n.Methods() {
			if !slices.Contains(implicit, m.Name()) {
				note(name+"."+m.Name(), m)
			}
		}
		switch u := n.Underlying().(type) {
		case *types.Struct:
			for f := range u.Fields() {
				note(name+"."+f.Name(), f)
			}
		case *types.Interface:
			for m := range u.ExplicitMethods() {
				note(name+"."+m.Name(), m)
			}
		}
	}
	return names
}

// describe gives one line for each exported name of a package.
func describe(t *testing.T, p *listed, imp types.Importer) (lines []string) {
	t.Helper()
	pkg, err := imp.Import(p.ImportPath)
	if err != nil {
		t.Fatal(err)
	}
	d := describer{t: t, pkg: pkg, experimental: experimental(t, p)}
	for _, name := range pkg.Scope().Names() {
		if o := pkg.Scope().Lookup(name); o.Exported() {
			d.object(o)
		}
	}
	return d.lines
}

type describer struct {
	t            *testing.T
	pkg          *types.Package
	experimental map[string]bool
	lines        []string
}

// add adds a line about name, which is a name of the package, or Type.Member.
func (d *describer) add(name, format string, args ...any) {
	line := fmt.Sprintf("pkg %s, ", path.Base(module)+strings.TrimPrefix(d.pkg.Path(), module)) + fmt.Sprintf(format, args...)
	owner, _, _ := strings.Cut(name, ".")
	if d.experimental[name] || d.experimental[owner] {
		line += " // experimental"
	}
	d.lines = append(d.lines, line)
}

func (d *describer) object(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		if o.Name() == "Release" { // its value changes with each release
			d.add(o.Name(), "const %s %s", o.Name(), d.typ(o.Type()))
			return
		}
		d.add(o.Name(), "const %s %s = %s", o.Name(), d.typ(o.Type()), o.Val().ExactString())
	case *types.Var:
		d.add(o.Name(), "var %s %s", o.Name(), d.typ(o.Type()))
	case *types.Func:
		d.add(o.Name(), "func %s%s", o.Name(), d.signature(o.Signature()))
	case *types.TypeName:
		d.named(o)
	}
}

func (d *describer) named(o *types.TypeName) {
	name := o.Name()
	if o.IsAlias() {
		d.add(name, "type %s = %s", name, d.typ(types.Unalias(o.Type())))
		return
	}
	n := o.Type().(*types.Named)
	params := d.typeParams(n.TypeParams())
	switch u := n.Underlying().(type) {
	case *types.Struct:
		comparable := ""
		if types.Comparable(n) {
			comparable = ", comparable"
		}
		d.add(name, "type %s%s struct%s", name, params, comparable)
		for f := range u.Fields() {
			if f.Exported() {
				d.add(name+"."+f.Name(), "field %s.%s %s", name, f.Name(), d.typ(f.Type()))
			}
		}
	case *types.Interface:
		closed := ""
		for m := range u.Methods() {
			if !m.Exported() {
				closed = " with unexported methods"
				continue
			}
			d.add(name+"."+m.Name(), "method %s.%s%s", name, m.Name(), d.signature(m.Signature()))
		}
		d.add(name, "type %s%s interface%s", name, params, closed)
		return
	default:
		d.add(name, "type %s%s %s", name, params, d.typ(u))
	}
	// The pointer's methods are all, those of embedded fields included.
	for s := range types.NewMethodSet(types.NewPointer(n)).Methods() {
		m := s.Obj().(*types.Func)
		if !m.Exported() {
			continue
		}
		receiver := "*" + name
		if types.NewMethodSet(n).Lookup(d.pkg, m.Name()) != nil {
			receiver = name
		}
		d.add(name+"."+m.Name(), "method (%s) %s%s", receiver, m.Name(), d.signature(m.Signature()))
	}
}

func (d *describer) typ(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == d.pkg {
			return ""
		}
		if strings.Contains(p.Path()+"/", "/internal/") {
			d.t.Errorf("%s shows a type of %s, which users cannot import", d.pkg.Path(), p.Path())
		}
		return p.Name()
	})
}

// signature is without the parameters' names, which promise nothing.
func (d *describer) signature(s *types.Signature) string {
	var in, out []string
	for i := range s.Params().Len() {
		t := s.Params().At(i).Type()
		if e, ok := t.(*types.Slice); ok && s.Variadic() && i == s.Params().Len()-1 {
			in = append(in, "..."+d.typ(e.Elem()))
		} else {
			in = append(in, d.typ(t))
		}
	}
	for v := range s.Results().Variables() {
		out = append(out, d.typ(v.Type()))
	}
	text := d.typeParams(s.TypeParams()) + "(" + strings.Join(in, ", ") + ")"
	switch len(out) {
	case 0:
		return text
	case 1:
		return text + " " + out[0]
	}
	return text + " (" + strings.Join(out, ", ") + ")"
}

func (d *describer) typeParams(l *types.TypeParamList) string {
	if l.Len() == 0 {
		return ""
	}
	var all []string
	for p := range l.TypeParams() {
		all = append(all, p.Obj().Name()+" "+d.typ(p.Constraint()))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// experimental gives the names whose doc comment has a paragraph that begins with "Experimental:".
func experimental(t *testing.T, p *listed) map[string]bool {
	t.Helper()
	marked := map[string]bool{}
	mark := func(name string, docs ...*ast.CommentGroup) {
		for _, doc := range docs {
			if text := doc.Text(); strings.HasPrefix(text, "Experimental:") || strings.Contains(text, "\n\nExperimental:") {
				marked[name] = true
			}
		}
	}
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				name := decl.Name.Name
				if decl.Recv != nil {
					name = receiver(decl.Recv.List[0].Type) + "." + name
				}
				mark(name, decl.Doc)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						mark(spec.Name.Name, decl.Doc, spec.Doc)
						if s, ok := spec.Type.(*ast.StructType); ok {
							for _, field := range s.Fields.List {
								for _, n := range field.Names {
									mark(spec.Name.Name+"."+n.Name, field.Doc)
								}
							}
						}
					case *ast.ValueSpec:
						for _, n := range spec.Names {
							mark(n.Name, decl.Doc, spec.Doc)
						}
					}
				}
			}
		}
	}
	return marked
}

// receiver is the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
