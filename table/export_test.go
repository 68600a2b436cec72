package table

import (
	"fmt"

	"github.com/vmmc-go/vmmc"
)

// Unmapped has readers get by the stream.
func Unmapped() Option {
	return func(o *options) { o.export = append(o.export, vmmc.Unmapped()) }
}

// Home is the bucket that a key belongs to.
func (t *Table[K, V]) Home(k K) uint32 {
	c := t.begin(k, 0)
	return t.home(sipHash(t.seed, t.keys.Of(&c.k)))
}

// Buckets is how many buckets a key's home has.
func (t *Table[K, V]) Buckets(k K) (n int) {
	for b := t.Home(k); ; n++ {
		if b = t.head(b).next; b == 0 {
			return n + 1
		}
	}
}

// Check returns how the table's memory is not as it should be.
func (t *Table[K, V]) Check() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	entries, used := 0, 0
	for home := range t.homes {
		for b := home; ; used++ {
			h, heads := t.head(b), t.headsOf(b)
			n := h.entries()
			entries += n
			switch {
			case h.home != home:
				return fmt.Errorf("bucket %d has home %d, want %d", b, h.home, home)
			case n > perBucket || h.next != 0 && n != perBucket || b != home && n == 0:
				return fmt.Errorf("bucket %d has %d entries, its next one is %d", b, n, h.next)
			case !isHead(headAt(heads, committed(heads)), &t.secret, b):
				return fmt.Errorf("the head of bucket %d is not whole", b)
			}
			for i, g := range h.tags {
				s := t.slotAt(b, i)
				hash := sipHash(t.seed, s[keyOff:keyOff+t.key])
				if g != 0 && (!t.isSlot(s, &t.secret, b, i) || t.home(hash) != home || tag(hash) != g) {
					return fmt.Errorf("slot %d of bucket %d has tag %#x and is %x", i, b, g, s)
				}
			}
			if b = h.next; b == 0 {
				break
			}
		}
	}
	if entries != t.n || used+len(t.unused) != int(t.overflow) {
		return fmt.Errorf("%d entries, want %d; %d and %d of %d overflow buckets",
			entries, t.n, used, len(t.unused), t.overflow)
	}
	return nil
}

// Import is the reader's.
func (r *Reader[K, V]) Import() *vmmc.Import { return r.source.Load().im }

// Whole reports whether the reader gets buckets as a whole.
func (r *Reader[K, V]) Whole() bool { return r.source.Load().whole }

// BucketSize is how many bytes a bucket has.
func BucketSize[K comparable, V any](r *Reader[K, V]) int { return r.source.Load().bucket }
