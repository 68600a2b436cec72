package sample

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Run is everything that was measured in one run, and of what.
type Run struct {
	ID       string            `json:"id"`
	Seed     uint64            `json:"seed"`
	Began    time.Time         `json:"began"`
	Ended    time.Time         `json:"ended"`
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	Samples  []Sample          `json:"samples"`
	Failures []Failure         `json:"failures,omitempty"`
}

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func file(dir, id string) (string, error) {
	if !validID.MatchString(id) {
		return "", fmt.Errorf("%q is no name for a run: letters, digits, dots and dashes", id)
	}
	return filepath.Join(dir, id+".json"), nil
}

// Load reads a run. One that has not begun is fs.ErrNotExist.
func Load(dir, id string) (*Run, error) {
	path, err := file(dir, id)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a run: %w", err)
	}
	r := &Run{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("reading the run in %s: %w", path, err)
	}
	return r, nil
}

// Latest returns the id of the run that began last.
func Latest(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return "", err
	}
	var last *Run
	for _, f := range files {
		id := filepath.Base(f[:len(f)-len(".json")])
		r, err := Load(dir, id)
		if err != nil {
			return "", err
		}
		if last == nil || r.Began.After(last.Began) {
			last = r
		}
	}
	if last == nil {
		return "", fmt.Errorf("no run in %s yet: %w", dir, fs.ErrNotExist)
	}
	return last.ID, nil
}

// Save writes the run over what was saved of it before, wholly or not at all.
func (r *Run) Save(dir string) error {
	path, err := file(dir, r.ID)
	if err != nil {
		return err
	}
	slices.SortStableFunc(r.Samples, func(a, b Sample) int { return cmp.Compare(a.Round, b.Round) })
	b, err := r.encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // results are for everybody
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o644); err != nil { //nolint:gosec // results are for everybody
		return errors.Join(err, os.Remove(path+".new"))
	}
	return os.Rename(path+".new", path)
}

// encode puts each sample on a line of its own, so that runs can be compared by lines.
func (r *Run) encode() ([]byte, error) {
	head := *r
	head.Samples = nil
	b, err := json.MarshalIndent(&head, "", "  ")
	if err != nil {
		return nil, err
	}
	const none = `"samples": null`
	at := bytes.Index(b, []byte(none))
	if at < 0 {
		return nil, errors.New("a run without a place for its samples")
	}
	out := append([]byte{}, b[:at]...)
	out = append(out, `"samples": [`...)
	for i, s := range r.Samples {
		line, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("writing %v: %w", s.Key, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, "\n    "...), line...)
	}
	out = append(out, "\n  ]"...)
	return append(append(out, b[at+len(none):]...), '\n'), nil
}

// Rounds is the number of the last round that has samples.
func (r *Run) Rounds() int {
	last := 0
	for _, s := range r.Samples {
		last = max(last, s.Round)
	}
	return last
}

// Same says whether more rounds on this machine, with these versions, belong to the run.
func (r *Run) Same(machine, versions map[string]string) error {
	if maps.Equal(r.Machine, machine) && maps.Equal(r.Versions, versions) {
		return nil
	}
	return fmt.Errorf("run %s was measured on %v with %v, and this is %v with %v: begin another run",
		r.ID, r.Machine, r.Versions, machine, versions)
}
