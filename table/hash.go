package table

import (
	"encoding/binary"
	"math/bits"
)

// sipHash is SipHash-1-3: a hash whose collisions cannot be found without the seed.
func sipHash(seed [2]uint64, b []byte) uint64 {
	v0, v1 := seed[0]^0x736f6d6570736575, seed[1]^0x646f72616e646f6d
	v2, v3 := seed[0]^0x6c7967656e657261, seed[1]^0x7465646279746573
	last := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		m := binary.LittleEndian.Uint64(b)
		v3 ^= m
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= m
	}
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= last
	v2 ^= 0xff
	for range 3 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

func sipRound(v0, v1, v2, v3 uint64) (a, b, c, d uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	return v0, v1, bits.RotateLeft64(v2, 32), v3
}

// secret is what checksums begin with. It follows from the seed: a process that does not know
// the seed cannot choose values of which a torn one has the right checksum.
type secret struct{ a, b, c uint64 }

func newSecret(seed [2]uint64) secret {
	return secret{
		sipHash(seed, []byte("a")) | 1, sipHash(seed, []byte("b")) | 1, sipHash(seed, []byte("c")) | 1,
	}
}

// sum is the checksum of b, whose length is a multiple of eight. It protects from torn reads, not
// from an owner that lies.
func (s *secret) sum(salt uint64, b []byte) uint64 {
	h := fold(salt^s.a, uint64(len(b))^s.c)
	for ; len(b) >= 16; b = b[16:] {
		h = fold(binary.NativeEndian.Uint64(b)^s.b, binary.NativeEndian.Uint64(b[8:])^h)
	}
	if len(b) > 0 {
		h = fold(binary.NativeEndian.Uint64(b)^s.b, h^s.c)
	}
	return fold(h^s.c, s.a)
}

func fold(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}
