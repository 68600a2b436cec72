package mpijob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func look(name string) (string, bool) { return "of " + name, name != "NONE" }

func none(*pflag.FlagSet) {}

// A command line of hydra's users is read as they mean it.
func TestParse(t *testing.T) {
	j, err := Parse(strings.Fields("-l -genv A 1 --genv B=2 -genvlist C,D --stdin 3 -n 2 -env E 5 -wdir /w -x F ./a -n 7 x : -np 3 -host n1:2,n2 -- b"), look, none)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A=1", "B=2", "C=of C", "D=of D"}, j.Env); diff != "" || !j.Label || j.Stdin != 3 {
		t.Errorf("%+v %s", j, diff)
	}
	a, b := j.Programs[0], j.Programs[1]
	if a.Path != "./a" || !slices.Equal(a.Args, []string{"-n", "7", "x"}) || a.Count != 2 || a.Dir != "/w" ||
		!slices.Equal(a.Env, []string{"E=5", "F=of F"}) {
		t.Errorf("the first program: %+v", a)
	}
	if b.Path != "b" || len(b.Args) != 0 || b.Count != 3 || !slices.Equal(b.Hosts, []Host{{"n1", 2}, {"n2", 1}}) || len(b.Env) != 0 {
		t.Errorf("the second program: %+v", b)
	}
	for line, says := range map[string]string{
		"":                          "no program",
		"-n 2":                      "no program",
		"a :":                       "no program",
		"-n 0 a":                    "--np 0",
		"-n x a":                    `"x"`,
		"-n":                        "no value",
		"-ppn 0 a":                  "--ppn 0",
		"-bogus a":                  "-bogus",
		"a : -l b":                  "all programs",
		"-map-by core a":            "--map-by core",
		"-bind-to x a":              "--bind-to x",
		"-bind-to 3-1 a":            "3-1",
		"-stdin all a":              "--stdin all",
		"-genv =1 a":                "no name",
		"-genv A":                   "no value",
		"-x NONE a":                 "NONE",
		"-host n1:0 a":              "slots",
		"-host , a":                 "name",
		"-genvall -genvnone a":      "give one",
		"-l=perhaps a":              "perhaps",
		"--disable-auto-cleanup= a": "disable-auto-cleanup",
	} {
		if _, err := Parse(strings.Fields(line), look, none); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", line, err, says)
		}
	}
}

// By load a rank goes to the node with the least load for each of its slots. Programs share the load,
// and a node whose load is not known comes last.
func TestPlaceByLoad(t *testing.T) {
	loads := map[string]float64{"n1": 2.5, "n2": 0, "n3": 8}
	for line, want := range map[string]string{
		"-map-by load -n 5 a":                            "n2 n2 n2 n1 n2",
		"-map-by load -host-list n1:4,n2 -n 4 a":         "n2 n1 n1 n2",
		"-map-by load -n 3 a : -host n1,n2 -n 3 b":       "n2 n2 n2 n1 n2 n1",
		"-map-by load -n 1 a : -host n4,n3 -n 2 b":       "n2 n3 n3",
		"-map-by load -n 1 a : -host n4 -n 2 b : -n 1 c": "n2 n4 n4 n2",
	} {
		j, err := Parse(strings.Fields(line), look, none)
		if err != nil {
			t.Fatal(err)
		}
		hosts, err := j.Hosts()
		if err != nil {
			t.Fatal(err)
		}
		if hosts == nil {
			hosts = []Host{{"n1", 1}, {"n2", 1}, {"n3", 1}}
		}
		j.Loads = loads
		ranks, err := j.Place(hosts)
		var got []string
		for _, r := range ranks {
			got = append(got, r.Host)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v, want %q", line, got, err, want)
		}
	}
	if loads["n2"] != 0 {
		t.Errorf("the given loads have changed: %v", loads)
	}
}

// A job has room for as many ranks as all its nodes have slots, and at least for those that it has. Each rank
// knows the number of its program.
func TestUniverse(t *testing.T) {
	for line, want := range map[string]struct {
		universe int
		apps     string
	}{
		"-n 2 a":                            {3, "0 0"},
		"-n 5 a":                            {5, "0 0 0 0 0"},
		"-n 1 a : -n 2 b":                   {3, "0 1 1"},
		"-n 1 a : -host n3:4 -n 1 b":        {7, "0 1"},
		"-n 1 a : -host N1 -n 1 b : -n 1 c": {3, "0 1 2"},
		"-ppn 4 -n 1 a":                     {8, "0"},
	} {
		j, err := Parse(strings.Fields(line), look, none)
		if err != nil {
			t.Fatal(err)
		}
		hosts := []Host{{"n1", 2}, {"n2", 1}}
		ranks, err := j.Place(hosts)
		if err != nil {
			t.Fatal(err)
		}
		var apps []string
		for _, r := range ranks {
			apps = append(apps, strconv.Itoa(r.App))
		}
		if got := j.Universe(hosts, len(ranks)); got != want.universe || strings.Join(apps, " ") != want.apps {
			t.Errorf("%q: %d, %q, want %+v", line, got, apps, want)
		}
	}
}

// Ranks go to slots, or to nodes in turn, and begin again when all slots are taken.
func TestPlace(t *testing.T) {
	for line, want := range map[string]string{
		"-n 5 a":                          "n1 n1 n2 n1 n1",
		"a":                               "n1 n1 n2",
		"-map-by node -n 5 a":             "n1 n2 n1 n1 n2",
		"-ppn 1 -n 3 a":                   "n1 n2 n1",
		"-ppn 3 a":                        "n1 n1 n1 n2 n2 n2",
		"-n 1 a : -n 2 b":                 "n1 n1 n2",
		"-n 1 a : -host n3 -n 2 b : c":    "n1 n3 n3 n1 n2 n1",
		"-map-by node -n 1 a : -n 2 b":    "n1 n2 n1",
		"-host n4:2,n4,n5 -map-by node a": "n4 n5 n4 n4",
		"-host N4,n4,n5 a":                "n4 n4 n5",
	} {
		j, err := Parse(strings.Fields(line), look, none)
		if err != nil {
			t.Fatal(err)
		}
		ranks, err := j.Place([]Host{{"n1", 2}, {"n2", 1}})
		var got []string
		local := map[string]int{}
		for _, r := range ranks {
			if got = append(got, r.Host); r.Local != local[r.Host] {
				t.Errorf("%q: rank %d is number %d on its node, want %d", line, len(got)-1, r.Local, local[r.Host])
			}
			local[r.Host]++
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v, want %q", line, got, err, want)
		}
	}
	for line, says := range map[string]string{
		"-n 4097 a":                                    "4097",
		"-n 4096 a : -n 1 b":                           "4096",
		"-n 1 a : -n 9223372036854775807 b":            "4096",
		"-ppn 4611686018427387904 -host a,b -s none p": "4096",
		"-stdin 2 -n 2 a":                              "--stdin 2",
		"-ppn 1000000000 a":                            "4096",
		"-host n1:4097 -n1 a":                          "-n1",
	} {
		j, err := Parse(strings.Fields(line), look, none)
		if err == nil {
			_, err = j.Place([]Host{{"n1", 2}, {"n2", 1}})
		}
		if err == nil || !strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), "slots") {
			t.Errorf("%q: %v, want %q", line, err, says)
		}
	}
}

func TestHostfile(t *testing.T) {
	got, err := ParseHostfile("# mine\nn1:2\n\n n2 slots=3 max_slots=9 # big\nn1\nn3")
	if diff := cmp.Diff([]Host{{"n1", 3}, {"n2", 3}, {"n3", 1}}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for text, says := range map[string]string{
		"":                 "no node",
		"#n1":              "no node",
		"n1\nn2 fast":      "line 2",
		"n1 slots=x":       "line 1",
		"n1:2 slots=3":     "slots",
		"n1\n:3":           "line 2",
		"n1:1000000000000": "slots",
	} {
		if _, err := ParseHostfile(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

func TestBinding(t *testing.T) {
	have := []int{2, 5}
	for s, want := range map[string]string{
		"none":      "[] [] []",
		"core":      "[2] [5] [2]",
		"0,1+3,4-6": "[0] [1 3] [4 5 6]",
		"user:7,8":  "[7] [8] [7]",
		"0-1+4-5+9": "[0 1 4 5 9] [0 1 4 5 9] [0 1 4 5 9]",
	} {
		b, err := ParseBinding(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(b.Of(0, have), b.Of(1, have), b.Of(2, have)); got != want || b.None() != (s == "none") {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}
