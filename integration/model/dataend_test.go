package model_test

import (
	"encoding/binary"
	"slices"
)

// dataEnd compares the end of data with the model.
func (s *sequence) dataEnd() {
	list := s.redirectables()
	if s.rarely(6, "any") {
		list = s.exports
	}
	if len(list) == 0 {
		return
	}
	e := pick(s, list, "export")
	s.say("%s: end of data of %d", e.owner.name, e.id)
	off, there := e.e.DataEnd()
	reach("calls", "DataEnd")
	if e.named == nil {
		if there {
			s.fail("DataEnd: an end of data without redirection")
		}
		return
	}
	got := uint32(0)
	if there {
		got = uint32(off) + 4
		reach("redirection", "the end of data known")
	} else {
		reach("redirection", "the end of data not there")
	}
	sources := e.end.sources(0, 4)
	if len(sources) > 1 {
		reach("redirection", "the end of data in doubt")
	}
	if !slices.ContainsFunc(sources, func(b []byte) bool { return le(b) == got }) {
		for _, b := range sources {
			s.say("  it may be %d", int(le(b))-4)
		}
		s.say("  it is %d, %v", off, there)
		s.fail("DataEnd: an end that cannot be")
	}
	e.end.adopt(binary.LittleEndian.AppendUint32(nil, got))
	if s.rarely(4, "clear") {
		began := s.tick()
		e.e.ClearDataEnd()
		reach("calls", "ClearDataEnd")
		e.end.add(&write{data: make([]byte, 4), began: began, done: s.tick(), sure: true, exp: e, mem: e.end})
	}
}
