package relay

import (
	"slices"
	"testing"

	"github.com/vmmc-go/vmmc/samples/internal/route"
)

// perfect is what the ranks of a run record that goes well.
func perfect(messages []route.Message, n int) []record {
	out := make([]record, n)
	for _, m := range messages {
		out[m.From].Sent = append(out[m.From].Sent, m)
		out[m.To].Received = append(out[m.To].Received, m)
	}
	return out
}

func TestJoin(t *testing.T) {
	for _, k := range []route.Kind{route.Chain, route.One2All, route.All2All} {
		got, err := join(perfect(route.Draw(k, 3, 4, 9), 4))
		if err != nil {
			t.Fatal(err)
		}
		if err := route.Check(k, 4, 9, got); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
}

// What one side alone has seen shows.
func TestJoinOfWhatDoesNotFit(t *testing.T) {
	messages := route.Draw(route.All2All, 3, 3, 2)
	for name, change := range map[string]func(r []record){
		"not received":   func(r []record) { r[1].Received = r[1].Received[1:] },
		"not sent":       func(r []record) { r[1].Sent = r[1].Sent[1:] },
		"received twice": func(r []record) { r[2].Received = append(r[2].Received, r[2].Received[0]) },
		"sent twice":     func(r []record) { r[0].Sent = slices.Insert(r[0].Sent, 0, r[0].Sent[0]) },
	} {
		r := perfect(messages, 3)
		change(r)
		if got, err := join(r); err == nil {
			t.Errorf("a message that was %s: %v", name, got)
		}
	}
}
