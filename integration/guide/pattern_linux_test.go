package guide

import (
	"encoding/json"
	"fmt"
)

// message is one of a pattern that a sample has recorded.
type message struct{ Step, From, To int }

// checkPattern says whether a pattern is as the manual has it. The samples check
// their own; this one has the manual's words only.
func checkPattern(kind string, nodes, iterations int, text []byte) error {
	var v struct{ Pattern []message }
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	if len(v.Pattern) == 0 {
		return fmt.Errorf("there is no message in it")
	}
	for i, m := range v.Pattern {
		if m.From == m.To || min(m.From, m.To) < 0 || max(m.From, m.To) >= nodes {
			return fmt.Errorf("message %d goes from %d to %d of %d nodes", i, m.From, m.To, nodes)
		}
	}
	switch kind {
	case "chain":
		return checkChain(v.Pattern)
	case "one2all":
		return checkOne2All(v.Pattern, nodes)
	}
	return checkAll2All(v.Pattern, nodes, iterations)
}

// A->B, B->C, C->D, ..., X->A
func checkChain(all []message) error {
	at := 0
	for i, m := range all {
		if m.From != at {
			return fmt.Errorf("message %d comes from %d, the one before went to %d", i, m.From, at)
		}
		at = m.To
	}
	if at != 0 {
		return fmt.Errorf("the chain ends at %d, not at the master", at)
	}
	return nil
}

// A->others, others->B, B->others, others->C, ..., others->A
func checkOne2All(all []message, nodes int) error {
	at := 0
	for i := 0; i < len(all); i += 2 * (nodes - 1) {
		if len(all)-i < 2*(nodes-1) {
			return fmt.Errorf("the last %d messages are no whole round", len(all)-i)
		}
		to, from := map[int]bool{}, map[int]bool{}
		next := all[i+nodes-1].To
		for k := range nodes - 1 {
			out, back := all[i+k], all[i+nodes-1+k]
			if out.From != at || back.To != next {
				return fmt.Errorf("round at message %d: %v and %v, from %d to the others and from these to %d", i, out, back, at, next)
			}
			to[out.To], from[back.From] = true, true
		}
		if len(to) != nodes-1 || len(from) != nodes-1 {
			return fmt.Errorf("round at message %d does not have all others in it", i)
		}
		at = next
	}
	if at != 0 {
		return fmt.Errorf("it ends at %d, not at the master", at)
	}
	return nil
}

// All->All, All->All, ... until <iterations> times
func checkAll2All(all []message, nodes, iterations int) error {
	seen := map[message]bool{}
	steps := map[int]int{}
	for _, m := range all {
		seen[m] = true
		steps[m.Step]++
	}
	if len(steps) != iterations || len(seen) != iterations*nodes*(nodes-1) || len(all) != len(seen) {
		return fmt.Errorf("%d messages, %d of them different, in %d steps; wanted one between any two in each of %d", len(all), len(seen), len(steps), iterations)
	}
	return nil
}
