package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/demo"
)

// The demo says one sentence a line. A comparison that came out slower than vmmc is
// not called a limit.
func TestDemoSpeaksSentences(t *testing.T) {
	var b strings.Builder
	printDemo(&b, demo.Result{
		OK: true, PeerGoneMS: 0.25, PeerGoneDaemonDeadMS: 12,
		Paths: []demo.Path{
			{
				Path: "local", Bytes: 64 << 20, SHA256OK: true, LatencyMessageBytes: 4, LatencyP50NS: 43,
				LimitLatencyP50NS: 2151, BandwidthMBps: 9100, LimitBandwidthMBps: 8400, TransferMBps: 3200, LimitRounds: 10,
			},
			{
				Path: "remote", Bytes: 7, SHA256OK: false, LatencyMessageBytes: 64, LatencyP50NS: 9800,
				LimitLatencyP50NS: 10200, BandwidthMBps: 850, LimitBandwidthMBps: 3100, LimitRounds: 7,
			},
		},
	})
	sentence := regexp.MustCompile(`^(  )?[A-Z][^.:]*(\.[0-9][^.:]*)*[.:]( its SHA-256 differs\.)?$`)
	for l := range strings.Lines(b.String()) {
		if l = strings.TrimSuffix(l, "\n"); !sentence.MatchString(l) {
			t.Errorf("no sentence: %q", l)
		}
	}
	for _, want := range []string{
		"A file of 64 MiB arrived whole (its SHA-256 is the same), at 3.2 GB/s.",
		"A message of 4 bytes takes 43 ns one way; a bare flag in shared memory takes 2.15 µs in the best of 10 measurements.",
		"Messages of 1 MiB reach 9.1 GB/s; copying them without vmmc reaches 8.4 GB/s in the best of 10 measurements.",
		"A message of 64 bytes takes 9.8 µs one way; a bare TCP connection takes 10.2 µs in the best of 7 measurements.",
		"Messages of 1 MiB reach 850 MB/s; a bare TCP connection reaches 3.1 GB/s.",
		"both nodes are on this machine",
		"A file of 7 bytes arrived DAMAGED: its SHA-256 differs.",
		"A process that sends to it is told after 250 µs.",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, b.String())
		}
	}
	for _, no := range []string{"limit", "ratio"} {
		if strings.Contains(b.String(), no) {
			t.Errorf("it says %q:\n%s", no, b.String())
		}
	}
}

func TestParseAmount(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "7": 7, "1k": 1 << 10, "64K": 64 << 10, "64KiB": 64 << 10, "1G": 1 << 30, "1GB": 1 << 30,
		"2T": 2 << 40, "1099511627776": 1 << 40,
		"": -1, "G": -1, "1X": -1, "1GG": -1, "1iG": -1, "-1": -1, "1 G": -1, "9999999T": -1, "0x10": -1,
	} {
		got, err := parseAmount(s)
		if (err == nil) != (want >= 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
}
