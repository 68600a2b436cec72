package wire

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHeaderRoundTrip(t *testing.T) {
	h := Header{Type: Data, Flags: Last | Notify, Handle: 7, Seq: 9, Off: 16, Size: 64, Chunk: 60, Word: 0xfeed, Ack: 3, Credits: 5, Serial: 6}
	var b [HeaderSize]byte
	h.Put(b[:], 3)
	var got Header
	if err := got.Parse(b[:], 3); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(h, got); d != "" {
		t.Error(d)
	}
	for i := range b {
		c := b
		c[i] ^= 0x10
		if err := got.Parse(c[:], 3); !errors.Is(err, ErrFrame) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
}

// A header is that of its number's frame and of no other one's, and damaged as any other.
func TestNumbers(t *testing.T) {
	h := Header{Type: Ack, Ack: 3, Credits: 5}
	all := []uint32{0, 1, 2, 3, 255, 256, 1 << 16, 1<<31 - 1, 1 << 31, 1<<32 - 2, 1<<32 - 1}
	for i := range uint32(32) {
		all = append(all, 7^1<<i)
	}
	for _, n := range all {
		var b [HeaderSize]byte
		h.Put(b[:], n)
		for _, k := range all {
			var got Header
			switch err := got.Parse(b[:], k); {
			case (err == nil) != (k == n):
				t.Errorf("the header of frame %d, taken for that of frame %d: %v", n, k, err)
			case err != nil && !errors.Is(err, ErrCorrupt):
				t.Errorf("the header of frame %d, taken for that of frame %d, is not called damaged: %v", n, k, err)
			}
		}
		var kept Header
		if err := kept.ParseStored(b[:]); err != nil || kept != h {
			t.Errorf("what was kept of frame %d: %+v, %v", n, kept, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, h := range map[string]Header{
		"unknown type":        {Type: 99},
		"huge chunk":          {Type: Data, Chunk: MaxChunk + 4, Size: MaxChunk + 4},
		"overflowing range":   {Type: Get, Off: ^uint64(3), Size: 8},
		"empty message":       {Type: Data},
		"chunk over message":  {Type: Data, Size: 4, Chunk: 8},
		"last word beyond":    {Type: Data, Flags: Last, Size: 8, Chunk: 8},
		"half words":          {Type: Data, Flags: Last, Size: 6, Chunk: 2},
		"payload on an ack":   {Type: Ack, Chunk: 4},
		"misaligned offset":   {Type: Get, Off: 2, Size: 4},
		"empty middle chunk":  {Type: Data, Size: 8},
		"payload on a detach": {Type: Detach, Chunk: 8},
	} {
		var b [HeaderSize]byte
		h.Put(b[:], 0)
		var got Header
		if err := got.Parse(b[:], 0); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var b [HeaderSize]byte
	(&Header{Type: 99, Flags: Skip, Chunk: 12}).Put(b[:], 0)
	var h Header
	if err := h.Parse(b[:], 0); err != nil || h.Known() {
		t.Errorf("a skippable frame of a later version: %v, known %v", err, h.Known())
	}
}

func TestHello(t *testing.T) {
	key := make([]byte, KeySize)
	h := Hello{MinVersion: MinVersion, MaxVersion: MaxVersion, Link: 5, Attempt: 2, Nonce: NewNonce()}
	c := Challenge{Version: 1, Nonce: NewNonce()}
	p := Prove(key, Importer, h.Encode(), c.Encode(), nil)
	if !Verify(key, Importer, h.Encode(), c.Encode(), nil, p[:]) {
		t.Error("the right proof was refused")
	}
	c2 := Challenge{Version: 1, Nonce: NewNonce()}
	if Verify(key, Importer, h.Encode(), c2.Encode(), nil, p[:]) {
		t.Error("a proof for another challenge was taken: a captured hello could be replayed")
	}
	if Verify(key, Exporter, h.Encode(), c.Encode(), nil, p[:]) {
		t.Error("the importer's proof passes as the exporter's: it could be reflected")
	}
	if _, err := ParseChallenge((&Challenge{Status: RefusedLink}).Encode()); !errors.Is(err, RefusedLink) {
		t.Error(err)
	}
	if _, err := ParseAnswer((&Answer{Status: RefusedAttempt}).Encode()); !errors.Is(err, RefusedAttempt) {
		t.Error(err)
	}
	old := Hello{MinVersion: 90, MaxVersion: 91}
	if _, err := old.Version(); !errors.Is(err, RefusedVersion) {
		t.Error(err)
	}
}

func FuzzHeader(f *testing.F) {
	for _, h := range []Header{
		{Type: Data, Flags: Last, Size: 64, Chunk: 60}, {Type: Get, Off: 8, Size: 16}, {Type: Ack, Ack: 1}, {Type: 77, Flags: Skip},
	} {
		var b [HeaderSize]byte
		h.Put(b[:], 0)
		f.Add(b[:60])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var raw, again [HeaderSize]byte
		copy(raw[:60], b)
		var h Header
		_ = h.Parse(raw[:], 0) // the checksum stops nearly all
		(&Header{}).Put(again[:], 0)
		copy(again[:60], b)
		sum(again[:])
		if h.Parse(again[:], 0) != nil {
			return
		}
		if h.Type == Data && (h.Off+h.Span() < h.Off || h.Span() > h.Size) {
			t.Fatalf("accepted a chunk outside its message: %+v", h)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add((&Hello{MinVersion: 1, MaxVersion: 1, Link: 3}).Encode())
	f.Add((&Challenge{Version: 1}).Encode())
	f.Add((&Answer{Applied: 4}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ParseHello(b); err == nil && cmp.Diff(h.Encode(), b) != "" {
			t.Fatal("a parsed hello encodes differently")
		}
		_, _ = ParseChallenge(b)
		_, _ = ParseAnswer(b)
	})
}

// sum writes the checksum over a header made by hand.
func sum(b []byte) {
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
}

func TestGrantedRoundTrip(t *testing.T) {
	for _, g := range []Granted{
		{},
		{Handle: 1<<32 - 1, Size: 1 << 46, Rights: 3, Mapped: true, Memory: 1<<46 + 4096, Offset: 1 << 45, Slot: 1<<16 - 1, State: 1<<32 - 1, Addr: 1<<64 - 8},
		{Handle: 2, Size: 4, Rights: 255, Slot: 7},
		{Handle: 2, Size: 4, Mapped: true, Slot: 1 << 15},
	} {
		var h, got Header
		h.SetGranted(99, &g)
		var b [HeaderSize]byte
		h.Put(b[:], 0)
		if err := got.Parse(b[:], 0); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(g, got.Granted()); d != "" || got.Serial != 99 || got.Type != Grant {
			t.Errorf("%+v: %s", got, d)
		}
	}
}
