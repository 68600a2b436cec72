package mpiabi

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"strings"
)

//go:embed calls.txt
var callsText string

// prototype is a call as C declares it.
type prototype struct {
	name   string
	number int
	params []param
	alone  bool // The C library executes it without Go.
}

// param is an argument of a call. width is the size of an integer, or of what a pointer points to.
type param struct {
	name    string
	typ     string // without const, pointers and brackets
	pointer bool
	width   int
	output  bool // The call stores what it points to, at all ranks.
}

// prototypes are the calls of calls.txt, by their numbers.
var prototypes = parsePrototypes(callsText)

// numbers are the numbers of calls by name.
var numbers = func() map[string]int {
	m := make(map[string]int, len(prototypes))
	for number, p := range prototypes {
		m[p.name] = number
	}
	return m
}()

// TableHash is the hash of calls.txt that the C library gives with each call: numbers of another table
// would name other calls.
var TableHash = func() uint64 {
	h := fnv.New64a()
	for _, p := range prototypes {
		fmt.Fprintf(h, "%s %d\n", p.name, len(p.params))
	}
	return h.Sum64()
}()

func parsePrototypes(text string) []*prototype {
	var all []*prototype
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p, err := parsePrototype(line)
		if err != nil {
			panic(fmt.Sprintf("mpiabi: calls.txt, line %d: %v", i+1, err)) // The text is part of the program.
		}
		p.number = len(all)
		all = append(all, p)
	}
	return all
}

// parsePrototype reads a line: "c" if the C library executes the call alone, otherwise "go", a tab, and
// the prototype.
func parsePrototype(line string) (*prototype, error) {
	by, text, ok := strings.Cut(line, "\t")
	if !ok || by != "c" && by != "go" {
		return nil, fmt.Errorf("%q does not begin with c or go, and a tab", line)
	}
	head, rest, ok := strings.Cut(text, "(")
	end := strings.LastIndex(rest, ")")
	words := strings.Fields(head)
	if !ok || end < 0 || len(words) < 2 {
		return nil, fmt.Errorf("%q is no prototype", text)
	}
	p := &prototype{name: strings.TrimLeft(words[len(words)-1], "*"), alone: by == "c"}
	list := strings.TrimSpace(rest[:end])
	if list == "" || list == "void" {
		return p, nil
	}
	for _, text := range strings.Split(list, ",") {
		p.params = append(p.params, parseParam(strings.TrimSpace(text)))
	}
	return p, nil
}

func parseParam(text string) param {
	var out param
	out.pointer = strings.ContainsAny(text, "*[")
	stars := strings.Count(text, "*")
	constant := strings.HasPrefix(text, "const ")
	text, _, _ = strings.Cut(text, "[")
	var words []string
	for _, w := range strings.Fields(strings.ReplaceAll(text, "*", " ")) {
		if w != "const" {
			words = append(words, w)
		}
	}
	if n := len(words); n > 0 {
		out.typ, out.name = words[0], words[n-1]
	}
	// The root of MPI_Bcast only reads its buffer, which may be a constant.
	out.output = out.pointer && !constant && out.name != "buffer"
	out.width = widthOf(out.typ)
	if stars > 1 {
		out.width = 8
	}
	return out
}

// widthOf is how many bytes a C type has in the ABI on a machine of 64 bits.
func widthOf(typ string) int {
	switch typ {
	case "char", "void":
		return 1
	case "int", "MPI_Fint":
		return 4
	case "MPI_Status":
		return statusSize
	}
	return 8 // a handle, MPI_Aint, MPI_Count, MPI_Offset, double, or a function
}

// handleParam is the index of the first argument that is a handle of a type, or -1.
func (p *prototype) handleParam(typ string) int {
	for i, a := range p.params {
		if a.typ == typ && !a.pointer {
			return i
		}
	}
	return -1
}
