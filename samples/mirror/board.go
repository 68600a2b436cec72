package main

import (
	"hash/crc32"
	"math/rand/v2"
	"strings"
)

// The mirrored memory: two flags, then two boards with a checksum each. Generation g
// is on board g%2, so the one before it is whole while the next one is made.
const (
	width, height = 64, 24

	generation = 0 // a flag: the last generation that is there
	over       = 4 // a flag: there will be none after it
	boards     = 4096
	boardSize  = 4096
	sum        = width * height // of a board, behind its cells
	size       = boards + 2*boardSize
)

func board(mem []byte, g uint32) []byte {
	at := boards + int(g%2)*boardSize
	return mem[at : at+boardSize]
}

func checksum(b []byte) uint32 { return crc32.ChecksumIEEE(b[:width*height]) }

// sow is the first generation.
func sow(b []byte) {
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a pattern, the same each time
	for i := range width * height {
		b[i] = byte(rnd.IntN(4) / 3)
	}
}

// step makes the generation after from.
func step(to, from []byte) {
	for y := range height {
		for x := range width {
			n := byte(0)
			for dy := -1; dy <= 1; dy++ {
				for dx := -1; dx <= 1; dx++ {
					if dx != 0 || dy != 0 {
						n += from[(y+dy+height)%height*width+(x+dx+width)%width]
					}
				}
			}
			cell := byte(0)
			if n == 3 || n == 2 && from[y*width+x] == 1 {
				cell = 1
			}
			to[y*width+x] = cell
		}
	}
}

func draw(b []byte) string {
	var s strings.Builder
	for y := range height {
		for x := range width {
			s.WriteByte(" #"[b[y*width+x]&1])
		}
		s.WriteByte('\n')
	}
	return s.String()
}
