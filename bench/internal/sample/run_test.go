package sample_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

func example(id string, began time.Time) *sample.Run {
	return &sample.Run{
		ID: id, Seed: 5, Began: began, Ended: began.Add(time.Minute),
		Machine: map[string]string{"CPUs": "2"}, Versions: map[string]string{"Go": "go1.26.8"},
		Samples: []sample.Sample{
			{Round: 1, Key: sample.Key{Contender: "UCX", How: "put", What: sample.Latency, Place: sample.Local, Size: 64}, Value: 55, Unit: "ns"},
			{Round: 2, Key: sample.Key{Contender: "vmmc", What: sample.Latency, Place: sample.Veth, Size: 64}, Value: 4e3, Unit: "ns", Ratio: 1.1},
		},
		Failures: []sample.Failure{{Round: 1, Name: "veth/x", Why: `it said "samples": null`}},
	}
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for id, began := range map[string]time.Time{"b": noon, "a": noon.Add(time.Hour), "c": noon.Add(-time.Hour)} {
		want := example(id, began)
		if err := want.Save(dir); err != nil {
			t.Fatal(err)
		}
		got, err := sample.Load(dir, id)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Error(err, d)
		}
		if got.Rounds() != 2 {
			t.Errorf("%d rounds", got.Rounds())
		}
	}
	if id, err := sample.Latest(dir); err != nil || id != "a" {
		t.Errorf("the latest is %q: %v", id, err)
	}
	empty := &sample.Run{ID: "none", Machine: map[string]string{}, Versions: map[string]string{}, Samples: []sample.Sample{}}
	if err := empty.Save(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := sample.Load(dir, "none"); err != nil || got.Rounds() != 0 {
		t.Error(got, err)
	}
}

func TestLoadNonsense(t *testing.T) {
	dir := t.TempDir()
	if _, err := sample.Load(dir, "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := sample.Latest(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sample.Load(dir, "x"); err == nil {
		t.Error("half a file was read")
	}
	for _, id := range []string{"", "../x", "a/b", ".x", "a b"} {
		if err := example(id, time.Now()).Save(dir); err == nil {
			t.Errorf("%q was saved", id)
		}
	}
}

// Rounds of two machines, or of two versions, are not put together.
func TestSame(t *testing.T) {
	r := example("a", time.Now())
	if err := r.Same(map[string]string{"CPUs": "2"}, map[string]string{"Go": "go1.26.8"}); err != nil {
		t.Error(err)
	}
	if r.Same(map[string]string{"CPUs": "4"}, r.Versions) == nil || r.Same(r.Machine, map[string]string{"Go": "go1.27"}) == nil {
		t.Error("another machine or version was taken for the same")
	}
}
