package link

// fifo is a queue that reuses its memory: in the steady state it allocates nothing, and popping
// from a long queue moves nothing.
type fifo[T any] struct {
	items []T
	head  int // Index of the oldest item.
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) {
	// otherwise moving the items would be most of the work
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

// at returns the i-th oldest item, valid until the next push or pop.
func (f *fifo[T]) at(i int) *T { return &f.items[f.head+i] }

func (f *fifo[T]) pop() {
	var none T
	f.items[f.head] = none
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
}
