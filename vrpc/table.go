package vrpc

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc/xdr"
)

// procedure is one that is served.
type procedure struct {
	key     key // of its service, whose own fields are its owner's
	service *Service
	number  uint32
	name    string
	memory  xdr.Memory
	make    func() Call
	again   bool // Calls may be used again
	values  bool // see [Procedure.Values]
	kept    sync.Pool
}

func (p *procedure) newCall() Call {
	if p.again {
		if c, ok := p.kept.Get().(Call); ok {
			return c
		}
	}
	return p.make()
}

func (p *procedure) putCall(c Call) {
	if p.again {
		p.kept.Put(c)
	}
}

// key names a version of a program.
type key struct{ program, version uint32 }

// table is what a server serves. It is not changed any more once others have it.
type table struct {
	procedures map[key]map[uint32]*procedure
	services   []*Service
}

// with returns a table that has s too.
func (t *table) with(s *Service, inPlace bool) (*table, error) {
	if s == nil {
		return nil, errors.New("vrpc: register: there is no service")
	}
	k := key{s.Program, s.Version}
	if _, ok := t.procedures[k]; ok {
		return nil, fmt.Errorf("vrpc: register %s: program %d version %d is registered already",
			s.Name, s.Program, s.Version)
	}
	procs := map[uint32]*procedure{0: {key: k, service: s, name: "0", make: func() Call { return null{} }, again: true, values: true}}
	for i, p := range s.Procedures {
		if p.New == nil || i > 0 && p.Number <= s.Procedures[i-1].Number {
			return nil, fmt.Errorf("vrpc: register %s: procedure %d has no New, or is not in its order", s.Name, p.Number)
		}
		memory := xdr.Copy
		if inPlace || p.Values {
			memory = xdr.InPlace
		}
		procs[p.Number] = &procedure{
			key: k, service: s, number: p.Number, name: cmp.Or(p.Name, fmt.Sprint(p.Number)), memory: memory,
			make: p.New, again: inPlace || p.Values, values: p.Values,
		}
	}
	n := &table{procedures: maps.Clone(t.procedures), services: append(slices.Clip(t.services), s)}
	if n.procedures == nil {
		n.procedures = map[key]map[uint32]*procedure{}
	}
	n.procedures[k] = procs
	return n, nil
}

// versions are the lowest and the highest of a program.
func (t *table) versions(program uint32) (low, high uint32, ok bool) {
	low = math.MaxUint32
	for k := range t.procedures {
		if k.program == program {
			low, high, ok = min(low, k.version), max(high, k.version), true
		}
	}
	return low, high, ok
}
