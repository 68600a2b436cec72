package vmmc_test

import (
	"testing"

	"github.com/vmmc-go/vmmc"
)

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
