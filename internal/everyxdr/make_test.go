package everyxdr

import "math/rand/v2"

// maker makes values at random.
type maker struct{ *rand.Rand }

func some[T any](m maker, most int, one func() T) []T {
	var out []T
	for range m.IntN(most + 1) {
		out = append(out, one())
	}
	return out
}

func (m maker) byte() byte { return byte(m.Uint32()) }

func (m maker) bytes(most int) []byte { return some(m, most, m.byte) }

func (m maker) int() int32 { return int32(m.Uint32()) }

func (m maker) word(most int) string {
	return string(some(m, most, func() byte { return 'a' + byte(m.IntN(26)) }))
}

func (m maker) name() NameT { return NameT(m.word(MAXNAME)) }

func (m maker) names() Names { return some(m, 5, m.name) }

func (m maker) counts() Counts { return some(m, 8, m.Uint64) }

func (m maker) point() Point { return Point{m.int(), m.int()} }

func (m maker) colour() Colour { return []Colour{RED, GREEN, BLUE, BELOW}[m.IntN(4)] }

func (m maker) float() float32 { return float32(m.NormFloat64()) }

func (m maker) row() (l NodePtr) {
	for range m.IntN(5) {
		l = &Node{m.int(), l}
	}
	return l
}

func (m maker) tree(depth int) Tree {
	t := Tree{Label: m.name()}
	if depth > 0 {
		t.Children = some(m, depth, func() Tree { return m.tree(depth - 1) })
	}
	return t
}

func (m maker) shape() Shape {
	s := Shape{Kind: m.colour()}
	switch s.Kind {
	case RED:
		s.Centre = m.point()
	case GREEN, BLUE:
		s.Title = m.name()
	}
	return s
}

func (m maker) every() *Every {
	v := &Every{
		One: Scalars{
			int8(m.int()), m.byte(), int16(m.int()), uint16(m.int()), m.int(), m.Uint32(), m.Uint32(), m.int(), m.Uint32(),
			m.Int64(), m.Uint64(), m.float(), m.NormFloat64(), m.IntN(2) == 0, m.colour(), m.colour(), LengthT(m.Uint32()),
			m.Uint32(), m.Uint32(), -m.Int64(),
		},
		Var: m.bytes(10), Text: m.word(200), Data: m.bytes(100), V: Triple{m.int(), m.int(), m.int()},
		Ints: [4]int32{m.int(), m.int()}, Few: some(m, 6, m.int), Points: some(m, 4, m.point),
		Pair: [2]Point{m.point(), m.point()}, List: m.row(), Forest: m.tree(3), Shapes: some(m, 6, m.shape), Many: m.counts(),
		All: m.names(), Colours: some(m, 5, m.colour), Bools: [3]Flag{m.IntN(2) == 0, true}, Two: [2]NameT{m.name(), m.name()},
		Floats: some(m, 5, m.float), Heads: some(m, 3, m.row), Type: m.int(), Func: m.int(), EncodeXDR_: m.int(), AB: m.int(), AB_: m.int(),
	}
	copy(v.Sum[:], m.bytes(7))
	copy(v.Fixed[:], m.bytes(5))
	if m.IntN(2) == 0 {
		p, n := m.point(), m.int()
		v.Perhaps, v.Number = &p, &n
	}
	for range m.IntN(4) {
		v.Links = &Chain{v.Links, m.int()}
	}
	if v.M.There = m.IntN(2) == 0; v.M.There {
		v.M.Value = m.Int64()
	}
	switch m.IntN(4) {
	case 0:
		v.N = Numbered{N: 1, Data: m.bytes(16)}
	case 1:
		v.N = Numbered{N: -1, Ratio: m.NormFloat64()}
	case 2:
		v.N = Numbered{N: MODE}
	default:
		v.N = Numbered{N: 1000 + m.Int32N(1000), All: m.names()}
	}
	if v.C.N = m.Uint32N(3); v.C.N > 0 {
		v.C.All = m.counts()
	}
	return v
}
