package queue

import "github.com/vmmc-go/vmmc"

// StartAt numbers the values of each producer from n on.
func StartAt(n uint64) Option { return func(o *options) { o.start = n } }

// Unmapped has the values go by the stream.
func Unmapped() Option {
	return func(o *options) { o.export = append(o.export, vmmc.Unmapped()) }
}

// Lanes is how many producers the consumer has.
func (c *Consumer[T]) Lanes() int { return len(*c.lanes.Load()) }
