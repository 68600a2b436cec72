package vrpc

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A term's context lasts for the time and no longer than twice that, is made anew only now and
// then, and ends with its base.
func TestTerm(t *testing.T) {
	base, stop := context.WithCancel(t.Context())
	defer stop()
	long := term{base: base, least: time.Hour}
	defer long.end()
	first := long.context()
	if end, ok := first.Deadline(); !ok || time.Until(end) < time.Hour || time.Until(end) > 2*time.Hour {
		t.Errorf("it ends at %v", end)
	}
	if long.context() != first {
		t.Error("the next one is another though there is time left")
	}
	long.began = long.began.Add(-90 * time.Minute)
	second := long.context()
	if end, _ := second.Deadline(); second == first || time.Until(end) < time.Hour {
		t.Errorf("half an hour before its end the same is given: %v", end)
	}
	if first.Err() == nil {
		t.Error("the one before goes on")
	}
	short := term{base: base, least: time.Millisecond}
	defer short.end()
	c := short.context()
	<-c.Done()
	if !errors.Is(c.Err(), context.DeadlineExceeded) {
		t.Error(c.Err())
	}
	stop()
	if second.Err() == nil {
		t.Error("it outlives its base")
	}
	if c := (&term{base: base}).context(); c != base {
		t.Error("what has no bound has another context than its base")
	}
}

// Pieces whose padding follows them become words of the same bytes, and none is copied but words.
func TestWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts [][]byte
		var want []byte
		for i := range rapid.IntRange(0, 5).Draw(t, "pieces") {
			data := bytes.Repeat([]byte{byte(i + 1)}, rapid.IntRange(0, 20).Draw(t, "bytes"))
			more := make([]byte, -len(data)&3+4*rapid.IntRange(0, 3).Draw(t, "words"))
			parts = append(parts, data, more)
			want = append(append(want, data...), more...)
		}
		words := whole(nil, parts)
		if got := bytes.Join(words, nil); !bytes.Equal(got, want) {
			t.Fatalf("%x became %x", want, got)
		}
		for _, w := range words {
			if len(w)%4 != 0 || len(w) == 0 {
				t.Fatalf("a piece of %d bytes", len(w))
			}
		}
	})
}
