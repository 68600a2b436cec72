package main

import "context"

// iteration sends one message to each other rank and awaits one from each.
func (e *exchange) iteration(ctx context.Context, i int) error {
	if e.method == pairwise {
		return e.pairwise(ctx, i)
	}
	return e.random(ctx, i)
}

func (e *exchange) pairwise(ctx context.Context, i int) error {
	for k := 1; k < e.nodes; k++ {
		to := (e.mesh.Rank + k) % e.nodes
		if err := e.mesh.Pairs[to].Send(ctx, e.message(i, to)); err != nil {
			return err
		}
		from := (e.mesh.Rank - k + e.nodes) % e.nodes
		if _, err := e.mesh.Pairs[from].Receive(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *exchange) random(ctx context.Context, i int) error {
	for _, k := range e.order.Perm(e.nodes - 1) {
		to := (e.mesh.Rank + 1 + k) % e.nodes
		if err := e.mesh.Pairs[to].Send(ctx, e.message(i, to)); err != nil {
			return err
		}
	}
	for _, p := range e.others() {
		if _, err := p.Receive(ctx); err != nil {
			return err
		}
	}
	return nil
}
