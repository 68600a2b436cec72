package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/vmmc-go/vmmc/bench/internal/contend"
	"github.com/vmmc-go/vmmc/bench/internal/place"
	"github.com/vmmc-go/vmmc/bench/internal/report"
	"github.com/vmmc-go/vmmc/bench/internal/sample"
	"github.com/vmmc-go/vmmc/bench/internal/setup"
)

type options struct {
	module, results, docs string
	run, only, vmmc, work string
	rounds                int
	seed                  uint64
	report, list, portion bool
	match                 *regexp.Regexp
}

func (o *options) parse(args []string) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	f.StringVar(&o.run, "run", "", "the `id` of a run; one that exists gets more rounds (default: the time)")
	f.IntVar(&o.rounds, "rounds", 7, "how many rounds to add")
	f.StringVar(&o.only, "only", "", "only contenders whose names match the `expression`; --list has the names")
	f.Uint64Var(&o.seed, "seed", 0, "what the order in each round comes from (default: drawn; a run keeps its own)")
	f.StringVar(&o.vmmc, "vmmc", "", "our tool, if it is built already")
	f.StringVar(&o.work, "work", "", "a directory that keeps what is built, for the next portion of a run")
	f.StringVar(&o.module, "module", ".", "the directory of this module")
	f.StringVar(&o.results, "results", "", "where runs are kept (default: results in the module)")
	f.StringVar(&o.docs, "docs", "", "where performance.md goes (default: ../docs of the module)")
	f.BoolVar(&o.report, "report", false, "measure nothing, write the document of a run")
	f.BoolVar(&o.portion, "portion", false, "measure, but write no document yet")
	f.BoolVar(&o.list, "list", false, "print the names of the contenders")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%w: %q is no flag; -h tells them", errUsage, f.Arg(0))
	}
	if o.rounds < 1 {
		return fmt.Errorf("%w: --rounds %d: at least one", errUsage, o.rounds)
	}
	var err error
	if o.match, err = regexp.Compile(o.only); err != nil {
		return fmt.Errorf("%w: --only: %w", errUsage, err)
	}
	if o.module, err = filepath.Abs(o.module); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.module, "c", "raw.c")); err != nil {
		return fmt.Errorf("%w: run this in the directory bench, or say --module: %w", errUsage, err)
	}
	if o.results == "" {
		o.results = filepath.Join(o.module, "results")
	}
	if o.docs == "" {
		o.docs = filepath.Join(filepath.Dir(o.module), "docs")
	}
	return nil
}

// measure adds rounds to a run. What is measured by then is saved after each round.
func (o *options) measure(ctx context.Context) (err error) {
	if o.list {
		o.portion = true
		for _, j := range contend.Jobs(&setup.Programs{}, []*place.Place{place.Memory(), place.Loop(), {Name: sample.Veth}}) {
			fmt.Println(j.Name)
		}
		return nil
	}
	if o.work == "" {
		if o.work, err = os.MkdirTemp("", "vmmcbench-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.work)) }()
	}
	if err := os.MkdirAll(o.work, 0o750); err != nil {
		return err
	}
	if runtime.NumCPU() < 2 {
		return errors.New("this machine has one CPU: both ends of most contenders spin, and need one each")
	}
	if err := setup.Install(ctx, os.Stderr); err != nil {
		return err
	}
	programs, err := setup.Build(ctx, o.module, o.work, o.vmmc)
	if err != nil {
		return err
	}
	run, err := o.open(ctx)
	if err != nil {
		return err
	}
	loop, err := place.NewLoop(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, loop.Close()) }()
	veth, err := place.NewVeth(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, veth.Close()) }()
	jobs := contend.Only(contend.Jobs(programs, []*place.Place{place.Memory(), loop, veth}), o.match)
	if len(jobs) == 0 {
		return fmt.Errorf("%w: --only %q: no contender has such a name; --list has them", errUsage, o.only)
	}
	first := run.Rounds() + 1
	for round := first; round < first+o.rounds; round++ {
		if err := contend.Round(ctx, jobs, run, round, os.Stderr); err != nil {
			return err
		}
		run.Ended = time.Now().UTC()
		if err := run.Save(o.results); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stderr, "run", run.ID, "has", run.Rounds(), "rounds")
	return nil
}

// open takes up a run, or begins one. Rounds of one run are of one machine and one version of all.
func (o *options) open(ctx context.Context) (*sample.Run, error) {
	machine, versions := setup.Machine(ctx), setup.Versions(ctx, o.module)
	if o.run != "" {
		run, err := sample.Load(o.results, o.run)
		if err == nil {
			return run, run.Same(machine, versions)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	now := time.Now().UTC()
	if o.run == "" {
		o.run = now.Format("2006-01-02-150405")
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1 << 32) //nolint:gosec // no secret
	}
	return &sample.Run{ID: o.run, Seed: o.seed, Began: now, Machine: machine, Versions: versions}, nil
}

func (o *options) write() error {
	if o.run == "" {
		var err error
		if o.run, err = sample.Latest(o.results); err != nil {
			return err
		}
	}
	run, err := sample.Load(o.results, o.run)
	if err != nil {
		return err
	}
	return report.Write(run, o.docs)
}
