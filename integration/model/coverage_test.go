package model_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// table counts what the sequences have reached. What it is to count is declared
// beforehand: what is never reached is then seen.
type table struct {
	mu     sync.Mutex
	order  []string // sections
	names  map[string][]string
	counts map[string]int
}

var coverage = &table{names: map[string][]string{}, counts: map[string]int{}}

// declare adds things to count to a section.
func declare(section string, names ...string) bool {
	if _, ok := coverage.names[section]; !ok {
		coverage.order = append(coverage.order, section)
	}
	for _, n := range names {
		key := section + ": " + n
		if _, twice := coverage.counts[key]; twice {
			panic("declared twice: " + key)
		}
		coverage.counts[key] = 0
		coverage.names[section] = append(coverage.names[section], n)
	}
	return true
}

// reach counts one thing.
func reach(section, name string) {
	key := section + ": " + name
	coverage.mu.Lock()
	defer coverage.mu.Unlock()
	if _, ok := coverage.counts[key]; !ok {
		panic("not declared: " + key)
	}
	coverage.counts[key]++
}

// print shows the table and gives what was never reached.
func (c *table) print(t *testing.T) (missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, s := range c.order {
		fmt.Fprintf(&b, "%s\n", s)
		for _, n := range c.names[s] {
			k := c.counts[s+": "+n]
			fmt.Fprintf(&b, "  %9d  %s\n", k, n)
			if k == 0 {
				missing = append(missing, s+": "+n)
			}
		}
	}
	t.Logf("reached, in all sequences:\n%s", b.String())
	return missing
}
