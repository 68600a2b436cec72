package command

import (
	"strconv"

	"github.com/vmmc-go/vmmc"
)

// Number is a numeric argument: its name on the command line, and what it may be.
type Number struct {
	Name     string
	Min, Max int
}

// The numbers that several programs take.
var (
	// MaxWords is the length of the longest message, 64 MiB: a rank has memory for
	// two from each other one.
	MaxWords      = 64 << 20 / vmmc.WordSize()
	MaxIterations = 1 << 30
	MaxNodes      = 64
)

// Numbers reads arguments.
func Numbers(args []string, as ...Number) ([]int, error) {
	if len(args) != len(as) {
		return nil, Usage("%d arguments, wanted %d", len(args), len(as))
	}
	var out []int
	for i, n := range as {
		v, err := strconv.Atoi(args[i])
		if err != nil || v < n.Min || v > n.Max {
			return nil, Usage("%s %q: wanted a number from %d to %d", n.Name, args[i], n.Min, n.Max)
		}
		out = append(out, v)
	}
	return out, nil
}

// CheckMemory refuses messages of a length for which a rank would need more than
// 1 GiB for what the others send to it.
func CheckMemory(nodes, words int) error {
	if most := 8 * MaxWords / (nodes - 1); words > most {
		return Usage("%d words: with %d nodes a message has at most %d", words, nodes, most)
	}
	return nil
}
