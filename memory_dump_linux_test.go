package vmmc_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// dumped is, for each mapping of shared memory of so many bytes in this process, whether core dumps
// have it.
func dumped(t *testing.T, size int) (out []bool) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	ours := false
	for line := range strings.Lines(string(b)) {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "%x-%x", &from, &to); n == 2 {
			ours = strings.Contains(line, "/memfd:vmmc ") && to-from == uint64(size)
		}
		if flags, is := strings.CutPrefix(line, "VmFlags:"); is && ours {
			out = append(out, !slices.Contains(strings.Fields(flags), "dd"))
		}
	}
	slices.SortFunc(out, func(a, b bool) int { return map[bool]int{false: 0, true: 1}[a] - map[bool]int{false: 0, true: 1}[b] })
	return out
}

// The memory of other processes is not in this one's core dumps, unless it is to be, and the own
// memory is.
func TestImportsInCoreDumps(t *testing.T) {
	n := start(t)
	for name, c := range map[string]struct {
		opts []vmmc.Option
		want bool
	}{
		"left out":          {nil, false},
		"WithImportsDumped": {[]vmmc.Option{vmmc.WithImportsDumped()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			size := 37 * vmmc.PageSize() // as nothing else here
			b := open(t, n)
			a, err := vmmc.Open(t.Context(), append(c.opts, vmmc.WithSocket(n.Socket()))...)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			target, err := b.Alloc(size)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Export(1, alloc(t, b, size)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Export(2, alloc(t, b, 64), vmmc.Redirectable(target)); err != nil {
				t.Fatal(err)
			}
			mem := alloc(t, a, size)
			check := func(what string, want ...bool) {
				t.Helper()
				if got := dumped(t, size); !slices.Equal(got, want) {
					t.Errorf("%s: mappings are in core dumps: %v, want %v", what, got, want)
				}
			}
			check("exported", true, true, true)
			im, err := a.Import(t.Context(), b.Node(), b.PID(), 1)
			if err != nil {
				t.Fatal(err)
			}
			check("imported", c.want, true, true, true)
			if _, err := a.Import(t.Context(), b.Node(), b.PID(), 2); err != nil {
				t.Fatal(err)
			}
			check("with a redirection target", c.want, c.want, true, true, true)
			bound, err := im.Bind(mem, 0, vmmc.AliasPages())
			if err != nil {
				t.Fatal(err)
			}
			check("bound as an alias", c.want, c.want, c.want, true, true)
			if err := bound.Close(); err != nil {
				t.Fatal(err)
			}
			check("unbound", c.want, c.want, true, true, true)
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Memory that was closed cannot be touched; that of a process that was closed is zeros.
func TestClosedMemory(t *testing.T) {
	faults := func(f func()) (fault bool) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { fault = recover() != nil }()
		f()
		return false
	}
	p := open(t, start(t))
	closed, left := [3]*vmmc.Memory{}, alloc(t, p, 4096)
	for i := range closed {
		var err error
		if closed[i], err = p.Alloc(2 * vmmc.PageSize()); err != nil {
			t.Fatal(err)
		}
	}
	e, err := p.Export(1, closed[1].Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for i, m := range closed {
		b := m.Bytes()
		if faults(func() { b[4] = 1 }) {
			t.Errorf("memory %d cannot be written", i)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		for what, f := range map[string]func(){
			"written": func() { b[len(b)-1] = 1 },
			"read":    func() { left[0] = b[4] },
		} {
			if !faults(f) {
				t.Errorf("memory %d can be %s after Close", i, what)
			}
		}
		if err := m.Close(); err != nil {
			t.Errorf("closed twice: %v", err)
		}
	}
	left[1] = 5
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if faults(func() { left[2] = left[1] }) {
		t.Error("the memory of a closed process faults")
	}
}
