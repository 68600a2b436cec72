package mesh

import "context"

// Own is place i of this rank's memory. What the other is to fetch may be put there
// if it does not send.
func (p *Pair) Own(i int) []byte { return p.mem[header+i*p.stride:][:p.stride] }

// Fetch reads from the end of place i of the other's memory.
func (p *Pair) Fetch(ctx context.Context, i int, to []byte) error {
	return p.im.Get(ctx, to, header+(i+1)*p.stride-len(to))
}
