package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

const (
	cPart  = "libvmmc.so.2"
	goPart = "vmmc/libvmmc-go.so" // beside cPart
)

// protocolVersion is what the daemon of this release speaks with processes.
var protocolVersion = strconv.Itoa(nodeproto.Version)

// LibraryDirs are where the dynamic linker looks for libraries, as far as files say it.
func LibraryDirs() []string {
	dirs := filepath.SplitList(env.Get("LD_LIBRARY_PATH"))
	files, _ := filepath.Glob("/etc/ld.so.conf.d/*.conf")
	for _, name := range append([]string{"/etc/ld.so.conf"}, files...) {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			if dir := strings.TrimSpace(s.Text()); filepath.IsAbs(dir) {
				dirs = append(dirs, dir)
			}
		}
		_ = f.Close()
	}
	return append(dirs, "/usr/local/lib", "/lib64", "/lib", "/usr/lib64", "/usr/lib")
}

// mark is the text that c/src/mark.h puts into each part of the library.
var mark = regexp.MustCompile(`vmmc library part=(c|go) layout=(\d+)(?: protocol=(\d+))?\.`)

// readMark returns the layout and the protocol of one part of the library; "" if it has no mark.
func readMark(path, part string) (layout, protocol string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	for _, m := range mark.FindAllSubmatch(b, -1) {
		if bytes.Equal(m[1], []byte(part)) {
			return string(m[2]), string(m[3]), nil
		}
	}
	return "", "", nil
}

// folder is the text that c/src/mark.c puts into the part in C: where make was told to install.
var folder = regexp.MustCompile(`vmmc library folder=([^\x00]+)\x00`)

// goPartOf is the file that the part in C at path loads: the first one that is there, in the order in
// which the library looks. Without one it is the first.
func goPartOf(path string) string {
	beside := filepath.Join(filepath.Dir(path), goPart)
	places := []string{beside}
	if named := env.Get("VMMC_GO_LIBRARY"); named != "" {
		places = append(places, named)
	}
	if b, err := os.ReadFile(path); err == nil {
		if m := folder.FindSubmatch(b); m != nil {
			places = append(places, filepath.Join(string(m[1]), goPart))
		}
	}
	for _, p := range places {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return beside
}

// cLibrary looks at the C library that programs are linked with, and whether its two parts and the
// daemon of this release fit together. It is the first one that the dynamic linker finds.
func cLibrary(_ context.Context, n *Node) []Finding {
	const name = "C library"
	const again = "install both parts of one release again: make -C c install"
	dirs := n.LibraryDirs
	if dirs == nil {
		dirs = LibraryDirs()
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, cPart)
		layout, _, err := readMark(path, "c")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
			continue // as the dynamic linker does
		}
		if err != nil {
			return bad(Failed, name, again, "%v", err)
		}
		if layout == "" {
			return bad(Failed, name, again, "%s is of an older release, or no library of vmmc", path)
		}
		other := goPartOf(path)
		goLayout, protocol, err := readMark(other, "go")
		switch {
		case err != nil:
			return bad(Failed, name, again, "%s has no part in Go: %v", path, err)
		case goLayout == "":
			return bad(Failed, name, again, "%s is of an older release, or no library of vmmc", other)
		case goLayout != layout:
			return bad(Failed, name, again, "%s has layout %s, and %s has layout %s", path, layout, other, goLayout)
		case protocol != protocolVersion:
			return bad(Failed, name, "install library and daemon of one release",
				"%s speaks protocol %s with its node, and the daemon of this release %s", other, protocol, protocolVersion)
		}
		return good(name, "%s fits the daemon of this release (protocol %s)", path, protocol)
	}
	return good(name, "it is not installed; only programs in C and Python need it")
}
