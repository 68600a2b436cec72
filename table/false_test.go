package table

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// image is a table's memory that readers get from, without an owner.
type image []byte

func (b image) Get(_ context.Context, dst []byte, off int) error {
	if off < 0 || len(dst) > len(b)-off || off%wordSize != 0 || len(dst)%wordSize != 0 {
		panic("a get outside of the memory")
	}
	copy(dst, b[off:])
	return nil
}

const testHomes, testOverflow = 2, 3

// newImage is an empty table of 8 byte keys and values.
func newImage() (*source, image) {
	s := &source{geometry: newGeometry(8, 8), seed: [2]uint64{1, 2}, whole: true}
	s.homes, s.overflow, s.first, s.capacity = testHomes, testOverflow, 64, 7
	s.secret = newSecret(s.seed)
	b := make(image, s.size())
	s.mem = b
	for i := range uint32(testHomes + testOverflow) {
		s.seal(b, i, head{home: i})
	}
	return s, b
}

// seal writes a bucket's heads and committed word.
func (s *source) seal(b image, bucket uint32, h head) {
	heads := b[s.offset(bucket)+s.heads:][:s.tail]
	h.put(headAt(heads, uint32(h.version)), &s.secret, bucket)
	binary.NativeEndian.PutUint32(heads[s.tail-wordSize:], uint32(h.version))
}

// entry writes an entry.
func (s *source) entry(b image, bucket uint32, i int, version, key, value uint64) {
	slot := b[s.offset(bucket)+i*s.slot:][:s.slot]
	binary.NativeEndian.PutUint64(slot, version)
	binary.NativeEndian.PutUint64(slot[keyOff:], key)
	binary.NativeEndian.PutUint64(slot[s.valueOff:], value)
	s.sealSlot(slot, &s.secret, bucket, i)
}

func keyBytes(k uint64) []byte { return binary.NativeEndian.AppendUint64(nil, k) }

// What a false owner has in its memory neither holds a reader up for ever nor has it get outside of
// the memory.
func TestFalseOwner(t *testing.T) {
	const k = 7
	hash := sipHash([2]uint64{1, 2}, keyBytes(k))
	for name, spoil := range map[string]func(s *source, b image, home uint32){
		"a head that is torn": func(s *source, b image, home uint32) {
			b[s.offset(home)+s.heads+headSumOff]++
		},
		"a slot that is torn": func(s *source, b image, home uint32) {
			s.entry(b, home, 0, 1, k, 1)
			b[s.offset(home)+s.valueOff]++
			h := head{version: 1, home: home}
			h.tags[0] = tag(hash)
			s.seal(b, home, h)
		},
		"a head of another version": func(s *source, b image, home uint32) {
			s.seal(b, home, head{version: 2, home: home})
			heads := b[s.offset(home)+s.heads:][:s.tail]
			binary.NativeEndian.PutUint32(heads[s.tail-wordSize:], 4)
		},
		"a slot that is newer than its bucket": func(s *source, b image, home uint32) {
			s.entry(b, home, 0, 2, k, 1)
			h := head{version: 1, home: home}
			h.tags[0] = tag(hash)
			s.seal(b, home, h)
		},
		"another home": func(s *source, b image, home uint32) {
			s.seal(b, home, head{home: 1 - home})
		},
		"a bucket that is its own next one": func(s *source, b image, home uint32) {
			s.seal(b, home, head{home: home, next: 2})
			s.seal(b, 2, head{home: home, next: 2})
		},
		"a cycle": func(s *source, b image, home uint32) {
			s.seal(b, home, head{home: home, next: 3})
			s.seal(b, 3, head{home: home, next: 4})
			s.seal(b, 4, head{home: home, next: 3})
		},
		"a home as the next bucket": func(s *source, b image, home uint32) {
			s.seal(b, home, head{home: home, next: 1})
		},
		"a bucket behind the last one": func(s *source, b image, home uint32) {
			s.seal(b, home, head{home: home, next: testHomes + testOverflow})
		},
		"a bucket far behind": func(s *source, b image, home uint32) {
			s.seal(b, home, head{home: home, next: 1<<32 - 1})
		},
		"moves for ever": func(s *source, b image, home uint32) {
			s.seal(b, home, head{home: home, next: 2})
			s.seal(b, 2, head{home: home, moved: 1})
		},
	} {
		for _, whole := range []bool{true, false} {
			s, b := newImage()
			s.whole = whole
			spoil(s, b, s.home(hash))
			v, err := s.lookUp(context.Background(), hash, keyBytes(k), make([]byte, s.room()))
			if v != nil || !errors.Is(err, errBroken) {
				t.Errorf("%s: %v, %v", name, v, err)
			}
		}
	}
}

// counted counts gets, and calls f before each.
type counted struct {
	image
	n int
	f func(n int)
}

func (c *counted) Get(ctx context.Context, dst []byte, off int) error {
	if c.n++; c.f != nil {
		c.f(c.n)
	}
	return c.image.Get(ctx, dst, off)
}

// A false owner's home that has no end is left when the context ends, though the gets do not look
// at it.
func TestLongHome(t *testing.T) {
	s, b := newImage()
	hash := sipHash(s.seed, keyBytes(7))
	home := s.home(hash)
	s.seal(b, home, head{home: home, next: 2})
	s.seal(b, 2, head{home: home, next: 3})
	s.seal(b, 3, head{home: home, next: 2})
	s.overflow = 1 << 30
	ctx, cancel := context.WithCancel(context.Background())
	mem := &counted{image: b, f: func(n int) {
		if n%100 == 50 {
			cancel()
		}
	}}
	s.mem = mem
	_, err := s.lookUp(ctx, hash, keyBytes(7), make([]byte, s.room()))
	if !errors.Is(err, errBusy) || mem.n > 200 {
		t.Errorf("a look-up: %v after %d gets", err, mem.n)
	}
	mem.n = 0
	_, err = s.entries(ctx, home, make([]byte, s.bucket))
	if !errors.Is(err, errBusy) || mem.n > 200 {
		t.Errorf("a replica: %v after %d gets", err, mem.n)
	}
}

// A replica does not try for ever what a false owner changes all the time, and keeps no more of a
// home than the table may have.
func TestReplicaOfAChangingHome(t *testing.T) {
	s, b := newImage()
	s.capacity = 3
	version := uint64(0)
	mem := &counted{image: b, f: func(int) {
		version++
		s.seal(b, 0, head{version: version, home: 1})
	}}
	s.mem = mem
	if _, err := s.entries(context.Background(), 0, make([]byte, s.bucket)); !errors.Is(err, errBusy) {
		t.Errorf("%v after %d gets", err, mem.n)
	}
	var h head
	h.home = 1
	for k, i := uint64(0), 0; i < s.capacity+1; k++ {
		if hash := sipHash(s.seed, keyBytes(k)); s.home(hash) == 1 {
			s.entry(b, 1, i, 0, k, k)
			h.tags[i] = tag(hash)
			i++
		}
	}
	s.seal(b, 1, h)
	mem.f = nil
	if m, err := s.entries(context.Background(), 1, make([]byte, s.bucket)); !errors.Is(err, errBroken) {
		t.Errorf("%d entries: %v", len(m), err)
	}
	s.capacity++
	if m, err := s.entries(context.Background(), 1, make([]byte, s.bucket)); err != nil || len(m) != 4 {
		t.Errorf("%d entries: %v", len(m), err)
	}
}

// An owner whose count of changes is not whole, as one that is stopped in the middle of a change
// has it, does not keep a replica busy: that looks again later.
func TestCountNotWhole(t *testing.T) {
	p := vmmctest.Nodes(t, 1)[0].Open(t)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	o, err := New[uint64, uint64](ctx, p, "owner", 10)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r, err := Replicate[uint64, uint64](ctx, p, "owner", "copy")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	low, err := o.e.Word(o.log + lowOff)
	if err != nil {
		t.Fatal(err)
	}
	low.Store(5)
	if _, err := r.source.changes(context.Background()); !errors.Is(err, errBusy) {
		t.Errorf("%v", err)
	}
	soon, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	if _, err := r.Behind(soon); !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("it cannot be known: %v", err)
	}
	if err := o.Put(ctx, 1, 2); err != nil { // whole again
		t.Fatal(err)
	}
	for behind := uint64(1); behind > 0; {
		if behind, err = r.Behind(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if v, ok, err := r.own.Get(ctx, 1); v != 2 || !ok || err != nil {
		t.Errorf("%d, %t, %v", v, ok, err)
	}
}

// A replica of a false owner, which has more entries than its capacity, is given up.
func TestReplicaWithoutRoom(t *testing.T) {
	p := vmmctest.Nodes(t, 1)[0].Open(t)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	o, err := New[uint64, uint64](ctx, p, "owner", 8)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r, err := Replicate[uint64, uint64](ctx, p, "owner", "before")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o.capacity = 14 // the readers know of 8
	for k := uint64(0); o.n < o.capacity; k++ {
		if h := o.head(o.Home(k)); h.entries() < perBucket {
			if err := o.Put(ctx, k, k); err != nil {
				t.Fatal(err)
			}
		}
	}
	<-r.Done()
	if err := r.Err(); !errors.Is(err, vmmc.ErrProtocol) {
		t.Errorf("a replica that was there: %v", err)
	}
	if _, err := Replicate[uint64, uint64](ctx, p, "owner", "copy"); !errors.Is(err, vmmc.ErrProtocol) {
		t.Errorf("a new one: %v", err)
	}
}

// FuzzLookUp has a false owner write any heads, entries and committed words, with the right
// checksums: look-ups end, and find no key that is not there.
func FuzzLookUp(f *testing.F) {
	f.Add([]byte{}, uint64(7), false)
	f.Add([]byte{0, 0, 2, 0, 0, 1, 2, 0, 3, 0, 0, 1, 3, 0, 2, 0, 0, 1}, uint64(7), true)
	f.Add([]byte{1, 1, 2, 0, 0, 0, 2, 1, 0, 0, 9, 2, 2, 0, 0, 0, 0, 255}, uint64(3), true)
	f.Fuzz(func(t *testing.T, what []byte, k uint64, whole bool) {
		s, b := newImage()
		s.whole = whole
		key := keyBytes(k)
		hash := sipHash(s.seed, key)
		put := false
		for ; len(what) >= 6; what = what[6:] { // bucket, home, next, moves, moved, slots
			bucket := uint32(what[0]) % (testHomes + testOverflow)
			h := head{home: uint32(what[1]), next: uint32(what[2])}
			h.version = uint64(what[3]) + uint64(what[4])<<32
			h.moves, h.moved = uint64(what[3]), uint64(what[4])
			for i := range slots {
				if what[5]>>i&1 == 1 {
					h.tags[i] = tag(hash)
					other := k
					if what[4]%3 != 0 {
						other = k + 1
					}
					s.entry(b, bucket, i, uint64(what[4]), other, k)
					put = put || other == k
				}
			}
			s.seal(b, bucket, h)
		}
		if len(what) > 0 { // no checksum
			b[int(what[0])*len(b)/256]++
		}
		v, err := s.lookUp(context.Background(), hash, key, make([]byte, s.room()))
		switch {
		case err != nil && !errors.Is(err, errBroken):
			t.Fatal(err)
		case v != nil && (!put || !bytes.Equal(v, key)):
			t.Fatalf("key %x has %x", key, v)
		}
	})
}

// FuzzPrefix takes prefixes of a false owner: what is accepted lies in the memory.
func FuzzPrefix(f *testing.F) {
	g := newGeometry(8, 8)
	_ = g.setCapacity(10)
	b := make([]byte, prefixSize(2, 3))
	g.putPrefix(b, [2]uint64{1, 2}, "ab", "cde")
	g.behind(len(b))
	f.Add(b, g.size(), true)
	f.Add(b, g.size()-1, true)
	f.Add(b[:textsOff], 1<<20, true)
	for _, off := range []int{homesOff, overflowOff, keyTextOff, valueTextOff} {
		c := bytes.Clone(b)
		binary.NativeEndian.PutUint32(c[off:], 1<<32-1)
		f.Add(c, 1<<30, true)
		binary.NativeEndian.PutUint32(c[off:], 0)
		f.Add(c, 1<<30, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int, seal bool) {
		if len(b) < textsOff || size < textsOff {
			return
		}
		keyText, valueText, err := textLengths(b, size)
		if err != nil {
			return
		}
		n := prefixSize(keyText, valueText)
		if n > size {
			t.Fatalf("a prefix of %d bytes in %d", n, size)
		}
		b = append(bytes.Clone(b), make([]byte, n)...)[:n]
		g := newGeometry(8, 8)
		if seal {
			s := newSecret([2]uint64{
				binary.NativeEndian.Uint64(b[seedOff:]), binary.NativeEndian.Uint64(b[seedOff+8:]),
			})
			binary.NativeEndian.PutUint64(b[n-sumSize:], s.sum(0, b[:n-sumSize]))
		}
		_, err = g.usePrefix(b, size)
		if err == nil && (g.homes == 0 || g.overflow == 0 || g.size() > size || g.size() < n) {
			t.Fatalf("%d and %d buckets in %d bytes", g.homes, g.overflow, size)
		}
	})
}

// The hash is SipHash-1-3, by the reference's key and message.
func TestSipHash(t *testing.T) {
	seed := [2]uint64{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	var b []byte
	for i, want := range []uint64{0xabac0158050fc4dc, 0xc9f49bf37d57ca93, 0x82cb9b024dc7d44d} {
		if got := sipHash(seed, b); got != want {
			t.Errorf("%d bytes: %#x, want %#x", i, got, want)
		}
		b = append(b, byte(i))
	}
}

// Checksums differ for each bit.
func TestSum(t *testing.T) {
	s := newSecret([2]uint64{3, 4})
	for _, n := range []int{8, 16, 24, 64, 72} {
		b := make([]byte, n)
		seen := map[uint64]bool{s.sum(1, b): true, s.sum(2, b): true}
		for i := range 8 * n {
			b[i/8] ^= 1 << (i % 8)
			seen[s.sum(1, b)] = true
			b[i/8] ^= 1 << (i % 8)
		}
		if len(seen) != 8*n+2 {
			t.Errorf("%d bytes: %d checksums of %d", n, len(seen), 8*n+2)
		}
	}
}
