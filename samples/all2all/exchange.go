package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/mesh"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
)

// limit bounds the iterations of a burst.
const limit = 1024

// exchange is what the command line asks for.
type exchange struct {
	flags                    command.Flags
	method                   string
	nodes, words, iterations int

	mesh   *mesh.Mesh
	order  *rand.Rand
	memory []byte // the messages of a burst, iteration by iteration
	next   uint32 // the number of the next iteration
}

// measure does all iterations, in bursts of as many as there are places for, and
// gives the time.
func (e *exchange) measure(ctx context.Context, m *ranks.Member) (took time.Duration, err error) {
	places := min(mesh.Places(e.words, e.nodes-1, limit), max(e.iterations, 2))
	if e.mesh, err = mesh.Open(ctx, m, mesh.Room(e.words, places), e.flags.Seed); err != nil {
		return 0, err
	}
	if err := e.mesh.Lay(ctx, e.words, places); err != nil {
		return 0, err
	}
	e.order = rand.New(rand.NewPCG(e.flags.Seed, uint64(m.Rank))) //nolint:gosec // the same each time is what it is for
	e.memory = make([]byte, places*e.nodes*e.words*vmmc.WordSize())
	if _, err := e.burst(ctx, min(places, e.iterations)); err != nil {
		return 0, err
	}
	e.mesh.Checked = mesh.Count{}
	for left := e.iterations; left > 0; {
		n := min(places, left)
		t, err := e.burst(ctx, n)
		if err != nil {
			return 0, err
		}
		took += t
		left -= n
	}
	return took, nil
}

func (e *exchange) burst(ctx context.Context, n int) (time.Duration, error) {
	for i := range n {
		for r := range e.others() {
			e.mesh.Fill(r, e.next+uint32(i), e.message(i, r))
		}
	}
	if err := e.mesh.Barrier(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	for i := range n {
		if err := e.iteration(ctx, i); err != nil {
			return 0, err
		}
	}
	if err := e.mesh.Barrier(ctx); err != nil { // all have all
		return 0, err
	}
	took := time.Since(start)
	for r, p := range e.others() {
		for i := range n {
			place := p.Received(n - 1 - i)
			if err := e.mesh.Check(r, e.next+uint32(i), place[len(place)-e.words*vmmc.WordSize():]); err != nil {
				return 0, err
			}
		}
		if err := p.Free(ctx); err != nil {
			return 0, err
		}
	}
	e.next += uint32(n)
	return took, nil
}

// message is this rank's i-th one of the burst to rank r.
func (e *exchange) message(i, r int) []byte {
	size := e.words * vmmc.WordSize()
	return e.memory[(i*e.nodes+r)*size:][:size]
}

// others yields all ranks but this one.
func (e *exchange) others() func(func(int, *mesh.Pair) bool) {
	return func(yield func(int, *mesh.Pair) bool) {
		for r, p := range e.mesh.Pairs {
			if p != nil && !yield(r, p) {
				return
			}
		}
	}
}
