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
	"github.com/vmmc-go/vmmc/manual"
)

// A call that is given no context fails with [vmmc.ErrBadArg], also where it would not have looked
// at its context. The table has every exported call of the package, and of package manual, with a
// context.
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
	for _, c := range contextCalls(t, s, red.exp, "") {
		all = append(all, bad{c.name, "no context", func() error { return c.do(nil) }, vmmc.ErrBadArg})
	}
	return all
}

// contextCall is a call of the package with a context.
type contextCall struct {
	name string
	do   func(ctx context.Context) error
}

// contextCalls are all those calls but Outcome.Wait: those on s.im, whose
// exporter need not answer, those of s.a, and Open at a socket. red is redirectable. Each may be
// made several times, and while others are made.
func contextCalls(t *testing.T, s *buffers, red *vmmc.Export, socket string) (all []contextCall) {
	t.Helper()
	own, err := s.a.Export(60, alloc(t, s.a, size))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := own.Word(0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	request, err := s.im.GetAsync(ctx, make([]byte, 4), 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.im.Bind(alloc(t, s.a, size), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	pending := manual.ImportAsync(t.Context(), s.a, s.a.Node(), s.a.PID(), 1<<30)
	t.Cleanup(pending.Cancel)
	exporter := s.im.Exporter()
	add := func(name string, f func(ctx context.Context) error) { all = append(all, contextCall{name, f}) }
	w := word
	space, at := inDestSpace(t, s.im)
	add("Open", func(ctx context.Context) error {
		p, err := vmmc.Open(ctx, vmmc.WithSocket(socket))
		if err == nil {
			err = p.Close()
		}
		return err
	})
	add("Process.Import", func(ctx context.Context) error { _, err := s.a.Import(ctx, exporter.Node, exporter.PID, 1); return err })
	add("ImportAsync", func(ctx context.Context) error {
		_, err := manual.ImportAsync(ctx, s.a, exporter.Node, exporter.PID, 1).Status()
		return err
	})
	add("Process.Publish", func(ctx context.Context) error {
		e, err := s.a.Publish(ctx, "published", make([]byte, size))
		if err == nil {
			err = e.Close()
		}
		return err
	})
	add("Process.ImportName", func(ctx context.Context) error { _, err := s.a.ImportName(ctx, "never published"); return err })
	add("Process.Names", func(ctx context.Context) (err error) {
		for _, err = range s.a.Names(ctx, "*") {
		}
		return err
	})
	add("Export.PublishAs", func(ctx context.Context) error { return own.PublishAs(ctx, "own") })
	add("Export.Unpublish", func(ctx context.Context) error { return own.Unpublish(ctx, "own") })
	add("Process.Spawn", func(ctx context.Context) error { _, err := s.a.Spawn(ctx, s.a.Node(), "/bin/true"); return err })
	add("Process.WaitUntil", func(ctx context.Context) error { return s.a.WaitUntil(ctx, func() bool { return false }) })
	add("Process.WaitAny", func(ctx context.Context) error {
		_, err := s.a.WaitAny(ctx, vmmc.Watch{Word: answer, Old: answer.Load()})
		return err
	})
	add("DestSpace.Send", func(ctx context.Context) error { return space.Send(ctx, w, at) })
	add("DestSpace.SendNotify", func(ctx context.Context) error { return space.SendNotify(ctx, w, at) })
	add("DestSpace.Get", func(ctx context.Context) error { return space.Get(ctx, make([]byte, 4), at) })
	add("DestSpace.SendAsync", func(ctx context.Context) error { _, err := space.SendAsync(ctx, w, at); return err })
	add("DestSpace.SendNotifyAsync", func(ctx context.Context) error { _, err := space.SendNotifyAsync(ctx, w, at); return err })
	add("DestSpace.GetAsync", func(ctx context.Context) error { _, err := space.GetAsync(ctx, make([]byte, 4), at); return err })
	add("Import.Send", func(ctx context.Context) error { return s.im.Send(ctx, w, 0) })
	add("Import.Send", func(ctx context.Context) error { return s.im.Send(ctx, make([]byte, size), 0) })
	add("Import.SendNotify", func(ctx context.Context) error { return s.im.SendNotify(ctx, w, 0) })
	add("Import.SendV", func(ctx context.Context) error { return s.im.SendV(ctx, [][]byte{w}, 0) })
	add("Import.SendSignal", func(ctx context.Context) error { return s.im.SendSignal(ctx, w, 0, 1, 8) })
	add("Import.Get", func(ctx context.Context) error { return s.im.Get(ctx, make([]byte, 4), 0) })
	add("Import.SendAsync", func(ctx context.Context) error { _, err := s.im.SendAsync(ctx, w, 0); return err })
	add("Import.SendNotifyAsync", func(ctx context.Context) error { _, err := s.im.SendNotifyAsync(ctx, w, 0); return err })
	add("Import.GetAsync", func(ctx context.Context) error { _, err := s.im.GetAsync(ctx, make([]byte, 4), 0); return err })
	add("Process.Fence", func(ctx context.Context) error { return s.a.Fence(ctx) })
	add("Import.Fence", func(ctx context.Context) error { return s.im.Fence(ctx) })
	add("Import.WriteAtContext", func(ctx context.Context) error { _, err := s.im.WriteAtContext(ctx, w, 0); return err })
	add("Import.ReadAtContext", func(ctx context.Context) error { _, err := s.im.ReadAtContext(ctx, make([]byte, 4), 0); return err })
	add("Import.FetchAdd32", func(ctx context.Context) error { _, err := s.im.FetchAdd32(ctx, 0, 1); return err })
	add("Import.FetchAdd64", func(ctx context.Context) error { _, err := s.im.FetchAdd64(ctx, 0, 1); return err })
	add("Import.Swap32", func(ctx context.Context) error { _, err := s.im.Swap32(ctx, 0, 1); return err })
	add("Import.Swap64", func(ctx context.Context) error { _, err := s.im.Swap64(ctx, 0, 1); return err })
	add("Import.CompareAndSwap32", func(ctx context.Context) error { _, _, err := s.im.CompareAndSwap32(ctx, 0, 0, 1); return err })
	add("Import.CompareAndSwap64", func(ctx context.Context) error { _, _, err := s.im.CompareAndSwap64(ctx, 0, 0, 1); return err })
	add("Import.WaitWord", func(ctx context.Context) error { _, err := s.im.WaitWord(ctx, answer, answer.Load()); return err })
	add("Import.Rejoin", func(ctx context.Context) error { _, err := s.im.Rejoin(ctx); return err })
	add("Import.RejoinAt", func(ctx context.Context) error { _, err := s.im.RejoinAt(ctx, exporter); return err })
	add("ImportRequest.Wait", func(ctx context.Context) error { _, err := pending.Wait(ctx); return err })
	add("Request.Wait", request.Wait)
	add("Word.Wait", func(ctx context.Context) error { _, err := answer.Wait(ctx, answer.Load()); return err })
	add("Word64.Wait", func(ctx context.Context) error {
		w, err := own.Word64(8)
		if err == nil {
			_, err = w.Wait(ctx, w.Load())
		}
		return err
	})
	add("Export.WaitNotified", func(ctx context.Context) error { _, err := own.WaitNotified(ctx, own.Notified()); return err })
	add("Export.EndRedir", func(ctx context.Context) error { _, _, err := red.EndRedir(ctx); return err })
	add("Binding.Flush", func(ctx context.Context) error { return b.Flush(ctx) })
	add("Binding.Store", func(ctx context.Context) error { return b.Store(ctx, 0, 1) })
	return all
}

// withContext are the exported calls of the package, and of package manual, that take a context.
func withContext(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("manual/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, more...) {
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
