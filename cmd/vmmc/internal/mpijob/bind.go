package mpijob

import (
	"fmt"
	"strconv"
	"strings"
)

// Binding says which processors the ranks of a node may run on. The zero one binds none.
type Binding struct {
	each bool    // one of the processors that the tool may use to each rank, in turn
	sets [][]int // of the ranks of a node, in turn
}

// maxProcessor is the greatest number of a processor.
const maxProcessor = 8191

// ParseBinding reads "none", "core", or sets of processors as "0,1+3,4-7".
func ParseBinding(s string) (b Binding, err error) {
	switch s {
	case "none":
		return b, nil
	case "core", "hwthread":
		return Binding{each: true}, nil
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(s, "user:"), ",") {
		var set []int
		for span := range strings.SplitSeq(part, "+") {
			from, to, ranged := strings.Cut(span, "-")
			if !ranged {
				to = from
			}
			lo, err1 := strconv.Atoi(from)
			hi, err2 := strconv.Atoi(to)
			if err1 != nil || err2 != nil || lo < 0 || hi < lo || hi > maxProcessor {
				return b, fmt.Errorf("%q is no processor: want none, core, or sets as 0,1+3,4-7", span)
			}
			for cpu := lo; cpu <= hi; cpu++ {
				set = append(set, cpu)
			}
		}
		b.sets = append(b.sets, set)
	}
	return b, nil
}

// None reports whether ranks may run anywhere.
func (b Binding) None() bool { return !b.each && len(b.sets) == 0 }

// Turn returns the number of the processor that a node's rank with a number among those of the node is
// bound to, from 1 on and in turn among those that the node has, or else processors; 0 and none if it
// may run anywhere.
func (b Binding) Turn(local int) (turn int, processors []int) {
	if b.each {
		return local + 1, nil
	}
	return 0, b.Of(local, nil)
}

// Of returns the processors of a node's rank with a number among those of the node, out of those that
// the node has; none if it may run anywhere.
func (b Binding) Of(local int, have []int) []int {
	switch {
	case b.each && len(have) > 0:
		return have[local%len(have) : local%len(have)+1]
	case len(b.sets) > 0:
		return b.sets[local%len(b.sets)]
	}
	return nil
}
