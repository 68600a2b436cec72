package link

import "testing"

// Who waits for a word looks at nothing else first only where there is nothing else.
func TestPlainLooksAreWhereMemoryIsAlone(t *testing.T) {
	c := newCopier(t)
	if c.a.Looks() == 0 {
		t.Error("memory is alone, and there are no plain looks")
	}
	c.send(t, 0, false)
	if c.a.Looks() != 0 {
		t.Error("there are plain looks while a copy is left to who waits")
	}
	if err := c.out.caughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.a.hot[0].Store(&c.out.stream)
	if c.a.Looks() != 0 {
		t.Error("there are plain looks while a link is busy")
	}
	c.a.hot[0].Store(nil)
	if c.a.Looks() == 0 {
		t.Error("there are no plain looks any more")
	}
}
