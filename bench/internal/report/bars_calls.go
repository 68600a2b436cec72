package report

import (
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

// eachOurs calls f with all series of ours of one measurement in a place, by way and size.
func (d *data) eachOurs(what, place string, f func(*series)) {
	for _, w := range d.ways(what, place) {
		if w.contender != sample.Ours {
			continue
		}
		for _, size := range d.sizes(what, place) {
			if s := d.at(w.contender, w.how, what, place, size); s != nil {
				f(s)
			}
		}
	}
}

// callBars are of what calls cost, and of what lasts; only our tool measures them.
func (d *data) callBars() []*bar {
	var all []*bar
	for _, place := range []string{sample.Local, sample.Loopback, sample.Veth} {
		sends := &bar{what: "asynchronous send, ns of its caller; and until it is complete, µs", where: place, bound: "≤ 300; ≤ 1000"}
		for _, size := range []int{8, 64} {
			sends.most(byteSize(size), d.at(sample.Ours, "async", "overhead", place, size).median(), 300)
			sends.most("complete", d.at(sample.Ours, "completion", "overhead", place, size).median()/1e3, 1000)
		}
		all = append(all, sends)
	}
	for _, b := range []struct {
		how, what, bound string
		most             float64
	}{
		{"spinning", "notification, handler entered : raw flag, spinning", "≤ 2.0", 2},
		{"asleep", "notification, handler entered : raw futex wake, asleep", "≤ 1.3", 1.3},
	} {
		one := &bar{what: b.what, where: sample.Local, bound: b.bound}
		d.eachOurs("notify", sample.Local, func(s *series) {
			if s.key.How == b.how {
				one.most(byteSize(s.key.Size), s.ownRatio(), b.most)
			}
		})
		one.missing = one.missing || len(one.measured) == 0
		all = append(all, one)
	}
	imports := &bar{what: "import and close, µs, by exports", where: sample.Local, bound: "≤ 150, flat"}
	costs := map[string][]float64{} // of those with a link, and of first ones
	d.eachOurs(sample.Import, sample.Local, func(s *series) {
		if s.unit == sample.Nanoseconds {
			imports.most(s.key.How, s.median()/1e3, 150)
			kind, _, _ := strings.Cut(s.key.How, ",")
			costs[kind] = append(costs[kind], s.median())
		}
	})
	for _, kind := range []string{"linked", "first"} {
		if c := costs[kind]; len(c) > 1 {
			imports.also(kind+", most : least", slices.Max(c)/slices.Min(c), "")
		}
	}
	imports.also("a first one's packets and pages alone in Go", d.at(sample.Limit, "first, 1 exports", sample.Import, sample.Local, 4096).median()/1e3, "")
	imports.also("in C", d.at(sample.C, "", sample.Import, sample.Local, 4096).median()/1e3, "")
	imports.missing = imports.missing || len(costs) == 0
	all = append(all, imports)
	all = append(all, d.rpcBars()...)
	for _, place := range []string{sample.Local, sample.Loopback} {
		scale := &bar{what: "beside 1,000 idle links, importers of one buffer: p50 : alone; KiB of memory a link", where: place, bound: "≤ 1.2; ≤ 32"}
		d.eachOurs("scale", place, func(s *series) {
			switch {
			case strings.HasPrefix(s.key.How, "latency beside 1000 "):
				scale.most(strings.TrimPrefix(s.key.How, "latency beside "), s.ownRatio(), 1.2)
			case strings.HasPrefix(s.key.How, "memory of an idle link"):
				scale.most(s.key.How, s.median()/1024, 32)
			}
		})
		scale.missing = scale.missing || len(scale.measured) == 0
		all = append(all, scale)
	}
	return all
}

// rpcBars are of calls by remote memory, beside those of others.
func (d *data) rpcBars() []*bar {
	var all []*bar
	add := func(place string, size int, what, how, bound string, compare func(b *bar, v float64)) {
		b := &bar{what: what, where: place, bound: bound}
		compare(b, d.at(sample.Ours, how, sample.RPC, place, size).ownRatio())
		all = append(all, b)
	}
	most := func(bound float64) func(*bar, float64) {
		return func(b *bar, v float64) { b.most("", v, bound) }
	}
	for _, place := range []string{sample.Local, sample.Loopback, sample.Veth} {
		if place == sample.Local {
			add(place, 0, "null call : libtirpc over TCP", "null, vmmc : libtirpc over TCP", "≤ 0.25", most(.25))
			add(place, 0, "null call : gRPC-Go over a unix socket", "null, vmmc : gRPC-Go", "≤ 0.1", most(.1))
		} else {
			add(place, 0, "null call : raw TCP round trip", "null, vmmc : raw TCP, there and back", "≤ 1.2", most(1.2))
			add(place, 0, "null call : libtirpc over TCP", "null, vmmc : libtirpc over TCP", "≤ 1.0", most(1))
		}
		add(place, 1<<20, "calls with 1 MiB, seen in place : Send", "argument, vmmc : Send", "≥ 0.8",
			func(b *bar, v float64) { b.least("", v, .8) })
	}
	return all
}
