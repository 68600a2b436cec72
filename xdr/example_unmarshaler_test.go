package xdr_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vmmc-go/vmmc/xdr"
)

// A recursive struct with a union, optional data and arrays, as a .x file declares it:
//
//	union content switch (int kind) { case 1: opaque data<>; case 2: string link<>; case 3: void; };
//	struct entry {
//		string name<255>; content c; unsigned hyper times<4>; int *owner; entry below<>;
//	};
func ExampleUnmarshaler() {
	owner := int32(1000)
	dir := entry{
		Name: "dir", Kind: 3, Times: []uint64{1, 2}, Owner: &owner,
		Below: []entry{
			{Name: "file", Kind: 1, Data: []byte("data")},
			{Name: "link", Kind: 2, Link: "file"},
		},
	}
	b, err := xdr.Marshal(&dir)
	check(err)
	var got entry
	check(xdr.Unmarshal(b, &got))
	fmt.Println(got.Name, got.Times, *got.Owner, string(got.Below[0].Data), got.Below[1].Link)

	_, err = xdr.Marshal(&entry{Name: "a/b", Kind: 3})
	fmt.Println(errors.Is(err, errName))
	_, err = xdr.Marshal(&entry{Kind: 4})
	fmt.Println(errors.Is(err, xdr.ErrValue))
	for range xdr.MaxDepth {
		dir = entry{Kind: 3, Below: []entry{dir}}
	}
	_, err = xdr.Marshal(&dir)
	fmt.Println(errors.Is(err, xdr.ErrDepth))
	// Output:
	// dir [1 2] 1000 data file
	// true
	// true
	// true
}

var errName = errors.New("a name has no slash")

type entry struct {
	Name  string
	Kind  int32
	Data  []byte // kind 1
	Link  string // kind 2
	Times []uint64
	Owner *int32
	Below []entry
}

func (v *entry) EncodeXDR(e *xdr.Encoder) {
	if !e.Enter() { // only recursive types call it
		return
	}
	defer e.Leave()
	if strings.Contains(v.Name, "/") { // a rule that XDR does not have
		e.Fail(errName)
	}
	e.String(v.Name, 255)
	e.Int32(v.Kind)
	switch v.Kind {
	case 1:
		e.Opaque(v.Data, xdr.Unlimited)
	case 2:
		e.String(v.Link, xdr.Unlimited)
	case 3:
		xdr.Void{}.EncodeXDR(e)
	default:
		e.NoCase("content", int64(v.Kind))
	}
	e.Len(len(v.Times), 4)
	for _, t := range v.Times {
		e.Uint64(t)
	}
	e.Bool(v.Owner != nil)
	if v.Owner != nil {
		e.Int32(*v.Owner)
	}
	e.Len(len(v.Below), xdr.Unlimited)
	for i := range v.Below {
		v.Below[i].EncodeXDR(e)
	}
}

func (v *entry) DecodeXDR(d *xdr.Decoder) {
	if !d.Enter() {
		return
	}
	defer d.Leave()
	if v.Name = d.String(v.Name, 255); strings.Contains(v.Name, "/") {
		d.Fail(errName)
	}
	switch v.Kind = d.Int32(); v.Kind {
	case 1:
		v.Data = d.Opaque(v.Data, xdr.Unlimited)
	case 2:
		v.Link = d.String(v.Link, xdr.Unlimited)
	case 3:
		xdr.Void{}.DecodeXDR(d)
	default:
		d.NoCase("content", int64(v.Kind))
	}
	v.Times = xdr.Slice(d, v.Times, d.Len(4, 8))
	for i := range v.Times {
		v.Times[i] = d.Uint64()
	}
	if xdr.Optional(d, &v.Owner) {
		*v.Owner = d.Int32()
	}
	v.Below = xdr.Empty(d, v.Below) // elements are decoded one by one
	for n := d.Len(xdr.Unlimited, 20); n > 0 && xdr.Extend(d, &v.Below); n-- {
		v.Below[len(v.Below)-1].DecodeXDR(d)
	}
}
