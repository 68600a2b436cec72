package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

// bar is one promise, in one place, and what came out.
type bar struct {
	what, where, bound string
	measured           []string
	missing            bool // not all that it is about was measured
	broken             bool
}

func (b *bar) holds() string {
	switch {
	case b.broken:
		return "**no**"
	case b.missing:
		return "not measured"
	}
	return "yes"
}

// most and least take one value up and compare it.
func (b *bar) most(of string, v, bound float64) *bar  { return b.compare(of, v, v <= bound) }
func (b *bar) least(of string, v, bound float64) *bar { return b.compare(of, v, v >= bound) }

func (b *bar) compare(of string, v float64, ok bool) *bar {
	if math.IsNaN(v) {
		b.missing = true
		b.told(strings.TrimSpace(of + " –"))
		return b
	}
	b.broken = b.broken || !ok
	b.told(strings.TrimSpace(of + " " + short(v)))
	return b
}

func (b *bar) told(s string) *bar {
	b.measured = append(b.measured, s)
	return b
}

// also reports a value that the bar does not bind.
func (b *bar) also(of string, v float64, unit string) *bar {
	if !math.IsNaN(v) {
		b.told("(" + of + " " + strings.TrimSpace(short(v)+" "+unit) + ")")
	}
	return b
}

// The ways of peers, by what they do. Debian has no one-sided test of libfabric.
var (
	oneSided = []way{{"UCX", "put"}, {"MPICH", "put"}}
	twoSided = []way{{"UCX", "am"}, {"libfabric", "msg"}, {"libfabric", "rdm"}, {"MPICH", "send"}, {"Open MPI", "send"}}
	openPut  = []way{{"Open MPI", "put"}}
	// What a link does over raw TCP, in C: the floor under bars that compare with raw TCP.
	acknowledged = "TCP, acknowledged"

	cTCP     = []way{{sample.C, "TCP, spin"}, {sample.C, "TCP, yield"}}
	bulk     = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20}
	networks = []string{sample.Loopback, sample.Veth}
)

// bars are all promises, computed from what was measured.
func (d *data) bars() []*bar {
	all := d.localBars()
	for _, place := range networks {
		all = append(all, d.remoteBars(place)...)
	}
	all = append(all, d.callBars()...)
	return append(all, d.limitBars()...)
}

func (d *data) localBars() []*bar {
	ours := func(how, what string, size int) *series { return d.at(sample.Ours, how, what, sample.Local, size) }
	word := (&bar{what: "one word, one way : raw shared flag", where: sample.Local, bound: "≤ 1.25"}).
		most("", ours("", sample.Latency, 4).ownRatio(), 1.25)
	ucx := (&bar{what: "64 B one way : UCX put over posix", where: sample.Local, bound: "≤ 1.1"}).
		most("", ratio(ours("", sample.Latency, 64), d.at("UCX", "put", sample.Latency, sample.Local, 64)), 1.1)
	copies := &bar{what: "send bandwidth, 64 KiB to 4 MiB : memmove", where: sample.Local, bound: "≥ 0.95"}
	for _, size := range bulk {
		copies.least(byteSize(size), ours("sync", sample.Bandwidth, size).ownRatio(), .95)
	}
	puts, polled := ours("successive", sample.Rate, 8), ours("polled", sample.Rate, 8)
	rate := (&bar{what: "8-byte sends a second, in millions; and : UCX put", where: sample.Local, bound: "≥ 40; ≥ 1"}).
		least("", puts.median()/1e6, 40).
		least(":", ratio(puts, d.at("UCX", "put", sample.Rate, sample.Local, 8)), 1).
		also("polled", polled.median()/1e6, "M/s")
	return []*bar{word, ucx, copies, rate}
}

func (d *data) remoteBars(place string) []*bar {
	ours := func(how, what string, size int) *series { return d.at(sample.Ours, how, what, place, size) }
	lat := ours("", sample.Latency, 64)
	raw := &bar{what: "64 B one way : raw C TCP", where: place, bound: "≤ 1.1"}
	for _, w := range cTCP {
		raw.most(w.how, d.at(w.contender, w.how, sample.Latency, place, 64).ownRatio(), 1.1)
	}
	pinned := (&bar{what: "64 B one way, both ends on one CPU : raw C TCP with yield there", where: place, bound: "≤ 1.5"}).
		most("", ratio(ours("one CPU", sample.Latency, 64), d.at(sample.C, "TCP, yield, one CPU", sample.Latency, place, 64)), 1.5)
	put := d.best(oneSided, sample.Latency, place, 64, false)
	one := (&bar{what: "64 B one way : best one-sided peer over TCP", where: place, bound: "≤ 0.5"}).
		most(named(put), ratio(lat, put), .5)
	made := d.best(openPut, sample.Latency, place, 64, false)
	one.also("Open MPI, whose puts are made of messages,", ratio(lat, made), "")
	send := d.best(twoSided, sample.Latency, place, 64, false)
	two := (&bar{what: "64 B one way : best two-sided peer over TCP", where: place, bound: "≤ 1.0"}).
		most(named(send), ratio(lat, send), 1)
	flood := &bar{what: "bandwidth, 8 asynchronous sends in flight, 64 KiB to 4 MiB : raw C TCP", where: place, bound: "≥ 0.95"}
	for _, size := range bulk {
		best := d.best(cTCP, sample.Bandwidth, place, size, true)
		flood.least(byteSize(size), best.ownRatio(), .95)
		flood.also("synchronous", ratio(ours("sync", sample.Bandwidth, size), best), "")
		flood.also("C acknowledging", ratio(d.at(sample.C, acknowledged, sample.Bandwidth, place, size), best), "")
	}
	peer := d.best(append(openPut, oneSided...), sample.Bandwidth, place, 1<<20, true)
	mega := (&bar{what: "bandwidth, 1 MiB : best one-sided peer over TCP", where: place, bound: "≥ 1.0"}).
		least(named(peer), ratio(ours("async", sample.Bandwidth, 1<<20), peer), 1)
	get := (&bar{what: "get, 64 B : raw TCP round trip, the exporter waiting", where: place, bound: "≤ 1.15"}).
		most("", ours("waiting", sample.Fetch, 64).ownRatio(), 1.15)
	for _, how := range []string{"computing", "sleeping"} {
		get.also(how, ours(how, sample.Fetch, 64).ownRatio(), "")
	}
	both := &bar{what: "both ways at once, total : raw TCP", where: place, bound: "≥ 0.95"}
	for _, size := range bulk {
		both.least(byteSize(size), ours("stream", sample.Bidir, size).ownRatio(), .95)
		both.also("exchange", ours("exchange", sample.Bidir, size).ownRatio(), "")
		both.also("C acknowledging", ratio(
			d.at(sample.C, acknowledged, sample.Bidir, place, size), d.at(sample.Limit, "stream", sample.Bidir, place, size)), "")
	}
	return []*bar{raw, pinned, one, two, flood, mega, get, both}
}

// limitBars hold the limits that our tool measures against those in C.
func (d *data) limitBars() []*bar {
	limit := func(how, what, place string, size int) *series { return d.at(sample.Limit, how, what, place, size) }
	flag := &bar{what: "our raw flag : C's", where: sample.Local, bound: "≤ 1.1"}
	best := d.best([]way{{sample.C, "flag, spin"}, {sample.C, "flag, yield"}}, sample.Latency, sample.Local, 4, false)
	flag.most("", ratio(limit("", sample.Latency, sample.Local, 4), best), 1.1)
	copies := &bar{what: "C's memmove : ours", where: sample.Local, bound: "≤ 1.1"}
	for _, size := range bulk {
		copies.most(byteSize(size), ratio(d.at(sample.C, "memmove", sample.Bandwidth, sample.Local, size), limit("sync", sample.Bandwidth, sample.Local, size)), 1.1)
	}
	all := []*bar{flag, copies}
	for _, place := range networks {
		best := d.best(cTCP, sample.Latency, place, 64, false)
		trip := (&bar{what: "our raw TCP, 64 B one way : C's", where: place, bound: "≤ 1.1"}).
			most("", ratio(limit("", sample.Latency, place, 64), best), 1.1)
		flood := &bar{what: "C's TCP bandwidth : ours", where: place, bound: "≤ 1.1"}
		for _, size := range bulk {
			best := d.best(cTCP, sample.Bandwidth, place, size, true)
			flood.most(byteSize(size), ratio(best, limit("async", sample.Bandwidth, place, size)), 1.1)
		}
		all = append(all, trip, flood)
	}
	return all
}

func named(s *series) string {
	if s == nil {
		return ""
	}
	return way{s.key.Contender, s.key.How}.name()
}

func byteSize(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// short gives three digits that count.
func short(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
