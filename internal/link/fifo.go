package link

// fifo is a queue whose memory is used again: in the steady state it allocates
// nothing, and taking from a long one moves nothing.
type fifo[T any] struct {
	items []T
	head  int // what is before was taken
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) {
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 { // else moving what is there would be most of the work
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

// at gives the i-th oldest, valid until the next push or pop.
func (f *fifo[T]) at(i int) *T { return &f.items[f.head+i] }

func (f *fifo[T]) pop() {
	var none T
	f.items[f.head] = none
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
}
