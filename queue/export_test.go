package queue

import (
	"time"

	"github.com/vmmc-go/vmmc"
)

func init() { closeTime = time.Minute } // only a guard against hanging

// StartAt numbers the values of each producer from n on.
func StartAt(n uint64) Option { return func(o *options) { o.start = n } }

// Unmapped has the values go by the stream.
func Unmapped() Option {
	return func(o *options) { o.export = append(o.export, vmmc.Unmapped()) }
}

// Values is how many values of all producers have arrived and were not taken. No get may be under
// way.
func (c *Consumer[T]) Values() (n int) {
	for _, l := range *c.lanes.Load() {
		for i := l.next; i < l.next+c.slots; i++ {
			if w, err := l.own.Word(c.offset(i) + c.slot - wordSize); err != nil || w.Load() != c.number(i) {
				break
			}
			n++
		}
	}
	return n
}

// Lanes is how many producers the consumer has.
func (c *Consumer[T]) Lanes() int { return len(*c.lanes.Load()) }
