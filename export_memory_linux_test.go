package vmmc_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// mmapped is memory of so many pages that this program has mapped itself.
func mmapped(t testing.TB, pages, prot int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, pages*os.Getpagesize(), prot, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(b) })
	return b
}

// ofFile is a shared mapping of more pages than its file has.
func ofFile(t testing.TB, has, pages, prot int) (b []byte, f *os.File) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(int64(has * os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	b, err = syscall.Mmap(int(f.Fd()), 0, pages*os.Getpagesize(), prot, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(b) })
	return b, f
}

// Memory that this process itself cannot write is exported read-only or not at all, and what it
// cannot read neither.
func TestExportOfMemoryThatCannotBeAccessed(t *testing.T) {
	const read, write = syscall.PROT_READ, syscall.PROT_WRITE
	page := os.Getpagesize()
	protect := func(b []byte, prot int) []byte {
		if err := syscall.Mprotect(b[page:2*page], prot); err != nil {
			t.Fatal(err)
		}
		return b
	}
	p := open(t, start(t))
	beyond, _ := ofFile(t, 1, 3, read|write)
	fits, _ := ofFile(t, 3, 3, read|write)
	fixed, _ := ofFile(t, 3, 3, read)
	for name, c := range map[string]struct {
		mem               []byte
		readable, written bool
	}{
		"writable":                   {mmapped(t, 3, read|write), true, true},
		"read-only":                  {mmapped(t, 3, read), true, false},
		"of no access":               {mmapped(t, 3, syscall.PROT_NONE), false, false},
		"a read-only page in it":     {protect(mmapped(t, 3, read|write), read), true, false},
		"a forbidden page in it":     {protect(mmapped(t, 3, read|write), syscall.PROT_NONE), false, false},
		"a file":                     {fits, true, true},
		"a file, read-only":          {fixed, true, false},
		"beyond the end of a file":   {beyond, false, false},
		"the part that the file has": {beyond[:page], true, true},
		"some words":                 {mmapped(t, 3, read|write)[page-8 : page+8], true, true},
		"some read-only words":       {mmapped(t, 3, read)[page-8 : page+8], true, false},
		"the Go heap":                {make([]byte, 3*page), true, true},
	} {
		for rights, opt := range map[string]struct {
			opts   []vmmc.ExportOption
			writes bool
		}{
			"as it is": {nil, true}, "WriteOnly": {[]vmmc.ExportOption{vmmc.WriteOnly()}, true},
			"ReadOnly": {[]vmmc.ExportOption{vmmc.ReadOnly()}, false}, "Unmapped": {[]vmmc.ExportOption{vmmc.Unmapped()}, true},
		} {
			want := opt.writes && c.written || !opt.writes && c.readable
			e, err := p.Export(1, c.mem, opt.opts...)
			if err == nil {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			if (err == nil) != want || err != nil && !errors.Is(err, vmmc.ErrBadArg) {
				t.Errorf("%s, %s: %v, want it exported: %v", name, rights, err, want)
			}
		}
	}
	gone := mmapped(t, 3, read|write)
	if err := syscall.Munmap(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Export(1, gone); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("unmapped memory: %v", err)
	}
}
