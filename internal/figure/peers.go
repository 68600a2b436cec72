package figure

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/internal/bench"
)

// run is as much as is wanted here of a file of bench/results.
type run struct {
	Samples []struct {
		Contender string  `json:"contender"`
		How       string  `json:"how"`
		What      string  `json:"what"`
		Place     string  `json:"place"`
		Size      int     `json:"size"`
		Value     float64 `json:"value"`
		Unit      string  `json:"unit"`
	} `json:"samples"`
}

// Peer is a figure of another library, the median over the rounds of its run.
type Peer struct {
	Name, What, Path string
	Size             int
	Value            float64
}

// ReadPeers reads a file of bench/results. What is ours there, and the limits, are
// left out: they are drawn from what was measured here.
func ReadPeers(file string) ([]Peer, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read what peers did: %w", err)
	}
	var r run
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read what peers did in %s: %w", file, err)
	}
	paths := map[string]string{"local": bench.Local, "loopback": bench.Remote}
	rounds := map[Peer][]float64{}
	for _, s := range r.Samples {
		path, ok := paths[s.Place]
		if !ok || strings.HasPrefix(s.Contender, "vmmc") {
			continue
		}
		k := Peer{Name: strings.TrimSpace(s.Contender + " " + s.How), What: s.What, Path: path, Size: s.Size}
		rounds[k] = append(rounds[k], s.Value)
	}
	if len(rounds) == 0 {
		return nil, fmt.Errorf("%s has no figures of peers: want a file of bench/results", file)
	}
	var out []Peer
	for k, v := range rounds {
		slices.Sort(v)
		k.Value = v[len(v)/2]
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b Peer) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return a.Size - b.Size
	})
	return out, nil
}
