package everyxdr

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// loop is a caller that runs the procedures of services itself, by their bytes, as a server does
// that decodes in place and uses each Call again.
type loop struct {
	calls   map[[3]uint32]vrpc.Call
	request []byte
	reply   []byte
	e       xdr.Encoder
	d       xdr.Decoder
}

func (l *loop) Register(s *vrpc.Service) error {
	for _, p := range s.Procedures {
		l.calls[[3]uint32{s.Program, s.Version, p.Number}] = p.New()
	}
	return nil
}

func (l *loop) Call(ctx context.Context, prog, vers, proc uint32, args xdr.Marshaler, res xdr.Unmarshaler) error {
	call, ok := l.calls[[3]uint32{prog, vers, proc}]
	if !ok {
		return vrpc.ErrProcUnavail
	}
	l.e.Reset(l.request[:0])
	args.EncodeXDR(&l.e)
	l.request = l.e.Bytes()
	l.d.Reset(l.request, xdr.InPlace)
	call.DecodeXDR(&l.d)
	if err := errors.Join(l.e.Err(), l.d.Err()); err != nil {
		return err
	}
	if len(l.d.Rest()) > 0 {
		return xdr.ErrTrailing
	}
	if err := call.Do(ctx); err != nil {
		return err
	}
	l.e.Reset(l.reply[:0])
	call.EncodeXDR(&l.e)
	l.reply = l.e.Bytes()
	l.d.Reset(l.reply, xdr.Copy)
	res.DecodeXDR(&l.d)
	return errors.Join(l.e.Err(), l.d.Err())
}

type server struct{ UnimplementedEveryversServer }

func (*server) Echo(_ context.Context, v *Every) (*Every, error) { return v, nil }

func (*server) Blob(_ context.Context, b Blob) (Blob, error) { return b[1:], nil }

func (*server) List(_ context.Context, l NodePtr) (NodePtr, error) { return l.Next, nil }

func (*server) Length(_ context.Context, s string) (int32, error) { return int32(len(s)), nil }

func (*server) Paint(context.Context, Colour) (Colour, error) { return 0, errors.New("no paint") }

type many struct {
	UnimplementedEveryversManyServer
	put []byte
}

func (*many) Add(_ context.Context, a int32, b int64) (int64, error) { return int64(a) + b, nil }

func (*many) Move(_ context.Context, from *Point, kind int32, _ NameT) (*Point, error) {
	if kind == 0 {
		return nil, nil // which is wrong
	}
	return &Point{from.X + kind, from.Y - kind}, nil
}

func (m *many) Put(_ context.Context, offset uint32, data Blob) error {
	m.put = append(m.put[:offset], data...)
	return nil
}

// Clients and servers that are made of the file are of one mind.
func TestClientAndServer(t *testing.T) {
	ctx := t.Context()
	l := &loop{calls: map[[3]uint32]vrpc.Call{}}
	m := &many{put: make([]byte, 4)}
	if err := errors.Join(RegisterEveryvers(l, new(server)), RegisterEveryversMany(l, m)); err != nil {
		t.Fatal(err)
	}
	one, two := NewEveryversClient(l), NewEveryversManyClient(l)

	want := maker{rand.New(rand.NewPCG(9, 9))}.every()
	if got, err := one.Echo(ctx, want); err != nil || !cmp.Equal(got, want, cmp.Comparer(sameBytes)) {
		t.Errorf("Echo: %v", err)
	}
	if b, err := one.Blob(ctx, Blob("abc")); err != nil || string(b) != "bc" {
		t.Errorf("Blob: %q, %v", b, err)
	}
	if n, err := one.List(ctx, &Node{1, &Node{2, nil}}); err != nil || n == nil || n.Value != 2 || n.Next != nil {
		t.Errorf("List: %v, %v", n, err)
	}
	if n, err := one.Length(ctx, "four"); err != nil || n != 4 {
		t.Errorf("Length: %v, %v", n, err)
	}
	if _, err := one.Paint(ctx, RED); err == nil || err.Error() != "no paint" {
		t.Errorf("Paint: %v", err)
	}
	if n, err := two.Add(ctx, -1, 1<<40); err != nil || n != 1<<40-1 {
		t.Errorf("Add: %v, %v", n, err)
	}
	if p, err := two.Move(ctx, &Point{1, 2}, 3, "x"); err != nil || *p != (Point{4, -1}) {
		t.Errorf("Move: %v, %v", p, err)
	}
	if p, err := two.Move(ctx, &Point{}, 0, ""); !errors.Is(err, vrpc.ErrNoResult) || p != nil {
		t.Errorf("Move without a result: %v, %v", p, err)
	}
	if err := two.Put(ctx, 2, Blob("xy")); err != nil || string(m.put) != "\x00\x00xy" {
		t.Errorf("Put: %q, %v", m.put, err)
	}
	if err := one.Null(ctx); err != nil {
		t.Error(err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = one.Null(ctx) }); n != 0 {
		t.Errorf("a null call: %v allocations", n)
	}
	if _, err := (UnimplementedEveryversServer{}).Echo(ctx, want); !errors.Is(err, vrpc.ErrProcUnavail) {
		t.Errorf("a procedure that nobody has written: %v", err)
	}
}

// sameBytes takes slices without elements for the same, nil or not.
func sameBytes(a, b *Every) bool {
	x, err := xdr.Marshal(a)
	y, err2 := xdr.Marshal(b)
	return errors.Join(err, err2) == nil && slices.Equal(x, y)
}

func TestService(t *testing.T) {
	s := NewEveryversManyService(new(many))
	type row struct {
		Number uint32
		Name   string
		Values bool
	}
	var got []row
	for _, p := range s.Procedures {
		got = append(got, row{p.Number, p.Name, p.Values})
	}
	want := []row{{0, "EVERYPROC_NULL", true}, {1, "EVERYPROC_ADD", true}, {2, "EVERYPROC_MOVE", false}, {9, "EVERYPROC_PUT", false}}
	if d := cmp.Diff(want, got); d != "" || s.Name != "EVERYVERS_MANY" || s.Program != 0x20000451 || s.Version != 2 {
		t.Errorf("%s %x %d: %s", s.Name, s.Program, s.Version, d)
	}
}
