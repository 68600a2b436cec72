// Package mpijob reads the command line of "vmmc mpirun" and says which rank runs where. It starts
// nothing.
package mpijob

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Ways to map ranks to nodes.
const (
	BySlot = "slot"
	ByNode = "node"
	ByLoad = "load"
)

// Ways are all of them.
var Ways = []string{BySlot, ByNode, ByLoad}

// NoStdin is the rank of a job that gives its input to none.
const NoStdin = -1

// Job is what a command line asks for.
type Job struct {
	Programs []Program
	Session  string
	Label    bool
	Verbose  bool // say which MPI library serves each program
	Stdin    int  // the rank that has the tool's input, or NoStdin
	NoKill   bool // the others go on when a rank fails
	Env      []string
	EnvNone  bool
	EnvAll   bool
	Bind     Binding

	// Loads are how many processes wait for a processor of each node, for [ByLoad]. A node that is
	// not in it gets ranks when no other one is left.
	Loads map[string]float64

	mapBy, stdin, bind string
	hosts, hostfile    string
	perNode            int
	env                variables
}

// Program is one of the programs of a job, see MPMD.
type Program struct {
	Count int // 0: as many as there are slots
	Path  string
	Args  []string
	Dir   string
	Env   []string
	Hosts []Host // empty: the job's

	host string
	env  variables
}

// variables collects what flags set, in their order.
type variables struct {
	all  []string
	look func(name string) (value string, set bool)
}

// setting is a flag that adds variables. Its values are NAME=VALUE, or with pass NAME of one that
// the tool has.
type setting struct {
	to   *variables
	pass bool
	list bool
}

// String is the default.
func (s setting) String() string { return "" }

// Type names a kind of value, for help texts.
func (s setting) Type() string { return "variable" }

// Set adds what one flag gives.
func (s setting) Set(text string) error {
	all := []string{text}
	if s.list {
		all = strings.Split(text, ",")
	}
	for _, v := range all {
		name, _, given := strings.Cut(v, "=")
		switch {
		case name == "":
			return fmt.Errorf("variable %q has no name: want NAME=VALUE", v)
		case given:
		case !s.pass:
			return fmt.Errorf("variable %q has no value: want NAME=VALUE, or NAME VALUE", v)
		default:
			value, set := s.to.look(name)
			if !set {
				return fmt.Errorf("there is no variable %q here", name)
			}
			v += "=" + value
		}
		s.to.all = append(s.to.all, v)
	}
	return nil
}

// aliases are other launchers' names of the flags.
var aliases = map[string]string{
	"n": "np", "H": "host", "f": "hostfile", "machinefile": "hostfile", "hosts": "host-list",
	"perhost": "ppn", "wd": "wdir", "dir": "wdir", "x": "export", "l": "label",
	"prepend-rank": "label", "v": "verbose", "s": "stdin", "h": "help",
}

// twoWords are the flags whose value may be two words, NAME VALUE.
var twoWords = []string{"genv", "env"}

// AddFlags defines the flags of the job and of one program, for which the others of the command line
// have flags of their own.
func (j *Job) AddFlags(f *pflag.FlagSet, p *Program) {
	f.StringVar(&j.Session, "session", "", "`name` of the session that the ranks run in (default: none, on this machine)")
	f.StringVar(&j.hosts, "host-list", "", "`nodes` of all programs, as in n1:2,n2; also --hosts, -hosts")
	f.StringVar(&j.hostfile, "hostfile", "", "`file` with a node on each line, as n1:2 or n1 slots=2; also -f, -machinefile")
	f.IntVar(&j.perNode, "ppn", 0, "`number` of slots of each node")
	f.StringVar(&j.mapBy, "map-by", BySlot, "`way` to map ranks: slot fills a node's slots before the next node's, node takes the nodes in turn, load takes the node with the least load for its slots")
	f.StringVar(&j.bind, "bind-to", "none", "`processors` that a node's ranks are bound to: none, core for one each, or sets as 0,1+3,4-7")
	f.BoolVarP(&j.Label, "label", "l", false, "put [RANK] before each line of output")
	f.BoolVarP(&j.Verbose, "verbose", "v", false, "say which MPI library serves each program")
	f.StringVar(&j.stdin, "stdin", "0", "`rank` that has standard input, or none; also -s")
	f.BoolVar(&j.NoKill, "disable-auto-cleanup", false, "let the other ranks go on when one fails")
	f.Var(setting{to: &j.env}, "genv", "set a `variable` for all programs: NAME=VALUE or NAME VALUE")
	f.Var(setting{to: &j.env, pass: true, list: true}, "genvlist", "pass `variables` on to all programs: NAME,NAME")
	f.BoolVar(&j.EnvAll, "genvall", false, "pass all variables on (the default without --session)")
	f.BoolVar(&j.EnvNone, "genvnone", false, "pass no variables on (the default with --session)")
	f.IntVarP(&p.Count, "np", "n", 0, "`number` of ranks (default: one for each slot, or 1)")
	f.StringVarP(&p.host, "host", "H", "", "`nodes` of the program, as in n1:2,n2")
	f.StringVar(&p.Dir, "wdir", "", "working `directory`; with --session absolute within its drive")
	f.Var(setting{to: &p.env}, "env", "set a `variable` for the program: NAME=VALUE or NAME VALUE")
	f.VarP(setting{to: &p.env, pass: true}, "export", "x", "pass a `variable` on: NAME, or NAME=VALUE")
}

// ofProgram are the flags that each program of a command line may have.
var ofProgram = []string{"np", "host", "wdir", "env", "export"}

// ErrHelp is the error of a command line that asks for help.
var ErrHelp = pflag.ErrHelp

// Parse reads a command line. look finds a variable of the tool; more defines flags of the tool's own.
func Parse(args []string, look func(string) (string, bool), more func(*pflag.FlagSet)) (*Job, error) {
	j := &Job{env: variables{look: look}}
	for len(args) > 0 || len(j.Programs) == 0 {
		part := args
		if i := slices.Index(args, ":"); i >= 0 {
			if part, args = args[:i], args[i+1:]; len(args) == 0 {
				return nil, errors.New("no program behind the last colon")
			}
		} else {
			args = nil
		}
		p := Program{env: variables{look: look}}
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		if len(j.Programs) == 0 {
			j.AddFlags(f, &p)
			more(f)
		} else { // defining a flag gives its variable the default
			(&Job{}).AddFlags(f, &p)
		}
		rest, err := parseFlags(f, part, len(j.Programs) == 0)
		if err != nil {
			return nil, err
		}
		if len(rest) == 0 {
			return nil, fmt.Errorf("no program: number %d of the command line has flags alone", len(j.Programs)+1)
		}
		if f.Changed("np") && (p.Count < 1 || p.Count > MaxRanks) {
			return nil, fmt.Errorf("--np %d (-n): want 1 to %d", p.Count, MaxRanks)
		}
		if f.Changed("ppn") && (j.perNode < 1 || j.perNode > MaxRanks) {
			return nil, fmt.Errorf("--ppn %d: want 1 to %d", j.perNode, MaxRanks)
		}
		if p.host != "" {
			if p.Hosts, err = ParseHosts(p.host); err != nil {
				return nil, fmt.Errorf("--host %s: %w", p.host, err)
			}
		}
		p.Path, p.Args, p.Env = rest[0], rest[1:], p.env.all
		j.Programs = append(j.Programs, p)
	}
	j.Env = j.env.all
	return j, j.check()
}

// check reads the values that are not checked while they are set.
func (j *Job) check() (err error) {
	if !slices.Contains(Ways, j.mapBy) {
		return fmt.Errorf("--map-by %s: want one of %s", j.mapBy, strings.Join(Ways, ", "))
	}
	if j.Bind, err = ParseBinding(j.bind); err != nil {
		return fmt.Errorf("--bind-to %s: %w", j.bind, err)
	}
	if j.EnvAll && j.EnvNone {
		return errors.New("--genvall with --genvnone: give one of them")
	}
	j.Stdin = NoStdin
	if j.stdin != "none" {
		if j.Stdin, err = strconv.Atoi(j.stdin); err != nil || j.Stdin < 0 {
			return fmt.Errorf("--stdin %s: want a rank, or none", j.stdin)
		}
	}
	return nil
}

// parseFlags sets flags until the program. A flag may have one dash or two.
func parseFlags(f *pflag.FlagSet, args []string, first bool) (rest []string, err error) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		word := args[0]
		args = args[1:]
		if word == "--" {
			break
		}
		name, value, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
		if other, ok := aliases[name]; ok {
			name = other
		}
		if name == "help" {
			return nil, ErrHelp
		}
		d := f.Lookup(name)
		switch {
		case d == nil:
			return nil, fmt.Errorf("unknown flag %s", word)
		case !first && !slices.Contains(ofProgram, name):
			return nil, fmt.Errorf("%s behind a \":\": it is about all programs, put it before the first one", word)
		case !given && d.Value.Type() == "bool":
			value = "true"
		case !given && len(args) == 0:
			return nil, fmt.Errorf("%s has no value", word)
		case !given:
			value, args = args[0], args[1:]
			if slices.Contains(twoWords, name) && !strings.Contains(value, "=") && len(args) > 0 {
				value, args = value+"="+args[0], args[1:]
			}
		}
		if err := f.Set(name, value); err != nil {
			return nil, err
		}
	}
	return args, nil
}
