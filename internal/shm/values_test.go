package shm

import (
	"bytes"
	"testing"
)

type pair struct {
	A uint32
	B [2]uint16
}

func TestValues(t *testing.T) {
	v, err := ValuesOf[pair]()
	if err != nil {
		t.Fatal(err)
	}
	s := []pair{{1, [2]uint16{2, 3}}, {4, [2]uint16{5, 6}}}
	want := []byte{1, 0, 0, 0, 2, 0, 3, 0, 4, 0, 0, 0, 5, 0, 6, 0}
	if got := v.Bytes(s); !bytes.Equal(got, want) {
		t.Errorf("bytes are %v, want %v", got, want)
	}
	if got := v.Of(&s[1]); !bytes.Equal(got, want[8:]) {
		t.Errorf("bytes are %v, want %v", got, want[8:])
	}
	if got := v.Bytes(nil); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	mem := v.Bytes(make([]pair, 3))
	copy(mem, want)
	got, ok := v.Slice(mem[:len(mem)-1])
	if !ok || len(got) != 2 || got[0] != s[0] || got[1] != s[1] {
		t.Errorf("%v, %v", got, ok)
	}
	if got, ok := v.Slice(mem[1:]); ok {
		t.Errorf("not aligned: %v", got)
	}
}

func TestValuesOfPointers(t *testing.T) {
	refused := map[string]error{}
	_, refused["pointer"] = ValuesOf[*int]()
	_, refused["string"] = ValuesOf[struct{ s [2]string }]()
	_, refused["interface"] = ValuesOf[any]()
	_, refused["zero size"] = ValuesOf[struct{}]()
	_, refused["function"] = ValuesOf[[1]func()]()
	for what, err := range refused {
		if err == nil {
			t.Errorf("values with a %s are viewed", what)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("the zero Values gives bytes")
		}
	}()
	Values[string]{}.Of(new(string))
}
