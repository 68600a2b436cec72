// Package route has the senders and receivers of all messages, in order, of the programs
// RandomChain, RandomOne2All and RandomAll2All. Draw makes a route. Check, which shares
// nothing with it, says whether one is as the manual has it.
package route

import "fmt"

// Kind is one of the three programs' ways.
type Kind string

// The kinds. A is the master.
const (
	Chain   Kind = "A->B, B->C, ..., X->A"
	One2All Kind = "A->others, others->B, B->others, ..., others->A"
	All2All Kind = "All->All, All->All, ..."
)

// Message is a message of a route. All messages of a step come before those of the
// next one, at each rank. Ranks count from 0, the master.
type Message struct {
	Step int `json:"step"`
	From int `json:"from"`
	To   int `json:"to"`
}

func (m Message) String() string { return fmt.Sprintf("%d->%d", m.From, m.To) }

// Messages bounds how many messages a route has.
func Messages(k Kind, n, iterations int) int {
	switch k {
	case Chain:
		return iterations + 1
	case One2All:
		return 2 * (iterations + 1) * (n - 1)
	}
	return iterations * n * (n - 1)
}
