package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MaxSize is the longest message that is measured.
const MaxSize = 256 << 20

// ParseSize reads a number of bytes: "64", "64K", "4M", "4MiB". It must be of whole
// words.
func ParseSize(s string) (int, error) {
	digits := strings.TrimRight(s, "kKmMiIbB")
	shift := 0
	switch strings.ToUpper(s[len(digits):]) {
	case "":
	case "K", "KI", "KB", "KIB":
		shift = 10
	case "M", "MI", "MB", "MIB":
		shift = 20
	default:
		return 0, fmt.Errorf("%q is no number of bytes: want for instance 64, 64K or 4M", s)
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of bytes: want for instance 64, 64K or 4M", s)
	}
	if n < 0 || n > math.MaxInt>>shift {
		return 0, fmt.Errorf("%q is out of range", s)
	}
	if n <<= shift; n < 4 || n%4 != 0 || n > MaxSize {
		return 0, fmt.Errorf("%q: messages have whole words, 4 bytes to %d MiB", s, MaxSize>>20)
	}
	return n, nil
}

// ParseSizes reads FROM:TO: from one size to the other, each twice the one before.
func ParseSizes(s string) ([]int, error) {
	a, b, ok := strings.Cut(s, ":")
	if !ok {
		return nil, fmt.Errorf("%q is no range: want FROM:TO, for instance 4:4M", s)
	}
	from, err := ParseSize(a)
	if err != nil {
		return nil, err
	}
	to, err := ParseSize(b)
	if err != nil {
		return nil, err
	}
	if to < from {
		return nil, fmt.Errorf("%q is no range: %s is less than %s", s, b, a)
	}
	return Doubling(from, to), nil
}

// Doubling is the sizes from one to another, each twice the one before.
func Doubling(from, to int) []int {
	var out []int
	for n := from; n <= to; n *= 2 {
		out = append(out, n)
	}
	return out
}
