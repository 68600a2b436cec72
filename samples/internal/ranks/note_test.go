package ranks

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

func TestNotes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "text")
		area := make([]byte, 64)
		note := seal(text)
		copy(area[len(area)-len(note):], note)
		got, err := unseal(area)
		if err != nil || string(got) != string(text) {
			t.Fatalf("%q became %q (%v)", text, got, err)
		}
	})
}

// What another process announces is not believed beyond the memory that there is.
func TestNoteTooLong(t *testing.T) {
	for _, n := range []uint32{61, 1 << 31, 1<<32 - 1} {
		area := make([]byte, 64)
		binary.LittleEndian.PutUint32(area[60:], n)
		if text, err := unseal(area); err == nil {
			t.Errorf("%d bytes in 64: %q", n, text)
		}
	}
}
