package rpcgo_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/rpcgo"
	"github.com/vmmc-go/vmmc/internal/rpcl"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// values makes messages of the types of a package: words at random of a kind that lengths, cases
// and text often are, of which as many are taken as the type decodes. It is part of the program
// that TestProtocolsAsC makes.
const values = `
type codec interface {
	xdr.Marshaler
	xdr.Unmarshaler
}

func messages(types []func() codec, seed uint64, lenient bool) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	var out []byte
	in := make([]byte, 1<<12)
	for i, make := range types {
		for found, tries := 0, 0; found < 10 && tries < 5000; tries++ {
			for at := 0; at < len(in); at += 4 {
				word := r.Uint32N(4)
				switch r.IntN(6) {
				case 0:
					word = r.Uint32() << (8 * r.IntN(4))
				case 1:
					word = 0x61626364 << (8 * r.IntN(4))
				}
				binary.BigEndian.PutUint32(in[at:], word)
			}
			v := make()
			d := xdr.NewDecoder(in, xdr.Copy)
			if v.DecodeXDR(d); d.Err() != nil || hasNUL(reflect.ValueOf(v)) {
				continue
			}
			b, err := xdr.Marshal(v)
			if err == nil && lenient && len(b) == d.Offset() {
				// A char or a short is also taken without its sign.
				again := make()
				if err = xdr.Unmarshal(b, again); err == nil && !reflect.DeepEqual(again, v) && !hasNaN(in) {
					panic(fmt.Sprintf("%T: %x is not what it was once it was encoded", v, b))
				}
			} else if err != nil || !bytes.Equal(b, in[:d.Offset()]) {
				panic(fmt.Sprintf("%T: %x was decoded, and encoded it is %x, %v", v, in[:d.Offset()], b, err))
			}
			found++
			out = binary.BigEndian.AppendUint32(out, uint32(i))
			out = binary.BigEndian.AppendUint32(out, uint32(len(b)))
			out = append(out, b...)
		}
	}
	return out
}

// hasNaN reports whether there may be a number that is not even equal to itself.
func hasNaN(in []byte) bool {
	for at := 0; at < len(in); at += 4 {
		if in[at]&0x7f == 0x7f && in[at+1]&0x80 != 0 {
			return true
		}
	}
	return false
}

// hasNUL reports whether a string ends in C before it ends.
func hasNUL(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return strings.Contains(v.String(), "\x00")
	case reflect.Pointer:
		return !v.IsNil() && hasNUL(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if hasNUL(v.Field(i)) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if hasNUL(v.Index(i)) {
				return true
			}
		}
	}
	return false
}
`

// The types of whole protocols are the same bytes in Go and in C.
func TestProtocolsAsC(t *testing.T) {
	files := []string{"testdata/nfs3.x", "testdata/mount3.x", "testdata/nlm4.x"}
	for _, name := range []string{"nfs_prot", "nlm_prot", "yp", "rex"} {
		files = append(files, "/usr/include/rpcsvc/"+name+".x")
	}
	sameAsC(t, files, 20, false)
}

// sameAsC fails unless the types of files are the same bytes in Go and in C, in at least so many
// values of each file. Lenient is for files with chars and shorts.
func sameAsC(t *testing.T, files []string, least int, lenient bool) {
	t.Helper()
	golang, err := exec.LookPath("go")
	testutil.Require(t, err == nil, "there is no go command")
	rpcgen, err := exec.LookPath("rpcgen")
	testutil.Require(t, err == nil, "there is no rpcgen: install rpcsvc-proto")
	gcc, err := exec.LookPath("gcc")
	testutil.Require(t, err == nil, "there is no gcc")
	_, err = os.Stat("/usr/include/tirpc/rpc/rpc.h")
	testutil.Require(t, err == nil, "there is no libtirpc to build with: install libtirpc-dev")
	dir, err := os.MkdirTemp("testdata", "made-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	imports, tables := "", ""
	for i, path := range files {
		pkg := fmt.Sprintf("p%d", i)
		write(filepath.Join(dir, pkg, "made.go"), string(generate(t, path, pkg)))
		f, err := rpcl.Load(path, rpcl.Options{Open: os.ReadFile})
		if err != nil {
			t.Fatal(err)
		}
		imports += fmt.Sprintf("%q\n", "github.com/vmmc-go/vmmc/internal/rpcgo/"+filepath.ToSlash(filepath.Join(dir, pkg)))
		tables += "{\n"
		list := ""
		names := rpcgo.TypeNames(f)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			tables += fmt.Sprintf("func() codec { return new(%s.%s) },\n", pkg, names[name])
			list += fmt.Sprintf("T(%s)\n", name)
		}
		tables += "},\n"
		write(filepath.Join(dir, pkg, "types.inc"), list)
	}
	write(filepath.Join(dir, "main.go"), `package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/xdr"
	`+imports+`)
`+values+`
func main() {
	for i, types := range [][]func() codec{
`+tables+`
	} {
		if err := os.WriteFile(os.Args[1]+"/p"+strconv.Itoa(i)+"/messages", messages(types, uint64(i), `+strconv.FormatBool(lenient)+`), 0o600); err != nil {
			panic(err)
		}
	}
}
`)
	run := func(in []byte, at, name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir, c.Stdin = at, bytes.NewReader(in)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run(nil, "", golang, "run", "./"+filepath.ToSlash(dir), dir)
	check, err := filepath.Abs("testdata/check.c")
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range files {
		at := filepath.Join(dir, fmt.Sprintf("p%d", i))
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// C's library has this type, and the same.
		write(filepath.Join(at, "made.x"), strings.ReplaceAll(string(src), "typedef opaque netobj<MAXNETOBJ_SZ>;", ""))
		run(nil, at, rpcgen, "-N", "-C", "-h", "-o", "made.h", "made.x")
		run(nil, at, rpcgen, "-N", "-C", "-c", "-o", "made_xdr.c", "made.x")
		// C that rpcgen makes of arrays of bools has a name that is not its own.
		run(nil, at, gcc, "-w", "-Dbool=bool_t", "-I.", "-I/usr/include/tirpc", "-o", "check", check, "made_xdr.c", "-ltirpc")
		messages, err := os.ReadFile(filepath.Join(at, "messages"))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(run(messages, at, "./check")))
		if err != nil || n < least {
			t.Errorf("%s: %d values were compared, %v", path, n, err)
		}
		t.Logf("%s: %d values", path, n)
	}
}
