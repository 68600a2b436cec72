package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const manualMap = "manual-map.md"

// rows are those of all tables of the page whose first cell matches first; a row
// is its cells.
func rows(t *testing.T, first string) [][]string {
	t.Helper()
	re := regexp.MustCompile("^(?:" + first + ")$")
	var out [][]string
	for line := range strings.Lines(read(t, manualMap)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if re.MatchString(cells[0]) {
			out = append(out, cells)
		}
	}
	return out
}

var quoted = regexp.MustCompile("`([^`]+)`")

// codes are what a cell has in backquotes.
func codes(cell string) []string {
	var out []string
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

// parsed gives the Go files of a folder that are not tests.
func parsed(t *testing.T, folder string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no Go in %s: %v", folder, err)
	}
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// public are the exported names of package vmmc, and of package manual with that before them.
func public(t *testing.T) map[string]string {
	t.Helper()
	all := declared(parsed(t, ".."))
	for name, doc := range declared(parsed(t, "../manual")) {
		all["manual."+name] = doc
	}
	return all
}

// declared are the names of a package, methods and fields with their
// type before them, and the comments on them.
func declared(files []*ast.File) map[string]string {
	all := map[string]string{}
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d.Recv.List[0].Type) + "." + name
				}
				all[name] = d.Doc.Text()
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						all[s.Name.Name] = d.Doc.Text() + s.Doc.Text()
						if st, ok := s.Type.(*ast.StructType); ok {
							for _, field := range st.Fields.List {
								for _, n := range field.Names {
									all[s.Name.Name+"."+n.Name] = field.Doc.Text() + field.Comment.Text()
								}
							}
						}
					case *ast.ValueSpec:
						for _, n := range s.Names {
							all[n.Name] = s.Doc.Text() + s.Comment.Text()
						}
					}
				}
			}
		}
	}
	return all
}

func receiver(e ast.Expr) string {
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	switch generic := e.(type) {
	case *ast.IndexExpr:
		e = generic.X
	case *ast.IndexListExpr:
		e = generic.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// values are what a package's constants are set to: a number, or the name of
// another package's constant.
func values(files []*ast.File) map[string]string {
	all := map[string]string{}
	for _, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				for i, n := range v.Names {
					if i >= len(v.Values) {
						continue
					}
					value := v.Values[i]
					if c, ok := value.(*ast.CallExpr); ok { // a conversion
						value = c.Args[0]
					}
					switch x := value.(type) {
					case *ast.BasicLit:
						all[n.Name] = x.Value
					case *ast.UnaryExpr:
						if b, ok := x.X.(*ast.BasicLit); ok {
							all[n.Name] = x.Op.String() + b.Value
						}
					case *ast.SelectorExpr:
						all[n.Name] = x.Sel.Name
					}
				}
			}
		}
	}
	return all
}

// The calls of the manual's reference, in its order: the first has page 26, each
// one more. vmmc_Error has no page of its own.
const calls = `AllHosts AsyncStatus BlockNotifications ClearDataEnd DataEnd EndRedir EqualNodes
ErrorStr ExportRecvBuf GetData GetDataAsync ImportRecvBuf ImportRecvBufAsync
ImportRecvBufStatus MyHostName MyNode MyPid NameToNode NodeToName PageSize Parent PostRedir
SendData SendDataAsync SendDataAsyncNotify SendDataNotify SessionHosts SetDebugLevel Spawn
UnblockNotifications UnexportRecvBuf UnimportRecvBuf Version WordSize Error`

func TestCallsOfTheManual(t *testing.T) {
	names := strings.Fields(calls)
	if len(names) != 35 {
		t.Fatalf("%d calls", len(names))
	}
	docs := public(t)
	table := rows(t, "`vmmc_[A-Z]\\w*`")
	table = slices.DeleteFunc(table, func(r []string) bool { return r[0] == "`vmmc_Success`" })
	if len(table) != len(names) {
		t.Errorf("the table has %d calls, want %d", len(table), len(names))
	}
	for i, name := range names {
		call := "vmmc_" + name
		at := slices.IndexFunc(table, func(r []string) bool { return r[0] == "`"+call+"`" })
		if at < 0 || len(table[at]) != 5 {
			t.Errorf("%s has no row of five cells", call)
			continue
		}
		row := table[at]
		page := 26 + i
		if name == "Error" {
			page = 24
		}
		if row[2] != strconv.Itoa(page) {
			t.Errorf("%s: page %s, want %d", call, row[2], page)
		}
		forms := codes(row[1])
		if len(forms) == 0 {
			t.Errorf("%s has no Go form", call)
		}
		for _, form := range forms {
			doc, ok := docs[form]
			if !ok {
				t.Errorf("%s: the package has no %s", call, form)
			} else if !regexp.MustCompile(`\b` + call + `\b`).MatchString(doc) {
				t.Errorf("the comment of %s does not say %s:\n%s", form, call, doc)
			}
		}
		if !strings.Contains(row[3], "`Test") {
			t.Errorf("%s names no test", call)
		}
	}
}

// What stands in backquotes in the tables, but for their first column, is there.
var (
	goName  = regexp.MustCompile(`^(manual\.)?[A-Z]\w*(\.[A-Z]\w*)?$`)
	isTest  = regexp.MustCompile(`^(Test|Example|Fuzz|Benchmark)[A-Z]`)
	inTree  = regexp.MustCompile(`^[\w./-]+\.(go|txtar)$`)
	grouped = regexp.MustCompile("((?:`(?:Test|Example)\\w+`(?:, )?)+) \\(`([\\w./]+)`\\)")
)

func TestNamesInTheManualMap(t *testing.T) {
	names := public(t)
	tests := 0
	for _, row := range rows(t, ".*") {
		text := strings.Join(row[1:], " | ")
		placed := map[string]bool{}
		for _, g := range grouped.FindAllStringSubmatch(text, -1) {
			code := read(t, filepath.Join("..", g[2]))
			for _, name := range codes(g[1]) {
				tests++
				placed[name] = true
				if !strings.Contains(code, "\nfunc "+name+"(") {
					t.Errorf("%s: %s is not in %s", row[0], name, g[2])
				}
			}
		}
		for _, name := range codes(text) {
			switch {
			case isTest.MatchString(name):
				if !placed[name] {
					t.Errorf("%s: it is not said where %s is", row[0], name)
				}
			case inTree.MatchString(name):
				read(t, filepath.Join("..", name))
			case goName.MatchString(name):
				if _, ok := names[name]; !ok {
					t.Errorf("%s: the package has no %s", row[0], name)
				}
			}
		}
	}
	if tests < 100 {
		t.Errorf("only %d tests were found on the page", tests)
	}
}

// The manual's names on pages 23, 24 and 34, and those of the SBL text.
func TestTypesAndFlagsOfTheManual(t *testing.T) {
	var first []string
	for _, row := range rows(t, ".*`.*") {
		first = append(first, codes(row[0])...)
	}
	for _, name := range strings.Fields(`
		uint ulong uint32 vmmc_callback_t vmmc_exphandle_t vmmc_imphandle_t vmmc_perm_t
		vmmc_node_t vmmc_pid_t vmmc_async_handle_t vmmc_result_t
		BUF_WRITE_ONLY BUF_READ_ONLY BUF_READWRITE BUF_REDIRECTABLE BUF_GLOBAL_SPACE
		SBL_ExportRecvBuf SBL_ImportRecvBuf SBL_ImportRecvBufReq SBL_SendMesg SBL_SendMsg
		SBL_SendMsgWithNotify SBL_Map SBL_BlockNotifications SBL_UnblockNotifications
		SBL_UnimportRecvBuf SBL_UnexportRecvBuf SBL_Error SBL_Hosts SBL_PageSize SBL_WordSize`) {
		if !slices.ContainsFunc(first, func(s string) bool { return strings.Fields(s)[0] == name }) {
			t.Errorf("no table has a row for %s", name)
		}
	}
}

// The return values of the manual, in the order of their numbers.
const results = `Success BadAlignment BufAlreadyExists BadIbufState BadRbufState
BadProxyExtension BadProxyAddr BadSize BadArg NotImplemented UnblockedNotifications
BlockedNotifications NoPhysDestSpace NoVirtDestSpace NoMem NoSuchNode NoSuchProcess
NotInHandler OverlappedBufs InProgress NoSuchError NoParent BadAsyncHandle StateHandle`

func TestReturnValuesOfTheManual(t *testing.T) {
	consts, numbers := values(parsed(t, "..")), values(parsed(t, "../internal/code"))
	for name, number := range values(parsed(t, "../manual")) {
		consts["manual."+name], numbers[number] = number, number
	}
	check := func(row []string, number, name string) {
		t.Helper()
		if got := numbers[consts[name]]; got == "" || got != number {
			t.Errorf("%s: the page says %s = %s, the package %q", row[0], name, number, got)
		}
	}
	named := map[string]bool{}
	names := strings.Fields(results)
	table := rows(t, "`vmmc_Success`|`vmmcErr_\\w+`")
	if len(table) != len(names) {
		t.Errorf("%d of the manual's values, want %d", len(table), len(names))
	}
	for i, row := range table {
		want := "`vmmcErr_" + names[min(i, len(names)-1)] + "`"
		if i == 0 {
			want = "`vmmc_Success`"
		}
		if len(row) != 5 || row[0] != want || row[1] != strconv.Itoa(-i) {
			t.Errorf("row %d is %v, want %s with number %d", i, row, want, -i)
			continue
		}
		name := codes(row[2])[0]
		named[name] = true
		check(row, row[1], name)
	}
	for _, row := range rows(t, "`Err\\w+`") {
		name := codes(row[0])[0]
		named[name] = true
		check(row, row[1], name)
	}
	for name := range consts {
		if strings.HasPrefix(strings.TrimPrefix(name, "manual."), "Err") && !named[name] {
			t.Errorf("%s is not on the page", name)
		}
	}
}

func TestRowsOfTheDisagreements(t *testing.T) {
	table := rows(t, `\d+`)
	for i, row := range table {
		if len(row) != 4 || row[0] != strconv.Itoa(i+1) {
			t.Fatalf("row %d of the table is %v", i+1, row)
		}
		shown := row[3] != ""
		switch row[1] {
		case "holds", "in part", "differs", "decided otherwise":
			if !shown {
				t.Errorf("row %s: nothing shows it", row[0])
			}
		case "not built":
			if shown {
				t.Errorf("row %s: it is not built, and %s shows it", row[0], row[3])
			}
		default:
			t.Errorf("row %s stands %q", row[0], row[1])
		}
		if len(row[2]) < 20 {
			t.Errorf("row %s says nothing: %q", row[0], row[2])
		}
	}
	if len(table) != 70 {
		t.Errorf("%d rows, want 70", len(table))
	}
}
