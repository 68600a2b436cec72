package mesh

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A message with one word changed is found out, and the word is named.
func TestEveryWordIsChecked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Mesh{seed: rapid.Uint64().Draw(t, "seed")}
		words := rapid.IntRange(1, 100).Draw(t, "words")
		c := h.key(0, 1).at(rapid.Uint32().Draw(t, "number"))
		b := make([]byte, 4*words)
		c.fill(b)
		if err := c.check(b); err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(0, words-1).Draw(t, "word")
		was := binary.LittleEndian.Uint32(b[4*at:])
		binary.LittleEndian.PutUint32(b[4*at:], was^rapid.Uint32Min(1).Draw(t, "change"))
		err := c.check(b)
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("word %d of %d is", at, words)) {
			t.Fatalf("word %d of %d is changed: %v", at, words, err)
		}
	})
}

// A message of another sender, receiver, run or number is not taken for the one
// that is awaited.
func TestContentDependsOnAll(t *testing.T) {
	h, other := Mesh{seed: 1}, Mesh{seed: 2}
	want := h.key(0, 1).at(5)
	for name, c := range map[string]content{
		"sender": h.key(2, 1).at(5), "receiver": h.key(0, 2).at(5), "direction": h.key(1, 0).at(5),
		"seed": other.key(0, 1).at(5), "number": h.key(0, 1).at(6),
	} {
		for _, words := range []int{1, 2, 16} {
			b := make([]byte, 4*words)
			c.fill(b)
			if want.check(b) == nil {
				t.Errorf("%d words of another %s pass", words, name)
			}
		}
	}
}

// The last word is never that of the message before, nor what is there at first.
func TestLastWordsDiffer(t *testing.T) {
	k := (&Mesh{seed: 9}).key(0, 1)
	before := k.base()
	for i := range uint32(1000) {
		if c := k.at(i); c.last == before {
			t.Fatalf("message %d ends as the one before", i)
		} else {
			before = c.last
		}
	}
}
