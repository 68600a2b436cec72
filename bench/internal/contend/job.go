// Package contend runs the contenders: each starts its programs in a place and reads what they
// print.
package contend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/bench/internal/place"
	"github.com/vmmc-go/vmmc/bench/internal/sample"
	"github.com/vmmc-go/vmmc/bench/internal/setup"
)

// Sizes that contenders are measured at.
var (
	small = []int{64, 1024, 4096}
	large = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20}
)

// Job is one contender in one place. Its samples have no round yet. Those with the same Beside are
// compared with each other, and run one after another: what the machine does changes from minute to
// minute.
type Job struct {
	Name, Beside string
	run          func(context.Context) ([]sample.Sample, error)
}

func (j Job) beside(what string) Job {
	j.Beside = what
	return j
}

// patience is what one job gets.
const patience = 60 * time.Second

// Jobs are all contenders in all places.
func Jobs(p *setup.Programs, places []*place.Place) []Job {
	var jobs []Job
	for _, at := range places {
		k := &kit{p, at}
		for _, more := range [][]Job{k.ours(), k.raw(), k.ucx(), k.fabric(), k.mpi(), k.rpc()} {
			for _, j := range more {
				j.Name = at.Name + "/" + j.Name
				if j.Beside != "" {
					j.Beside = at.Name + "/" + j.Beside
				}
				jobs = append(jobs, j)
			}
		}
	}
	return jobs
}

// kit is what jobs of one place are made of.
type kit struct {
	*setup.Programs
	at *place.Place
}

func (k *kit) shared() bool { return k.at.Name == sample.Local }

func (k *kit) key(contender, how, what string, size int) sample.Key {
	return sample.Key{Contender: contender, How: how, What: what, Place: k.at.Name, Size: size}
}

// latency is a sample of a contender that tells percentiles.
func latency(key sample.Key, l line) sample.Sample {
	return sample.Sample{Key: key, Value: l.P50, Unit: sample.Nanoseconds, Min: l.Min, P99: l.P99, P999: l.P999, Batch: l.Batch}
}

func bandwidth(key sample.Key, mbps float64) sample.Sample {
	return sample.Sample{Key: key, Value: mbps, Unit: sample.Megabytes}
}

// line is what our own programs print, one to a line.
type line struct {
	What  string  `json:"what"`
	Wait  string  `json:"wait"`
	CPU   *int    `json:"cpu"`
	Size  int     `json:"size"`
	Min   float64 `json:"min"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Batch float64 `json:"batch"`
	MBps  float64 `json:"mbps"`
}

func parseLines(out []byte) ([]line, error) {
	var lines []line
	d := json.NewDecoder(bytes.NewReader(out))
	for d.More() {
		var l line
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("reading %q: %w", out, err)
		}
		if l.What == "" || l.Size < 1 || (l.P50 <= 0) == (l.MBps <= 0) {
			return nil, fmt.Errorf("no figure of a size in %+v", l)
		}
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return nil, errors.New("it printed nothing")
	}
	return lines, nil
}

// output runs a command and returns what it printed. What it complained about is in the error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s",
			strings.Join(cmd.Args, " "), err, lastLines(out.String()+errs.String()))
	}
	return out.Bytes(), nil
}

func lastLines(s string) string {
	const most = 600
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = "…" + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	return s
}
