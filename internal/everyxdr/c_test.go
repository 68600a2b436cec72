package everyxdr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/xdr"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// peer builds the C side: what rpcgen makes of every.x, with libtirpc.
func peer(t *testing.T) string { return build(t, "peer") }

// build builds a C program of testdata; stubs are what else rpcgen makes, by its flags.
func build(t *testing.T, name string, stubs ...string) string {
	t.Helper()
	rpcgen, err := exec.LookPath("rpcgen")
	testutil.Require(t, err == nil, "there is no rpcgen: install rpcsvc-proto")
	gcc, err := exec.LookPath("gcc")
	testutil.Require(t, err == nil, "there is no gcc")
	_, err = os.Stat("/usr/include/tirpc/rpc/rpc.h")
	testutil.Require(t, err == nil, "there is no libtirpc to build with: install libtirpc-dev")
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	for _, file := range []string{"every.x", "testdata/" + name + ".c"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(rpcgen, "-N", "-C", "-h", "-o", "every.h", "every.x")
	run(rpcgen, "-N", "-C", "-c", "-o", "every_xdr.c", "every.x")
	args := []string{"-O1", "-w", "-I/usr/include/tirpc", "-o", name, name + ".c", "every_xdr.c"}
	for _, flag := range stubs {
		run(rpcgen, "-N", "-C", flag, "-o", "every"+flag+".c", "every.x")
		args = append(args, "every"+flag+".c")
	}
	run(gcc, append(args, "-ltirpc")...)
	return filepath.Join(dir, name)
}

// frames takes what the peer has written apart; a message that it could not decode is nil.
func frames(t *testing.T, out []byte) (list [][]byte) {
	t.Helper()
	for len(out) > 0 {
		n := binary.BigEndian.Uint32(out)
		if out = out[4:]; n == 1<<32-1 {
			list = append(list, nil)
			continue
		}
		list, out = append(list, out[:n]), out[n:]
	}
	return list
}

const count = 300

// What C encodes, Go decodes and encodes to the same bytes, and C decodes what Go encodes and
// encodes it to the same bytes.
func TestSameBytesAsC(t *testing.T) {
	c := peer(t)
	seed := rand.Uint32()
	t.Logf("seed %d", seed)
	made, err := exec.CommandContext(t.Context(), c, "make", fmt.Sprint(seed), fmt.Sprint(count)).Output()
	if err != nil {
		t.Fatal(err)
	}
	list := frames(t, made)
	if len(list) != count {
		t.Fatalf("C made %d values", len(list))
	}
	for _, want := range list {
		if err := again(want); err != nil {
			t.Fatal(err)
		}
	}

	m := maker{rand.New(rand.NewPCG(uint64(seed), 0))}
	var in bytes.Buffer
	var sent [][]byte
	for range count {
		b, err := xdr.Marshal(m.every())
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, b)
		in.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		in.Write(b)
	}
	echo := exec.CommandContext(t.Context(), c, "echo")
	echo.Stdin = &in
	out, err := echo.Output()
	if err != nil {
		t.Fatal(err)
	}
	back := frames(t, out)
	if len(back) != count {
		t.Fatalf("C answered %d times", len(back))
	}
	for i, b := range back {
		if !bytes.Equal(b, sent[i]) {
			t.Fatalf("Go encoded\n%x\nand C read and wrote\n%x", sent[i], b)
		}
	}
}

// again decodes a message in all ways, each twice, and encodes it again.
func again(want []byte) error {
	for _, memory := range []xdr.Memory{xdr.Copy, xdr.Reuse, xdr.InPlace} {
		var v Every
		for range 2 {
			d := xdr.NewDecoder(want, memory)
			if v.DecodeXDR(d); d.Err() != nil || len(d.Rest()) > 0 {
				return fmt.Errorf("decoding %x: %w, %d left", want, d.Err(), len(d.Rest()))
			}
			got, err := xdr.Marshal(&v)
			if err != nil {
				return err
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("%x was decoded, and encoded it is\n%x", want, got)
			}
		}
	}
	return nil
}

// A value that is decoded into again and again is the same as a new one.
func TestReuse(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(1, 2))}
	var d xdr.Decoder
	var kept Every
	for range 200 {
		want, err := xdr.Marshal(m.every())
		if err != nil {
			t.Fatal(err)
		}
		d.Reset(want, xdr.Reuse)
		kept.DecodeXDR(&d)
		got, err := xdr.Marshal(&kept)
		if err = errors.Join(err, d.Err()); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: %x was decoded, and encoded it is\n%x", err, want, got)
		}
	}
}

func TestAllocations(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(3, 4))}
	v := m.every()
	for v.Links == nil || v.Perhaps == nil || len(v.Forest.Children) == 0 {
		v = m.every()
	}
	buffer := make([]byte, 0, 1<<16)
	var e xdr.Encoder
	var d xdr.Decoder
	var kept Every
	n := testing.AllocsPerRun(100, func() {
		e.ResetFixed(buffer)
		v.EncodeXDR(&e)
		d.Reset(e.Bytes(), xdr.InPlace)
		kept.DecodeXDR(&d)
	})
	if n != 0 || e.Err() != nil || d.Err() != nil {
		t.Errorf("%v allocations, %v, %v", n, e.Err(), d.Err())
	}
}

// FuzzDecodeEvery: what decodes is encoded to something that decodes to the same, and takes memory
// in proportion to the input.
func FuzzDecodeEvery(f *testing.F) {
	m := maker{rand.New(rand.NewPCG(5, 6))}
	for range 10 {
		b, err := xdr.Marshal(m.every())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var v Every
		if xdr.Unmarshal(in, &v) != nil {
			return
		}
		b, err := xdr.Marshal(&v)
		if err != nil {
			t.Fatal(err)
		}
		// Only char and short may be in two ways on the wire.
		if len(b) != len(in) {
			t.Fatalf("%x is %x when it is encoded again", in, b)
		}
		if err := again(b); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkEncodeEvery(b *testing.B) {
	v := maker{rand.New(rand.NewPCG(7, 8))}.every()
	buffer := make([]byte, 0, 1<<16)
	var e xdr.Encoder
	for b.Loop() {
		e.ResetFixed(buffer)
		v.EncodeXDR(&e)
	}
	b.SetBytes(int64(e.Size()))
}

func BenchmarkDecodeEvery(b *testing.B) {
	in, err := xdr.Marshal(maker{rand.New(rand.NewPCG(7, 8))}.every())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(in)))
	var d xdr.Decoder
	var v Every
	for b.Loop() {
		d.Reset(in, xdr.InPlace)
		v.DecodeXDR(&d)
	}
	if d.Err() != nil {
		b.Fatal(d.Err())
	}
}
