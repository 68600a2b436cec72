package link

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// traceFiles are the golden traces of the mapped path. The package comment of internal/shmlayout
// describes their format.
const traceFiles = "testdata/traces/*.txt"

// trace is one of them: a call of a sender, and what it does to the pages of its link.
type trace struct {
	name  string
	lines []string // All lines before those that are expected, comments included.

	handle, slot, alive uint32 // The import.
	addr                uint64
	size                int

	puts  []put             // Stored before the call.
	words map[string]uint64 // The sender's own words.
	peer  []reaction        // Stored by the peer process during the call.

	op          string
	off, n, at  int
	expected    []string
	description string // file and line, for messages
}

// put is a store into an area.
type put struct {
	area string
	off  int
	b    []byte
}

// reaction is a store by the peer process, when the sender first changes one of n bytes of an area.
type reaction struct {
	area   string
	off, n int
	put    put
}

// patternByte is byte i of a source, or of memory that is read: never 0, and never the byte with
// which areas are filled.
func patternByte(i int) byte { return byte(1 + i%200) }

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = patternByte(i)
	}
	return b
}

// readTraces reads all files, by their names.
func readTraces(t testing.TB) map[string][]*trace {
	t.Helper()
	names, err := filepath.Glob(traceFiles)
	if err != nil || len(names) == 0 {
		t.Fatalf("traces %s: %d files, %v", traceFiles, len(names), err)
	}
	all := map[string][]*trace{}
	for _, name := range names {
		traces, err := parseTraces(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = traces
	}
	return all
}

// parseTraces reads a file of traces.
func parseTraces(name string) ([]*trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []*trace
	var tr *trace
	var before []string
	in := bufio.NewScanner(f)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0][0] == '#':
			before = append(before, line)
			continue
		case words[0] == "trace" && len(words) == 2:
			tr = &trace{name: words[1], words: map[string]uint64{}, description: fmt.Sprintf("%s:%d", name, n)}
			all = append(all, tr)
		case tr == nil:
			err = fmt.Errorf("no trace has begun")
		case words[0] == "end":
			if tr.op == "" || tr.size == 0 {
				err = fmt.Errorf("trace %s has no call or no import", tr.name)
			}
			tr = nil
			continue
		case tr.op == "":
			err = tr.parse(words)
		default:
			tr.expected = append(tr.expected, line)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %q: %w", name, n, line, err)
		}
		tr.lines = append(tr.lines, append(before, line)...)
		before = nil
	}
	return all, in.Err()
}

// parse takes a line that precedes those that are expected.
func (tr *trace) parse(words []string) (err error) {
	number := func(i int) (n uint64) {
		if err == nil && i < len(words) {
			n, err = strconv.ParseUint(words[i], 0, 64)
		}
		return n
	}
	bytes := func(i int) (b []byte) {
		if err == nil && i < len(words) {
			b, err = hex.DecodeString(words[i])
		}
		return b
	}
	count := map[string][]int{
		"import": {6}, "fill": {5}, "pattern": {4}, "given": {4}, "word": {3}, "on": {7}, "call": {4, 5},
	}[words[0]]
	if !slices.Contains(count, len(words)) {
		return fmt.Errorf("unknown, or not %d words", count)
	}
	switch words[0] {
	case "import":
		tr.handle, tr.slot, tr.alive = uint32(number(1)), uint32(number(2)), uint32(number(3))
		tr.addr, tr.size = number(4), int(number(5))
	case "fill":
		n, b := int(number(3)), bytes(4)
		tr.puts = append(tr.puts, put{words[1], int(number(2)), slices.Repeat(b, n)})
	case "pattern":
		tr.puts = append(tr.puts, put{words[1], int(number(2)), pattern(int(number(3)))})
	case "given":
		tr.puts = append(tr.puts, put{words[1], int(number(2)), bytes(3)})
	case "word":
		tr.words[words[1]] = number(2)
	case "on":
		tr.peer = append(tr.peer, reaction{words[1], int(number(2)), int(number(3)), put{words[4], int(number(5)), bytes(6)}})
	case "call":
		tr.op, tr.off, tr.n = words[1], int(number(2)), int(number(3))
		if len(words) > 4 {
			tr.at = int(number(4))
		}
	}
	return err
}

// writeTraces writes a file with what the traces expect now.
func writeTraces(name string, all []*trace) error {
	var b strings.Builder
	for _, tr := range all {
		for _, line := range slices.Concat(tr.lines, tr.expected) {
			b.WriteString(line)
			b.WriteByte('\n')
		}
		b.WriteString("end\n")
	}
	return os.WriteFile(name, []byte(b.String()), 0o644)
}
