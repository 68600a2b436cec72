package route

import "fmt"

// Check says what of a route is not as the manual has it.
func Check(k Kind, n, iterations int, route []Message) error {
	steps, err := split(n, route)
	if err != nil {
		return err
	}
	switch k {
	case Chain:
		return checkChain(iterations, steps)
	case One2All:
		return checkOne2All(n, iterations, steps)
	case All2All:
		return checkAll2All(n, iterations, steps)
	}
	return fmt.Errorf("no kind of route %q", k)
}

// split cuts a route into its steps, which must be numbered without a gap.
func split(n int, route []Message) ([][]Message, error) {
	var steps [][]Message
	for i, m := range route {
		if m.From < 0 || m.From >= n || m.To < 0 || m.To >= n || m.From == m.To {
			return nil, fmt.Errorf("message %d goes %v: there are ranks 0 to %d, and none sends to itself", i, m, n-1)
		}
		if m.Step == len(steps) {
			steps = append(steps, nil)
		}
		if m.Step != len(steps)-1 {
			return nil, fmt.Errorf("message %d is of step %d and comes in step %d", i, m.Step, len(steps)-1)
		}
		steps[m.Step] = append(steps[m.Step], m)
	}
	return steps, nil
}

// checkHops checks how often the master's way through the ranks goes on: once for
// each iteration, and once more to come home.
func checkHops(hops, iterations, last int) error {
	if hops != iterations && hops != iterations+1 {
		return fmt.Errorf("%d ranks were chosen in %d iterations", hops, iterations)
	}
	if last != 0 {
		return fmt.Errorf("it ends at rank %d, not at the master", last)
	}
	return nil
}

func checkChain(iterations int, steps [][]Message) error {
	at := 0
	for i, s := range steps {
		if len(s) != 1 || s[0].From != at {
			return fmt.Errorf("step %d is %v, wanted one message from rank %d", i, s, at)
		}
		at = s[0].To
	}
	return checkHops(len(steps), iterations, at)
}

func checkOne2All(n, iterations int, steps [][]Message) error {
	at := 0
	for i, s := range steps {
		to := s[0].To // in a step to one rank
		seen := map[int]bool{}
		for _, m := range s {
			if i%2 == 0 {
				if m.From != at {
					return fmt.Errorf("step %d has %v, wanted messages from rank %d to all others", i, m, at)
				}
				seen[m.To] = true
			} else {
				if m.To != to || to == at {
					return fmt.Errorf("step %d has %v, wanted messages from all others to one that is not rank %d", i, m, at)
				}
				seen[m.From] = true
			}
		}
		if len(s) != n-1 || len(seen) != n-1 {
			return fmt.Errorf("step %d has %d messages with %d ranks at the other end, wanted %d",
				i, len(s), len(seen), n-1)
		}
		if i%2 == 1 {
			at = to
		}
	}
	if len(steps)%2 != 0 {
		return fmt.Errorf("after %d steps nobody has answered the last one", len(steps))
	}
	return checkHops(len(steps)/2, iterations, at)
}

func checkAll2All(n, iterations int, steps [][]Message) error {
	if len(steps) != iterations {
		return fmt.Errorf("%d steps, wanted one for each of %d iterations", len(steps), iterations)
	}
	for i, s := range steps {
		seen := map[[2]int]bool{}
		for _, m := range s {
			seen[[2]int{m.From, m.To}] = true
		}
		if want := n * (n - 1); len(s) != want || len(seen) != want {
			return fmt.Errorf("step %d has %d messages between %d pairs, wanted %d",
				i, len(s), len(seen), want)
		}
	}
	return nil
}
