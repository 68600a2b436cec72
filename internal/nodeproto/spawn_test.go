package nodeproto

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/code"
)

// What Check lets pass fits into a packet and comes out as it went in.
func TestSpawnRequestFits(t *testing.T) {
	full := MaxSpawn - 2
	many := make([][]byte, full/ArgCost)
	for name, r := range map[string]SpawnRequest{
		"one argument":       {Args: [][]byte{bytes.Repeat([]byte{0xff}, full-ArgCost)}},
		"empty arguments":    {Args: many},
		"small arguments":    {Args: slicesOf(full/(ArgCost+1), "\xfe")},
		"long path":          {Path: bytes.Repeat([]byte{1}, full)},
		"long list of hosts": {Hosts: bytes.Repeat([]byte{'"'}, full)},
	} {
		r.Node = strings.Repeat("n", 255)
		r.Directory = []byte("/")
		if r.Path == nil {
			r.Path = []byte("p")
		} else {
			r.Path = r.Path[1:]
		}
		if err := r.Check(""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b, err := encode(header{kind: request, method: Spawn}, r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, body, err := parse(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode[SpawnRequest](body)
		if err != nil || !bytes.Equal(got.Path, r.Path) || !bytes.Equal(bytes.Join(got.Args, []byte{0}),
			bytes.Join(r.Args, []byte{0})) {
			t.Errorf("%s: it came out differently (%v)", name, err)
		}
	}
}

func slicesOf(n int, s string) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = []byte(s)
	}
	return out
}

func TestSpawnRequestCheck(t *testing.T) {
	good := func() SpawnRequest {
		return SpawnRequest{Path: []byte("p"), Directory: []byte("/d"), Args: [][]byte{nil, []byte("a")}}
	}
	for name, c := range map[string]struct {
		change  func(*SpawnRequest)
		session string
		says    string // empty: it is good
	}{
		"good":              {func(*SpawnRequest) {}, "s", ""},
		"no path":           {func(r *SpawnRequest) { r.Path = nil }, "", "path is empty"},
		"zero in path":      {func(r *SpawnRequest) { r.Path = []byte("a\x00b") }, "", "zero byte"},
		"zero in argument":  {func(r *SpawnRequest) { r.Args = [][]byte{{0}} }, "", "zero byte"},
		"zero in hosts":     {func(r *SpawnRequest) { r.Hosts = []byte{0} }, "", "zero byte"},
		"zero in directory": {func(r *SpawnRequest) { r.Directory = []byte("/\x00") }, "", "zero byte"},
		"zero in session":   {func(*SpawnRequest) {}, "a\x00", "zero byte"},
		"too long": {func(r *SpawnRequest) {
			r.Args = [][]byte{bytes.Repeat([]byte{1}, MaxSpawn)}
		}, "", "at most"},
		"too many":     {func(r *SpawnRequest) { r.Args = make([][]byte, MaxSpawn/ArgCost) }, "", "at most"},
		"long session": {func(*SpawnRequest) {}, strings.Repeat("s", MaxSpawn), "at most"},
		"relative":     {func(r *SpawnRequest) { r.Directory = []byte("d") }, "", "does not begin with /"},
		"no directory": {func(r *SpawnRequest) { r.Directory = nil }, "", "does not begin with /"},
	} {
		r := good()
		c.change(&r)
		err := r.Check(c.session)
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, code.BadArg) ||
			!strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// FuzzSpawnRequest: whatever passes Check can go on to another node or process.
func FuzzSpawnRequest(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte, session string) {
		r, err := Decode[SpawnRequest](body)
		if err != nil || r.Check(session) != nil {
			return
		}
		r.Node = "n"
		if _, err := encode(header{kind: request, method: Spawn}, r); err != nil {
			t.Error(err)
		}
	})
}
