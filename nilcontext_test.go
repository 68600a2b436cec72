package vmmc_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// A call that is given no context fails with [vmmc.ErrBadArg], also where it would not have looked
// at its context. The table has every exported call of the package with a context.
func TestNilContext(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			all := nilContexts(t, way)
			judge(t, all)
			named := map[string]bool{"Outcome.Wait": true} // TestOutcomeOfACancelledAtomic
			for _, c := range all {
				named[c.call] = true
				if err := c.do(); err == nil || !strings.Contains(err.Error(), "the context is nil") {
					t.Errorf("%s: %v does not say that the context is nil", c.call, err)
				}
			}
			for _, name := range withContext(t) {
				if !named[name] {
					t.Errorf("%s takes a context, and the table does not have it", name)
				}
			}
		})
	}
}

func nilContexts(t *testing.T, way string) (all []bad) {
	s := exported(t, way)
	red, _ := redirected(t, way, size)
	wait, err := s.exp.Word(0)
	if err != nil {
		t.Fatal(err)
	}
	own, err := s.a.Export(60, alloc(t, s.a, size))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := own.Word(0)
	if err != nil {
		t.Fatal(err)
	}
	request, err := s.im.GetAsync(t.Context(), make([]byte, 4), 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.im.Bind(alloc(t, s.a, size), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	pending := s.a.ImportAsync(t.Context(), s.b.Node(), s.b.PID(), 1<<30)
	t.Cleanup(pending.Cancel)
	var none context.Context
	add := func(name string, f func() error) {
		all = append(all, bad{name, "no context", f, vmmc.ErrBadArg})
	}
	w, at := word, s.im.Addr()
	add("Open", func() error { _, err := vmmc.Open(none); return err })
	add("Process.Import", func() error { _, err := s.a.Import(none, s.b.Node(), s.b.PID(), 1); return err })
	add("Process.ImportAsync", func() error {
		_, err := s.a.ImportAsync(none, s.b.Node(), s.b.PID(), 1).Status()
		return err
	})
	add("Process.Spawn", func() error { _, err := s.a.Spawn(none, s.a.Node(), "/bin/true"); return err })
	add("Process.WaitUntil", func() error { return s.a.WaitUntil(none, func() bool { return false }) })
	add("Process.WaitAny", func() error { _, err := s.b.WaitAny(none, vmmc.Watch{Word: wait, Old: wait.Load()}); return err })
	add("Process.Send", func() error { return s.a.Send(none, w, at) })
	add("Process.SendNotify", func() error { return s.a.SendNotify(none, w, at) })
	add("Process.Get", func() error { return s.a.Get(none, make([]byte, 4), at) })
	add("Process.SendAsync", func() error { _, err := s.a.SendAsync(none, w, at); return err })
	add("Process.SendNotifyAsync", func() error { _, err := s.a.SendNotifyAsync(none, w, at); return err })
	add("Process.GetAsync", func() error { _, err := s.a.GetAsync(none, make([]byte, 4), at); return err })
	add("Import.Send", func() error { return s.im.Send(none, w, 0) })
	add("Import.Send", func() error { return s.im.Send(none, make([]byte, size), 0) })
	add("Import.SendNotify", func() error { return s.im.SendNotify(none, w, 0) })
	add("Import.SendV", func() error { return s.im.SendV(none, 0, w) })
	add("Import.Get", func() error { return s.im.Get(none, make([]byte, 4), 0) })
	add("Import.SendAsync", func() error { _, err := s.im.SendAsync(none, w, 0); return err })
	add("Import.SendNotifyAsync", func() error { _, err := s.im.SendNotifyAsync(none, w, 0); return err })
	add("Import.GetAsync", func() error { _, err := s.im.GetAsync(none, make([]byte, 4), 0); return err })
	add("Import.Fence", func() error { return s.im.Fence(none) })
	add("Import.WriteAtContext", func() error { _, err := s.im.WriteAtContext(none, w, 0); return err })
	add("Import.ReadAtContext", func() error { _, err := s.im.ReadAtContext(none, make([]byte, 4), 0); return err })
	add("Import.FetchAdd32", func() error { _, err := s.im.FetchAdd32(none, 0, 1); return err })
	add("Import.FetchAdd64", func() error { _, err := s.im.FetchAdd64(none, 0, 1); return err })
	add("Import.Swap32", func() error { _, err := s.im.Swap32(none, 0, 1); return err })
	add("Import.Swap64", func() error { _, err := s.im.Swap64(none, 0, 1); return err })
	add("Import.CompareAndSwap32", func() error { _, _, err := s.im.CompareAndSwap32(none, 0, 0, 1); return err })
	add("Import.CompareAndSwap64", func() error { _, _, err := s.im.CompareAndSwap64(none, 0, 0, 1); return err })
	add("Import.WaitWord", func() error { _, err := s.im.WaitWord(none, answer, answer.Load()); return err })
	add("Import.Rejoin", func() error { _, err := s.im.Rejoin(none); return err })
	add("Import.RejoinAt", func() error { _, err := s.im.RejoinAt(none, s.b.ID()); return err })
	add("ImportRequest.Wait", func() error { _, err := pending.Wait(none); return err })
	add("Request.Wait", func() error { return request.Wait(none) })
	add("Word.Wait", func() error { _, err := wait.Wait(none, wait.Load()); return err })
	add("Export.WaitNotified", func() error { _, err := s.exp.WaitNotified(none, s.exp.Notified()); return err })
	add("Export.EndRedir", func() error { _, _, err := red.exp.EndRedir(none); return err })
	add("Binding.Flush", func() error { return b.Flush(none) })
	add("Binding.Store", func() error { return b.Store(none, 0, 1) })
	return all
}

// withContext are the exported calls of the package that take a context.
func withContext(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || len(f.Type.Params.List) == 0 {
				continue
			}
			of, ok := f.Type.Params.List[0].Type.(*ast.SelectorExpr)
			if !ok || of.Sel.Name != "Context" {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				recv := typeName(f.Recv.List[0].Type)
				if !ast.IsExported(recv) {
					continue
				}
				name = recv + "." + name
			}
			names = append(names, name)
		}
	}
	if len(names) < 35 {
		t.Fatalf("only %d calls were found: %v", len(names), names)
	}
	return names
}
