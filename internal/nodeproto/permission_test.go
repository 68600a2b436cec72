//go:build linux

package nodeproto

import (
	"reflect"
	"strings"
	"testing"
)

// Whatever passes the check fits into a packet, and says the same at its end.
func TestPermissionsFitIntoAPacket(t *testing.T) {
	const worst = "\x01" // six bytes in JSON
	many := func(n int, s string) []string { return strings.Fields(strings.Repeat(s+" ", n)) }
	addresses := make([]Address, MaxEntries-1)
	for i := range addresses {
		addresses[i] = Address{strings.Repeat(worst, MaxNames/len(addresses)), 1<<32 - 1}
	}
	for name, ps := range map[string][]Permission{
		"one long name":   {{Users: []string{strings.Repeat(worst, MaxNames)}}},
		"quotes":          {{Sessions: []string{strings.Repeat(`"`, MaxNames)}}},
		"separators":      {{Sessions: []string{strings.Repeat("\u2028", MaxNames/3)}}},
		"many names":      {{Nodes: many(MaxEntries-1, strings.Repeat(worst, MaxNames/MaxEntries))}},
		"many processes":  {{Processes: addresses}},
		"many of nothing": make([]Permission, MaxEntries),
		"many of all": func() (ps []Permission) {
			long := strings.Repeat(worst, MaxNames/(MaxEntries/5*4))
			for range MaxEntries / 5 {
				ps = append(ps, Permission{
					[]string{long}, []string{long}, []string{long}, []Address{{long, 1<<32 - 1}},
				})
			}
			return ps
		}(),
	} {
		if err := CheckPermissions(ps); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := ExportRequest{
			ID: 1<<32 - 1, Size: 1 << 62, Rights: MayRead | MayWrite, Serial: 1<<64 - 1, Permit: ps,
		}
		b, err := encode(header{kind: request, method: Export, id: 1}, want)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := Decode[ExportRequest](b[headerSize:]); err != nil || !reflect.DeepEqual(got,
			want) {
			t.Errorf("%s: it differs at the other end (%v)", name, err)
		}
	}
}

func TestPermissionsThatCannotBe(t *testing.T) {
	for name, ps := range map[string][]Permission{
		"too many entries":  make([]Permission, MaxEntries+1),
		"too many names":    {{Users: make([]string, MaxEntries)}},
		"too long names":    {{Users: []string{strings.Repeat("x", MaxNames)}, Sessions: []string{"y"}}},
		"too long a node":   {{Processes: []Address{{strings.Repeat("x", MaxNames+1), 1}}}},
		"no name":           {{Sessions: []string{"\xff"}}},
		"no node":           {{Nodes: []string{"a", ""}}},
		"a process nowhere": {{Processes: []Address{{"", 1}}}},
	} {
		if err := CheckPermissions(ps); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
