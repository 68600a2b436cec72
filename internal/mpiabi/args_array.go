package mpiabi

// storeInts stores integers in an array of int, or of a wider type as the prototype says.
func (a *arguments) storeInts(i int, list []int) error {
	addr := a.Addr(i)
	if len(list) == 0 {
		return nil
	}
	if addr == 0 {
		return fail(a.name(i), errArg, "it is NULL, want an array of %d", len(list))
	}
	return a.access(i, func() {
		if a.p.params[i].width == 4 {
			for k, v := range list {
				slice[int32](addr, len(list))[k] = int32(v)
			}
			return
		}
		for k, v := range list {
			slice[int64](addr, len(list))[k] = int64(v)
		}
	})
}

// handles are the handles of an array.
func (a *arguments) handles(i, n int) ([]Handle, error) {
	if n == 0 {
		return nil, nil
	}
	addr := a.Addr(i)
	if addr == 0 {
		return nil, fail(a.name(i), errArg, "it is NULL, want an array of %d handles", n)
	}
	if err := a.reachable(i, n, 8); err != nil {
		return nil, err
	}
	out := make([]Handle, n)
	return out, a.access(i, func() { copy(out, slice[Handle](addr, n)) })
}

// setHandles stores handles in an array.
func (a *arguments) setHandles(i int, list []Handle) error {
	if len(list) == 0 {
		return nil
	}
	addr := a.Addr(i)
	if addr == 0 {
		return fail(a.name(i), errArg, "it is NULL, want an array of %d handles", len(list))
	}
	return a.access(i, func() { copy(slice[Handle](addr, len(list)), list) })
}

// cString is a string of C. Of a longer one it is the first most bytes.
func (a *arguments) cString(i, most int) (s string, err error) {
	addr := a.Addr(i)
	if addr == 0 {
		return "", fail(a.name(i), errArg, "it is NULL, want a string")
	}
	err = a.access(i, func() { s = cStringAt(addr, most) })
	return s, err
}

// cStringAt is the string of C at an address. Of a longer one it is the first most bytes.
func cStringAt(addr uint64, most int) string {
	b := make([]byte, 0, min(most, 64))
	for len(b) < most {
		c := *at[byte](addr + uint64(len(b)))
		if c == 0 {
			break
		}
		b = append(b, c)
	}
	return string(b)
}

// setCString stores a string of C.
func (a *arguments) setCString(i int, s string) error {
	addr := a.Addr(i)
	if addr == 0 {
		return fail(a.name(i), errArg, "it is NULL, want where to store a string")
	}
	return a.access(i, func() { copy(slice[byte](addr, len(s)+1), s+"\x00") })
}
