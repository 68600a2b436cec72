package curve

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/samples/internal/mesh"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
	"github.com/vmmc-go/vmmc/samples/internal/report"
)

// limit bounds the messages of a burst: more make nothing more exact.
const limit = 4096

// Point is what was measured with one size of message.
type Point struct {
	Program    string         `json:"program"`
	From       vmmc.ProcessID `json:"master"`
	To         vmmc.ProcessID `json:"peer"`
	Path       string         `json:"path"` // "mapped" or "stream"
	Seed       uint64         `json:"seed"`
	Iterations int            `json:"iterations"`
	report.Speed
	Checked mesh.Count `json:"checked"`
}

// Measure measures all sizes (in words) between the two ranks of a run, and shows
// each to the master as soon as it was measured. The master gets the points.
func Measure(
	ctx context.Context, m *ranks.Member, k Kind, sizes []int, iterations int, seed uint64,
	show func(Point),
) ([]Point, error) {
	places := func(words int) int { return min(mesh.Places(words, 1, limit), max(iterations, 2)) }
	room := 0
	for _, w := range sizes {
		room = max(room, mesh.Room(w, places(w)))
	}
	h, err := mesh.Open(ctx, m, room, seed)
	if err != nil {
		return nil, err
	}
	s := newSide(h)
	s.memory = make([]byte, room)
	var points []Point
	var checked []mesh.Count
	for _, w := range sizes {
		took, err := s.size(ctx, k, w, iterations, places(w))
		if err != nil {
			return nil, err
		}
		checked = append(checked, h.Checked)
		if !m.Master() {
			continue
		}
		p := Point{
			From: m.Ranks[0], To: m.Ranks[1], Path: s.pair.Path(), Seed: seed, Iterations: iterations,
			Speed: report.NewSpeed(w, uint64(iterations)*uint64(k.Ways), took), Checked: h.Checked,
		}
		points = append(points, p)
		show(p)
	}
	if !m.Master() {
		return nil, m.Report(checked)
	}
	return points, addChecked(ctx, m, points)
}

// addChecked adds what the other rank has checked.
func addChecked(ctx context.Context, m *ranks.Member, points []Point) error {
	results, err := m.Gather(ctx)
	if err != nil {
		return err
	}
	var checked []mesh.Count
	if err := json.Unmarshal(results[0], &checked); err != nil {
		return fmt.Errorf("the result of %s: %w", m.Name(1), err)
	}
	if len(checked) != len(points) {
		return fmt.Errorf("the result of %s: %d sizes, wanted %d", m.Name(1), len(checked), len(points))
	}
	for i := range points {
		points[i].Checked.Add(checked[i])
		if n, want := points[i].Checked.Messages, points[i].Messages; n != want {
			return fmt.Errorf("%d messages of %d words were checked, %d were sent", n, points[i].Words, want)
		}
	}
	return nil
}
