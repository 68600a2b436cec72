package vmmc_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

// transfers are the calls that move whole words to or from an import.
func transfers(t testing.TB, im *vmmc.Import) map[string]func(b []byte, off int) error {
	ctx := t.Context()
	over := func(r vmmc.Request, err error) error {
		if err == nil {
			err = r.Wait(within(t))
		}
		return err
	}
	return map[string]func(b []byte, off int) error{
		"Import.Send":            func(b []byte, off int) error { return im.Send(ctx, b, off) },
		"Import.SendNotify":      func(b []byte, off int) error { return im.SendNotify(ctx, b, off) },
		"Import.SendV":           func(b []byte, off int) error { return im.SendV(ctx, [][]byte{b, nil}, off) },
		"Import.SendAsync":       func(b []byte, off int) error { return over(im.SendAsync(ctx, b, off)) },
		"Import.SendNotifyAsync": func(b []byte, off int) error { return over(im.SendNotifyAsync(ctx, b, off)) },
		"Import.Get":             func(b []byte, off int) error { return im.Get(ctx, b, off) },
		"Import.GetAsync":        func(b []byte, off int) error { return over(im.GetAsync(ctx, b, off)) },
	}
}

// atomics are the calls that change a word of an import.
func atomics(t testing.TB, im *vmmc.Import) (narrow, wide map[string]func(off int) error) {
	ctx := t.Context()
	narrow = map[string]func(off int) error{
		"Import.FetchAdd32":       func(off int) error { _, err := im.FetchAdd32(ctx, off, 1); return err },
		"Import.Swap32":           func(off int) error { _, err := im.Swap32(ctx, off, 1); return err },
		"Import.CompareAndSwap32": func(off int) error { _, _, err := im.CompareAndSwap32(ctx, off, 1, 2); return err },
	}
	wide = map[string]func(off int) error{
		"Import.FetchAdd64":       func(off int) error { _, err := im.FetchAdd64(ctx, off, 1); return err },
		"Import.Swap64":           func(off int) error { _, err := im.Swap64(ctx, off, 1); return err },
		"Import.CompareAndSwap64": func(off int) error { _, _, err := im.CompareAndSwap64(ctx, off, 1, 2); return err },
	}
	return narrow, wide
}

// calls are all that can be done with an import, with good arguments.
func calls(t testing.TB, im *vmmc.Import) map[string]func() error {
	all := map[string]func() error{
		"Import.Send, a long one": func() error { return im.Send(t.Context(), make([]byte, size), 0) },
		"Import.SendSignal":       func() error { return im.SendSignal(t.Context(), word, 0, 1, 8) },
		"Import.WriteAt":          func() error { _, err := im.WriteAt(word[:3], 1); return err },
		"Import.WriteAtContext":   func() error { _, err := im.WriteAtContext(t.Context(), word[:3], 1); return err },
		"Import.ReadAt":           func() error { _, err := im.ReadAt(make([]byte, 3), 1); return err },
		"Import.ReadAtContext":    func() error { _, err := im.ReadAtContext(t.Context(), make([]byte, 3), 1); return err },
	}
	for name, f := range transfers(t, im) {
		all[name] = func() error { return f(slices.Clone(word), 0) }
	}
	narrow, wide := atomics(t, im)
	for name, f := range narrow {
		all[name] = func() error { return f(0) }
	}
	for name, f := range wide {
		all[name] = func() error { return f(8) }
	}
	return all
}

// bad is one call with something wrong.
type bad struct {
	call string // as the package documents it
	what string
	do   func() error
	want error
}

func judge(t *testing.T, all []bad) {
	t.Helper()
	for _, c := range all {
		err := c.do()
		if !errors.Is(err, c.want) {
			t.Errorf("%s, %s: %v, want %v", c.call, c.what, err, c.want)
		}
		var e *vmmc.Error
		if !errors.Is(c.want, vmmc.ErrInProgress) && !errors.As(err, &e) {
			t.Errorf("%s, %s: %v is a %T", c.call, c.what, err, err)
		}
	}
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}

// errStart is why a node cannot be started.
var errStart = errors.New("no node today")

// badOnce are the calls for which it does not matter which way data takes.
func badOnce(t *testing.T) []bad {
	n := start(t)
	p, q := open(t, n), open(t, n)
	far := nodeNamed(t, "nowhere")
	open := func(ctx context.Context, opts ...vmmc.Option) func() error {
		return func() error {
			p, err := vmmc.Open(ctx, append([]vmmc.Option{vmmc.WithSocket(n.Socket())}, opts...)...)
			if err == nil {
				p.Close()
			}
			return err
		}
	}
	noNode := func(context.Context) (string, func(), error) { return "", nil, errStart }
	alone := func(o vmmc.Option) func() error {
		return func() error { _, err := vmmc.Open(t.Context(), o); return err }
	}
	export := func(mem []byte, opts ...vmmc.ExportOption) func() error {
		return func() error {
			e, err := p.Export(99, mem, opts...)
			if err == nil {
				_ = e.Close()
			}
			return err
		}
	}
	memory := func(p *vmmc.Process) *vmmc.Memory {
		m, err := p.Alloc(2 * vmmc.PageSize())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	free, taken, whole, shared, gone := memory(p), memory(p), memory(p), memory(p), memory(p)
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Export(1, alloc(t, p, size), vmmc.Redirectable(taken)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Export(2, whole.Bytes()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Export(3, shared.Bytes()[:64], vmmc.SharePages()); err != nil {
		t.Fatal(err)
	}
	heap := make([]byte, size)
	importer := func(ctx context.Context, node vmmc.NodeID, pid vmmc.PID) []bad {
		want := error(vmmc.ErrNoSuchNode)
		switch {
		case ctx.Err() != nil:
			want = vmmc.ErrCanceled
		case node == p.Node():
			want = vmmc.ErrNoSuchProcess
		}
		what := fmt.Sprintf("%d on node %q, %v", pid, node, ctx.Err())
		return []bad{
			{"Process.Import", what, func() error { _, err := p.Import(ctx, node, pid, 4711); return err }, want},
			{"ImportAsync", what, func() error { _, err := manual.ImportAsync(ctx, p, node, pid, 4711).Wait(within(t)); return err }, want},
		}
	}
	spawn := func(ctx context.Context, node vmmc.NodeID, path string, args ...string) func() error {
		return func() error { _, err := p.Spawn(ctx, node, path, args...); return err }
	}
	waiting := manual.ImportAsync(t.Context(), p, p.Node(), q.PID(), 4711)
	t.Cleanup(waiting.Cancel)
	taker := manual.ImportAsync(t.Context(), p, p.Node(), p.PID(), 2)
	if _, err := taker.Wait(within(t)); err != nil {
		t.Fatal(err)
	}
	left, err := p.Import(t.Context(), p.Node(), p.PID(), 2)
	if err != nil {
		t.Fatal(err)
	}
	lost := left
	if left, err = p.Import(t.Context(), p.Node(), p.PID(), 2); err == nil {
		err = left.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	onExport := func(f func(*vmmc.Export) error) func() error {
		return func() error {
			e, err := p.Export(9001, make([]byte, 8))
			if err == nil {
				err = errors.Join(f(e), e.Close())
			}
			return err
		}
	}
	all := []bad{
		{"Process.Publish", "a bad name", func() error { _, err := p.Publish(t.Context(), "", heap); return err }, vmmc.ErrBadName},
		{"Process.Publish", "no size", func() error { _, err := p.Publish(t.Context(), "x", nil); return err }, vmmc.ErrBadSize},
		{"Export.PublishAs", "a bad name", onExport(func(e *vmmc.Export) error { return e.PublishAs(t.Context(), "//") }), vmmc.ErrBadName},
		{"Export.PublishAs", "an option that is nil", onExport(func(e *vmmc.Export) error { return e.PublishAs(t.Context(), "x", nil) }), vmmc.ErrBadArg},
		{"Export.PublishAs", "a context that has ended", onExport(func(e *vmmc.Export) error { return e.PublishAs(ended(), "x") }), vmmc.ErrCanceled},
		{"Export.Unpublish", "a bad name", onExport(func(e *vmmc.Export) error { return e.Unpublish(t.Context(), " x") }), vmmc.ErrBadName},
		{"WithName", "a bad one", export(heap, vmmc.WithName("a/b/c")), vmmc.ErrBadName},
		{"Process.ImportName", "a bad name", func() error { _, err := p.ImportName(t.Context(), "\xff"); return err }, vmmc.ErrBadName},
		{"Process.ImportName", "a context that has ended", func() error { _, err := p.ImportName(ended(), "x"); return err }, vmmc.ErrCanceled},

		{"Import.Rejoin", "closed by its own process", func() error { _, err := left.Rejoin(within(t)); return err }, vmmc.ErrClosed},
		{"Import.RejoinAt", "the same", func() error { _, err := left.RejoinAt(within(t), p.ID()); return err }, vmmc.ErrClosed},
		{"Import.RejoinAt", "no such node", func() error { _, err := lost.RejoinAt(within(t), vmmc.ProcessID{Node: far, PID: 1}); return err }, vmmc.ErrNoSuchNode},
		{"Open", "the import limit", open(t.Context(), vmmc.WithImportLimit(-1)), vmmc.ErrBadArg},
		{"WithResume", "a limit before now", open(t.Context(), vmmc.WithResume(-1)), vmmc.ErrBadArg},
		{"WithSilence", "less than none", open(t.Context(), vmmc.WithSilence(-1)), vmmc.ErrBadArg},
		{"WithPayloadChecksums", "of links that cannot be", open(t.Context(), vmmc.WithPayloadChecksums(), vmmc.WithResume(-1<<63)), vmmc.ErrBadArg},
		{"WithEncryption", "of links that cannot be", open(t.Context(), vmmc.WithEncryption(), vmmc.WithResume(-1<<63)), vmmc.ErrBadArg},
		{"WithImportLimit", "the least of all", open(t.Context(), vmmc.WithImportLimit(-1<<63)), vmmc.ErrBadArg},
		{"WithSocket", "too long a path", open(t.Context(), vmmc.WithSocket("/"+strings.Repeat("x", 200))), vmmc.ErrBadArg},
		{"WithSocket", "no node there", open(t.Context(), vmmc.WithSocket(filepath.Join(t.TempDir(), "none"))), vmmc.ErrNoDaemon},
		{"WithEmbedded", "that does not start", alone(vmmc.WithEmbedded(noNode)), errStart},
		{"WithEmbedded", "beside WithSocket", open(t.Context(), vmmc.WithEmbedded(noNode)), vmmc.ErrBadArg},
		{"Open", "with an option that is nil", open(t.Context(), nil), vmmc.ErrBadArg},
		{"Open", "a context that has ended", open(ended()), vmmc.ErrCanceled},

		{"Process.Alloc", "no size", func() error { _, err := p.Alloc(0); return err }, vmmc.ErrBadSize},
		{"Process.Alloc", "an odd size", func() error { _, err := p.Alloc(6); return err }, vmmc.ErrBadAlignment},
		{"Memory.Close", "exported", whole.Close, vmmc.ErrBadRbufState},
		{"Memory.Close", "exported in part", shared.Close, vmmc.ErrBadRbufState},
		{"Memory.Close", "a redirection target", taken.Close, vmmc.ErrBadRbufState},

		{"Process.Export", "nil", export(nil), vmmc.ErrBadSize},
		{"Process.Export", "a redirection target", export(taken.Bytes()), vmmc.ErrOverlappedBufs},
		{"Process.Export", "part of a redirection target", export(taken.Bytes()[8:16]), vmmc.ErrOverlappedBufs},
		{"Redirectable", "to no memory", export(heap, vmmc.Redirectable(nil)), vmmc.ErrBadArg},
		{"Redirectable", "to an empty one", export(heap, vmmc.Redirectable(&vmmc.Memory{})), vmmc.ErrBadArg},
		{"Redirectable", "to memory that was freed", export(heap, vmmc.Redirectable(gone)), vmmc.ErrBadArg},
		{"Redirectable", "to another process's memory", export(heap, vmmc.Redirectable(memory(q))), vmmc.ErrBadArg},
		{"Redirectable", "to an exported one", export(heap, vmmc.Redirectable(whole)), vmmc.ErrOverlappedBufs},
		{"Redirectable", "to one that is exported in part", export(heap, vmmc.Redirectable(free, shared)), vmmc.ErrOverlappedBufs},
		{"Redirectable", "to itself", export(free.Bytes(), vmmc.Redirectable(free)), vmmc.ErrOverlappedBufs},
		{"Redirectable", "to another's target", export(heap, vmmc.Redirectable(taken)), vmmc.ErrOverlappedBufs},
		{"Redirectable", "to too many", export(heap, vmmc.Redirectable(make([]*vmmc.Memory, 30)...)), vmmc.ErrBadArg},
		{"GlobalSpace", "of the heap", export(heap, vmmc.GlobalSpace()), vmmc.ErrBadArg},
		{"SharePages", "with other rights", export(shared.Bytes()[64:], vmmc.SharePages(), vmmc.ReadOnly()), vmmc.ErrBadArg},
		{"WithLabel", "too long", export(heap, vmmc.WithLabel(make([]byte, 257))), vmmc.ErrBadArg},
		{"Permit", "nobody", export(heap, vmmc.Permit()), vmmc.ErrBadArg},
		{"Permit", "no node", export(heap, vmmc.Permit(vmmc.Permission{Nodes: []vmmc.NodeID{{}}})), vmmc.ErrBadArg},

		{"ImportRequest.Status", "of none", func() error { _, err := (*manual.ImportRequest)(nil).Status(); return err }, vmmc.ErrBadAsyncHandle},
		{"ImportRequest.Status", "of an empty one", func() error { _, err := new(manual.ImportRequest).Status(); return err }, vmmc.ErrBadAsyncHandle},
		{"ImportRequest.Status", "before it is over", func() error { _, err := waiting.Status(); return err }, vmmc.ErrInProgress},
		{"ImportRequest.Status", "of an import that was given out", func() error { _, err := taker.Status(); return err }, vmmc.ErrStaleHandle},
		{"ImportRequest.Wait", "for none", func() error { _, err := (*manual.ImportRequest)(nil).Wait(t.Context()); return err }, vmmc.ErrBadAsyncHandle},
		{"ImportRequest.Wait", "for an empty one", func() error { _, err := new(manual.ImportRequest).Wait(t.Context()); return err }, vmmc.ErrBadAsyncHandle},
		{"ImportRequest.Wait", "a context that has ended", func() error { _, err := waiting.Wait(ended()); return err }, vmmc.ErrCanceled},
		{"ImportRequest.Wait", "for an import that was given out", func() error { _, err := taker.Wait(t.Context()); return err }, vmmc.ErrStaleHandle},

		{"Process.NameToNode", "unknown", func() error { _, err := p.NameToNode("nowhere"); return err }, vmmc.ErrNoSuchNode},
		{"Process.NameToNode", "empty", func() error { _, err := p.NameToNode(""); return err }, vmmc.ErrNoSuchNode},
		{"Process.NodeToName", "unknown", func() error { _, err := p.NodeToName(far); return err }, vmmc.ErrNoSuchNode},
		{"Process.NodeToName", "none", func() error { _, err := p.NodeToName(vmmc.NodeID{}); return err }, vmmc.ErrNoSuchNode},
		{"Process.Parent", "that was not spawned", func() error { _, err := p.Parent(); return err }, vmmc.ErrNoParent},

		{"Process.Spawn", "no path", spawn(t.Context(), p.Node(), ""), vmmc.ErrBadArg},
		{"Process.Spawn", "what is not there", spawn(t.Context(), p.Node(), filepath.Join(t.TempDir(), "none")), vmmc.ErrBadArg},
		{"Process.Spawn", "a directory", spawn(t.Context(), p.Node(), t.TempDir()), vmmc.ErrBadArg},
		{"Process.Spawn", "a zero byte in the path", spawn(t.Context(), p.Node(), "/bin/true\x00"), vmmc.ErrBadArg},
		{"Process.Spawn", "a zero byte in an argument", spawn(t.Context(), p.Node(), "/bin/true", "a", "b\x00"), vmmc.ErrBadArg},
		{"Process.Spawn", "too long an argument", spawn(t.Context(), p.Node(), "/bin/true", strings.Repeat("x", 32<<10)), vmmc.ErrBadArg},
		{"Process.Spawn", "too many arguments", spawn(t.Context(), p.Node(), "/bin/true", make([]string, 4096)...), vmmc.ErrBadArg},
		{"Process.Spawn", "an unknown node", spawn(t.Context(), far, "/bin/true"), vmmc.ErrNoSuchNode},
		{"Process.Spawn", "no node", spawn(t.Context(), vmmc.NodeID{}, "/bin/true"), vmmc.ErrNoSuchNode},
		{"Process.Spawn", "a context that has ended", spawn(ended(), p.Node(), "/bin/true"), vmmc.ErrCanceled},

		{"Request.Status", "of none", vmmc.Request{}.Status, vmmc.ErrBadAsyncHandle},
		{"Outcome.Wait", "for none", func() error { _, err := (*vmmc.Outcome)(nil).Wait(t.Context()); return err }, vmmc.ErrBadAsyncHandle},
		{"Outcome.Wait", "for an empty one", func() error { _, err := new(vmmc.Outcome).Wait(t.Context()); return err }, vmmc.ErrBadAsyncHandle},
		{"Request.Wait", "for none", func() error { return vmmc.Request{}.Wait(t.Context()) }, vmmc.ErrBadAsyncHandle},
		{"Word64.Wait", "of no export", func() error { _, err := vmmc.Word64{}.Wait(t.Context(), 0); return err }, vmmc.ErrBadArg},
		{"Word.Wait", "of no export", func() error { _, err := vmmc.Word{}.Wait(t.Context(), 0); return err }, vmmc.ErrBadArg},
	}
	for _, node := range []vmmc.NodeID{far, {}, p.Node()} {
		all = append(all, importer(t.Context(), node, 1<<31)...)
		all = append(all, importer(ended(), node, q.PID())...)
	}
	return all
}

// badOfAWay are the calls on an export and an import of it, on one of the ways.
func badOfAWay(t *testing.T, way string) []bad {
	s := exported(t, way)
	red, target := redirected(t, way, size)
	narrow, wide := atomics(t, s.im)
	space, addr := inDestSpace(t, s.im)
	odd, err := s.b.Export(50, alloc(t, s.b, 72)[4:68])
	if err != nil {
		t.Fatal(err)
	}
	oddly, err := s.a.Import(t.Context(), s.b.Node(), s.b.PID(), 50)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.exp.Word(0)
	if err != nil {
		t.Fatal(err)
	}
	bindings := badBindings(t, s, way)
	post := func(off int, to []byte) func() error { return func() error { return red.exp.PostRedir(to, off) } }
	word32 := func(off int) func() error { return func() error { _, err := s.exp.Word(off); return err } }
	word64 := func(off int) func() error { return func() error { _, err := s.exp.Word64(off); return err } }
	all := []bad{
		{"Export.Word", "behind the end", word32(size), vmmc.ErrBadArg},
		{"Export.Word", "before the beginning", word32(-4), vmmc.ErrBadArg},
		{"Export.Word", "odd", word32(2), vmmc.ErrBadAlignment},
		{"Export.Word64", "behind the end", word64(size), vmmc.ErrBadArg},
		{"Export.Word64", "half over the end", word64(size - 4), vmmc.ErrBadArg},
		{"Export.Word64", "before the beginning", word64(-8), vmmc.ErrBadArg},
		{"Export.Word64", "odd", word64(4), vmmc.ErrBadAlignment},
		{"Export.Word64", "in narrow memory", func() error { _, err := odd.Word64(8); return err }, vmmc.ErrBadAlignment},
		{"Import.FetchAdd64", "in narrow memory", func() error { _, err := oddly.FetchAdd64(t.Context(), 8, 1); return err }, vmmc.ErrBadAlignment},

		{"Export.PostRedir", "not redirectable", func() error { return s.exp.PostRedir(target, 0) }, vmmc.ErrNotRedirectable},
		{"Export.PostRedir", "nil", post(0, nil), vmmc.ErrBadSize},
		{"Export.PostRedir", "an odd offset", post(2, target[:4]), vmmc.ErrBadAlignment},
		{"Export.PostRedir", "far behind", post(1<<62, target[:4]), vmmc.ErrBadArg},
		{"Export.PostRedir", "before", post(-4, target[:4]), vmmc.ErrBadArg},
		{"Export.PostRedir", "into itself", post(0, red.exp.Bytes()[:4]), vmmc.ErrOverlappedBufs},
		{"Export.EndRedir", "not redirectable", func() error { return end(s.exp) }, vmmc.ErrNotRedirectable},
		{"Export.EndRedir", "nothing posted", func() error { return end(red.exp) }, vmmc.ErrBadRbufState},

		{"Process.WaitAny", "nothing", func() error { _, err := s.b.WaitAny(t.Context()); return err }, vmmc.ErrBadArg},
		{"Process.WaitAny", "a word of no export", func() error {
			_, err := s.b.WaitAny(t.Context(), vmmc.Watch{Word: w, Old: w.Load()}, vmmc.Watch{})
			return err
		}, vmmc.ErrBadArg},
		{"Process.WaitAny", "another process's import", func() error {
			_, err := s.b.WaitAny(t.Context(), vmmc.Watch{Word: w, Old: w.Load(), From: s.im})
			return err
		}, vmmc.ErrBadArg},
		{"Process.WaitAny", "a context that has ended", func() error { _, err := s.b.WaitAny(ended(), vmmc.Watch{Word: w, Old: w.Load()}); return err }, vmmc.ErrCanceled},
		{"Process.WaitUntil", "a context that has ended", func() error { return s.b.WaitUntil(ended(), func() bool { return false }) }, vmmc.ErrCanceled},
		{"Word.Wait", "a context that has ended", func() error { _, err := w.Wait(ended(), w.Load()); return err }, vmmc.ErrCanceled},
		{"Word64.Wait", "a context that has ended", func() error {
			w, err := s.exp.Word64(8)
			if err == nil {
				_, err = w.Wait(ended(), w.Load())
			}
			return err
		}, vmmc.ErrCanceled},
		{"Export.WaitNotified", "a context that has ended", func() error { _, err := s.exp.WaitNotified(ended(), 0); return err }, vmmc.ErrCanceled},

		{"Import.SendV", "nil", func() error { return s.im.SendV(t.Context(), nil, 0) }, vmmc.ErrBadSize},
		{"Import.SendV", "odd pieces", func() error { return s.im.SendV(t.Context(), [][]byte{word[:2], word[:2]}, 0) }, vmmc.ErrBadAlignment},
		{"Import.WaitWord", "of no export", func() error { _, err := s.im.WaitWord(t.Context(), vmmc.Word{}, 0); return err }, vmmc.ErrBadArg},
		{"Import.WaitWord", "of another process", func() error { _, err := s.im.WaitWord(t.Context(), w, w.Load()); return err }, vmmc.ErrBadArg},
		{"DestSpace.Add", "no import", func() error { _, err := space.Add(nil); return err }, vmmc.ErrBadArg},
		{"DestSpace.Lookup", "nowhere", func() error { _, _, err := space.Lookup(0); return err }, vmmc.ErrBadProxyAddr},
		{"DestSpace.Lookup", "behind the end", func() error { _, _, err := space.Lookup(addr + size); return err }, vmmc.ErrBadProxyAddr},
	}
	all = append(all, bindings...)
	for _, off := range []int{-4, size, 1 << 62} {
		for name, f := range narrow {
			all = append(all, bad{name, fmt.Sprint("at ", off), func() error { return f(off) }, vmmc.ErrBadProxyAddr})
		}
		for name, f := range wide {
			all = append(all, bad{name, fmt.Sprint("at ", 2*off), func() error { return f(2 * off) }, vmmc.ErrBadProxyAddr})
		}
	}
	for name, f := range narrow {
		all = append(all, bad{name, "odd", func() error { return f(2) }, vmmc.ErrBadAlignment})
	}
	for name, f := range wide {
		all = append(all, bad{name, "half odd", func() error { return f(4) }, vmmc.ErrBadAlignment})
	}
	for name, f := range transfers(t, s.im) {
		all = append(all, bad{name, "nil", func() error { return f(nil, 0) }, vmmc.ErrBadSize})
	}
	return append(all, throughDestSpace(t, space, addr+size, vmmc.ErrBadProxyAddr)...)
}

// throughDestSpace are the calls on an address at which there is no import.
func throughDestSpace(t *testing.T, d *manual.DestSpace, a manual.ProxyAddr, want error) []bad {
	what, ctx := fmt.Sprint("at ", a), t.Context()
	return []bad{
		{"DestSpace.Send", what, func() error { return d.Send(ctx, word, a) }, want},
		{"DestSpace.SendNotify", what, func() error { return d.SendNotify(ctx, word, a) }, want},
		{"DestSpace.SendAsync", what, func() error { _, err := d.SendAsync(ctx, word, a); return err }, want},
		{"DestSpace.SendNotifyAsync", what, func() error { _, err := d.SendNotifyAsync(ctx, word, a); return err }, want},
		{"DestSpace.Get", what, func() error { return d.Get(ctx, make([]byte, 4), a) }, want},
		{"DestSpace.GetAsync", what, func() error { _, err := d.GetAsync(ctx, make([]byte, 4), a); return err }, want},
		{"DestSpace.Lookup", what, func() error { _, _, err := d.Lookup(a); return err }, want},
	}
}

func TestBadArguments(t *testing.T) {
	judge(t, badOnce(t))
	for _, way := range ways {
		t.Run(way, func(t *testing.T) { judge(t, badOfAWay(t, way)) })
	}
}

// What is closed is closed for all calls: nothing hangs, and nothing is a fault of
// the arguments.
func TestCallsOnWhatIsClosed(t *testing.T) {
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			s, target := redirected(t, way, size)
			ctx := within(t)
			w, err := s.exp.Word(0)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.exp.PostRedir(target, 0); err != nil {
				t.Fatal(err)
			}
			notified := make(chan error, 1)
			go func() {
				_, err := s.exp.WaitNotified(ctx, 0)
				notified <- err
			}()
			space, addr := inDestSpace(t, s.im)
			if err := s.exp.Close(); err != nil {
				t.Fatal(err)
			}
			judge(t, []bad{
				{"Export.WaitNotified", "whose export was closed meanwhile", func() error { return first(t, notified, "it") }, vmmc.ErrBadRbufState},
				{"Export.WaitNotified", "of a closed export", func() error { _, err := s.exp.WaitNotified(ctx, 0); return err }, vmmc.ErrBadRbufState},
				{"Export.PostRedir", "of a closed export", func() error { return s.exp.PostRedir(target, 0) }, vmmc.ErrBadRbufState},
				{"Export.EndRedir", "of a closed export", func() error { return end(s.exp) }, vmmc.ErrBadRbufState},
				{"Import.Get", "of a closed export", func() error { return s.im.Get(ctx, make([]byte, 4), 0) }, vmmc.ErrRevoked},
				{"Import.Fence", "of a closed export", func() error { return eventually(t, func() error { return s.im.Fence(ctx) }) }, vmmc.ErrRevoked},
			})
			if off, ok := s.exp.DataEnd(); ok {
				t.Errorf("nothing arrived, and the data ends at %d", off)
			}
			s.exp.ClearDataEnd()
			if err := s.im.Close(); err != nil {
				t.Fatal(err)
			}
			space.Remove(s.im)
			judge(t, throughDestSpace(t, space, addr, vmmc.ErrBadProxyAddr))
			judge(t, []bad{{"Import.Fence", "of a closed import", func() error { return s.im.Fence(ctx) }, vmmc.ErrBadIbufState}})

			other, err := s.b.Export(8, make([]byte, 64))
			if err != nil {
				t.Fatal(err)
			}
			r := manual.ImportAsync(t.Context(), s.b, s.b.Node(), s.a.PID(), 4711)
			for range 2 { // closing twice is no error
				if err := s.b.Close(); err != nil {
					t.Fatal(err)
				}
			}
			p := s.b
			judge(t, []bad{
				{"Process.Alloc", "of a closed process", func() error { _, err := p.Alloc(4); return err }, vmmc.ErrClosed},
				{"Process.Export", "of a closed process", func() error { _, err := p.Export(1, make([]byte, 4)); return err }, vmmc.ErrClosed},
				{"Process.Import", "of a closed process", func() error { _, err := p.Import(ctx, p.Node(), s.a.PID(), 7); return err }, vmmc.ErrClosed},
				{"ImportAsync", "of a closed process", func() error { _, err := manual.ImportAsync(ctx, p, p.Node(), s.a.PID(), 7).Wait(ctx); return err }, vmmc.ErrClosed},
				{"Process.Spawn", "of a closed process", func() error { _, err := p.Spawn(ctx, p.Node(), "/bin/true"); return err }, vmmc.ErrClosed},
				{"Process.WaitUntil", "of a closed process", func() error { return p.WaitUntil(ctx, func() bool { return false }) }, vmmc.ErrClosed},
				{"Process.WaitAny", "of a closed process", func() error { _, err := p.WaitAny(ctx, vmmc.Watch{Word: w, Old: w.Load()}); return err }, vmmc.ErrClosed},
				{"Word.Wait", "of a closed process", func() error { _, err := w.Wait(ctx, w.Load()); return err }, vmmc.ErrClosed},
				{"Export.PostRedir", "of a closed process", func() error { return s.exp.PostRedir(make([]byte, 4), 0) }, vmmc.ErrBadRbufState},
				{"Export.WaitNotified", "of a closed process", func() error { _, err := other.WaitNotified(ctx, 0); return err }, vmmc.ErrBadRbufState},
			})
			if _, err := r.Wait(within(t)); !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("an import whose process was closed: %v", err)
			}
			if err := other.Close(); err != nil {
				t.Errorf("an export that ended with its process: %v", err)
			}
			if n, err := p.NameToNode(p.Node().String()); err != nil || n != p.Node() {
				t.Errorf("a closed process does not know its node: %v", err)
			}
		})
	}
}

// A request that its exporter never acknowledges is in progress for as long as
// that, and waiting for it ends with the context.
func TestRequestInProgress(t *testing.T) {
	w := newVictim(t)
	y := newHostileExporter(t, w.socket, honestly)
	p := join(t, w.socket)
	im, err := p.Import(t.Context(), p.Node(), vmmc.PID(y.id.PID), 7)
	if err != nil {
		t.Fatal(err)
	}
	r, err := im.SendAsync(t.Context(), word, 0)
	if err != nil {
		t.Fatal(err)
	}
	judge(t, []bad{
		{"Request.Wait", "a context that has ended", func() error { return r.Wait(ended()) }, vmmc.ErrCanceled},
		{"Request.Status", "before it is over", r.Status, vmmc.ErrInProgress},
		{"Import.Fence", "a context that has ended", func() error { return im.Fence(ended()) }, vmmc.ErrCanceled},
		{"Import.Get", "a context that has ended", func() error { return im.Get(ended(), make([]byte, 4), 0) }, vmmc.ErrCanceled},
		{"Import.FetchAdd32", "a context that has ended", func() error { _, err := im.FetchAdd32(ended(), 0, 1); return err }, vmmc.ErrCanceled},
		{"Import.ReadAtContext", "a context that has ended", func() error { _, err := im.ReadAtContext(ended(), make([]byte, 3), 0); return err }, vmmc.ErrCanceled},
	})
	if r.Done() {
		t.Error("it is over")
	}
}

// notBad are the calls to which nothing bad can be given, and why.
var notBad = map[string]string{
	"ReadOnly":          "no argument",
	"WriteOnly":         "no argument",
	"ReadWrite":         "no argument",
	"Locked":            "no argument; the system's limit depends on the machine",
	"ManySenders":       "no argument",
	"Unmapped":          "no argument",
	"AliasPages":        "no argument; with others: Import.Bind",
	"CompareOnly":       "no argument",
	"NotifyUpdates":     "no argument",
	"WithContents":      "no argument",
	"WithImportsDumped": "no argument",
	"Binding.Close":     "closing twice is no error: TestTheEndOfABinding; TestCallsInAHandler",
	"Binding.Err":       "no argument; TestTheEndOfABinding",
	"Import.Err":        "no argument; TestImportDone",
	"WithHandler":       "nil is no handler",
	"WithEvents":        "nil is no handler",
	"WithLogger":        "nil is no logger",
	"WithSession":       "TestSessionNames",
	"Export.Close":      "closing twice is no error; blocked notifications: TestCloseWithBlockedNotifications; TestCallsInAHandler",
	"Import.Close":      "closing twice is no error: TestClosedImport; TestCallsInAHandler",
	"Process.Close":     "closing twice is no error: TestOwnProcessClosed; TestCallsInAHandler",

	"Error.Unwrap":                 "no argument",
	"NodeID.MarshalText":           "no argument",
	"NodeID.UnmarshalText":         "any name: it is judged where it is used",
	"Process.SessionHosts":         "no argument; VMMCHOSTS: TestSessionHostsUnknown",
	"Process.UnblockNotifications": "no argument; TestBlockingLevels",
}

// A call that can fail is in the tables above, or in notBad: none is forgotten.
func TestEveryCallIsInATable(t *testing.T) {
	named := map[string]bool{}
	for name := range notBad {
		named[name] = true
	}
	tables := append(badOnce(t), badOfAWay(t, "mapped")...)
	for _, c := range tables {
		named[c.call] = true
	}
	s := exported(t, "mapped")
	for name := range calls(t, s.im) {
		name, _, _ = strings.Cut(name, ",")
		named[name] = true
	}
	// TestCallsOnWhatIsClosed, TestRequestInProgress; TestTheEndOfABinding,
	// TestFlushEndsWithItsContext; TestProcessFence
	for _, name := range []string{"Import.Fence", "Process.Fence", "Binding.Flush"} {
		named[name] = true
	}
	there := fallible(t)
	for _, name := range there {
		if !named[name] {
			t.Errorf("%s can fail, and no table has it with bad arguments", name)
		}
	}
	for name := range named {
		if !slices.Contains(there, name) {
			t.Errorf("%s is in a table, and there is no such call that can fail", name)
		}
	}
}

// fallible are the exported functions and methods of the package, and of package manual, that
// return an error, a request or an option.
func fallible(t *testing.T) (names []string) {
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
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || f.Type.Results == nil {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				of := typeName(f.Recv.List[0].Type)
				if !ast.IsExported(of) {
					continue
				}
				name = of + "." + name
			}
			for _, r := range f.Type.Results.List {
				switch typeName(r.Type) {
				case "error", "Option", "ExportOption", "BindOption", "ImportRequest":
					names = append(names, name)
				}
			}
		}
	}
	if len(names) < 50 {
		t.Fatalf("only %d calls were found: %v", len(names), names)
	}
	return names
}

func typeName(e ast.Expr) string {
	if p, ok := e.(*ast.StarExpr); ok {
		e = p.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// badBindings are the calls of automatic update with something wrong, on one way.
func badBindings(t *testing.T, s *buffers, way string) []bad {
	page := vmmc.PageSize()
	memory := func(n int) *vmmc.Memory {
		t.Helper()
		m, err := s.a.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	free, exported, target, taken := memory(size), memory(3*page), memory(page), memory(2*page)
	mem := free.Bytes()
	if _, err := s.a.Export(51, exported.Bytes()[page:page+64]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.a.Export(52, make([]byte, 64), vmmc.Redirectable(target)); err != nil {
		t.Fatal(err)
	}
	_, readable := s.another(t, 53, vmmc.ReadOnly())
	_, narrow := s.another(t, 54)
	b := bind(t, narrow, taken.Bytes()[:64], 0)
	to := func(im *vmmc.Import, mem []byte, off int, opts ...vmmc.BindOption) func() error {
		return func() error {
			b, err := im.Bind(mem, off, opts...)
			if err == nil {
				_ = b.Close()
			}
			return err
		}
	}
	it := func(mem []byte, off int, opts ...vmmc.BindOption) func() error { return to(s.im, mem, off, opts...) }
	export := func(mem []byte, opts ...vmmc.ExportOption) func() error {
		return func() error { _, err := s.a.Export(99, mem, opts...); return err }
	}
	all := []bad{
		{"Import.Bind", "nil", it(nil, 0), vmmc.ErrBadSize},
		{"Import.Bind", "an odd size", it(mem[:6], 0), vmmc.ErrBadAlignment},
		{"Import.Bind", "odd memory", it(mem[2:6], 0), vmmc.ErrBadAlignment},
		{"Import.Bind", "an odd offset", it(mem[:4], 2), vmmc.ErrBadAlignment},
		{"Import.Bind", "before the beginning", it(mem[:4], -4), vmmc.ErrBadProxyAddr},
		{"Import.Bind", "over the end", it(mem[:8], size-4), vmmc.ErrBadProxyAddr},
		{"Import.Bind", "far behind", it(mem[:4], 1<<62), vmmc.ErrBadProxyAddr},
		{"Import.Bind", "memory of the heap", it(make([]byte, 64), 0), vmmc.ErrBadArg},
		{"Import.Bind", "memory of another process", it(s.all[:64], 0), vmmc.ErrBadArg},
		{"Import.Bind", "without the right to write", to(readable, mem[:64], 0), vmmc.ErrNoRights},
		{"Import.Bind", "memory that is bound", it(taken.Bytes()[60:64], 0), vmmc.ErrOverlappedBufs},
		{"Import.Bind", "memory that is exported", it(exported.Bytes()[page:page+4], 0), vmmc.ErrOverlappedBufs},
		{"Import.Bind", "in the page of an export", it(exported.Bytes()[2*page-4:2*page], 0), vmmc.ErrOverlappedBufs},
		{"Import.Bind", "a redirection target", it(target.Bytes()[:4], 0), vmmc.ErrOverlappedBufs},
		{"Import.Bind", "an alias that notifies", it(mem, 0, vmmc.AliasPages(), vmmc.NotifyUpdates()), vmmc.ErrBadArg},
		{"Import.Bind", "an alias of half a page", it(mem[:64], 0, vmmc.AliasPages()), vmmc.ErrBadArg},
		{"Import.Bind", "an alias between pages", it(mem[:page], 64, vmmc.AliasPages()), vmmc.ErrBadArg},
		{"FlagWords", "an odd one", it(mem[:64], 0, vmmc.FlagWords(2)), vmmc.ErrBadAlignment},
		{"FlagWords", "behind the end", it(mem[:64], 0, vmmc.FlagWords(4, 64)), vmmc.ErrBadArg},
		{"FlagWords", "before the beginning", it(mem[:64], 0, vmmc.FlagWords(-4)), vmmc.ErrBadArg},
		{"FlagRange", "empty", it(mem[:64], 0, vmmc.FlagRange(4, 0)), vmmc.ErrBadArg},
		{"FlagRange", "over the end", it(mem[:64], 0, vmmc.FlagRange(60, 8)), vmmc.ErrBadArg},
		{"FlagRange", "of all there is and more", it(mem[:64], 0, vmmc.FlagRange(4, 1<<63-1)), vmmc.ErrBadArg},
		{"FlagRange", "odd", it(mem[:64], 0, vmmc.FlagRange(4, 6)), vmmc.ErrBadAlignment},
		{"Binding.Store", "behind the end", func() error { return b.Store(t.Context(), 64, 1) }, vmmc.ErrBadProxyAddr},
		{"Binding.Store", "before the beginning", func() error { return b.Store(t.Context(), -4, 1) }, vmmc.ErrBadProxyAddr},
		{"Binding.Store", "odd", func() error { return b.Store(t.Context(), 2, 1) }, vmmc.ErrBadAlignment},
		{"Binding.Word", "behind the end", func() error { _, err := b.Word(64); return err }, vmmc.ErrBadProxyAddr},
		{"Binding.Word", "odd", func() error { _, err := b.Word(3); return err }, vmmc.ErrBadAlignment},
		{"Memory.Close", "bound", taken.Close, vmmc.ErrBadRbufState},
		{"Process.Export", "bound memory", export(taken.Bytes()[:64]), vmmc.ErrOverlappedBufs},
		{"Process.Export", "in the page of bound memory", export(taken.Bytes()[64:128]), vmmc.ErrOverlappedBufs},
		{"Redirectable", "to bound memory", export(make([]byte, 64), vmmc.Redirectable(taken)), vmmc.ErrOverlappedBufs},
	}
	if way != "mapped" {
		all = append(all, bad{"Import.Bind", "an alias of the stream", it(mem, 0, vmmc.AliasPages()), vmmc.ErrBadArg})
	}
	return all
}

// What is said of a word that is not aligned names the size of that word.
func TestAlignmentIsToldOfTheWordAsked(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			narrow, wide := atomics(t, s.im)
			for size, calls := range map[int]map[string]func(int) error{4: narrow, 8: wide} {
				for name, call := range calls {
					for _, off := range []int{1, 2, size / 2, size + size/2} {
						err := call(off)
						if !errors.Is(err, vmmc.ErrBadAlignment) || !strings.Contains(err.Error(), fmt.Sprintf("(%d bytes)", size)) {
							t.Errorf("%s at %d: %v", name, off, err)
						}
					}
				}
			}
			mem := alloc(t, s.b, 4096)
			if _, err := s.b.Export(8, mem[4:4092]); err != nil {
				t.Fatal(err)
			}
			im, err := s.a.Import(within(t), s.b.Node(), s.b.PID(), 8)
			if err != nil {
				t.Fatal(err)
			}
			_, wide = atomics(t, im)
			for name, call := range wide {
				err := call(8)
				if !errors.Is(err, vmmc.ErrBadAlignment) || !strings.Contains(err.Error(), "(8 bytes) in the exporter's memory") {
					t.Errorf("%s in memory that is not aligned: %v", name, err)
				}
			}
		})
	}
}
