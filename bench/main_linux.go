package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// part is one thing that is measured.
type part struct {
	name    string // goals, separated by blanks
	what    string
	needs   []string // programs that it runs
	measure func(*bench, context.Context) error
}

// parts are in the order of their goals.
var parts = []part{
	{"G1", "admission and refusal", nil, (*bench).admissions},
	{"G2", "admission without a cap", []string{"strace"}, (*bench).uncapped},
	{"G3", "one run of true", []string{"flock", "go", "sem"}, (*bench).single},
	{"G4", "many runs of true", []string{"xargs", "tsp"}, (*bench).throughput},
	{"G5 G6", "from one agent to the next", []string{"sh", "flock"}, (*bench).handover},
	{"G5", "from one agent to the next, by polling", nil, (*bench).polling},
	{"G5", "after a holder was killed", nil, (*bench).killed},
	{"G6", "what waiting costs", nil, (*bench).idle},
	{"G5 G6", "from one agent to the next, by the dispatcher", []string{"sh"}, (*bench).dispatched},
	{"G7", "durable enqueues", []string{"beanstalkd"}, (*bench).enqueues},
	{"G8", "admission and claim", nil, (*bench).claims},
	{"G9 G10 G11 G12", "10,000 rows", []string{"flock", "go"}, (*bench).rows},
	{"G13", "at the limit of open files", []string{"sh"}, (*bench).atLimit},
	{"G14", "a lane that is never free", nil, (*bench).gapless},
	{"G12", "killed at random moments", nil, (*bench).storm},
	{"G12", "killed at every step", []string{"go"}, (*bench).stepKills},
	{"G12", "neighbours that are killed", []string{"flock", "sem", "parallel", "tsp"}, (*bench).killedNeighbours},
	{"G15", "what agents print", []string{"sh"}, (*bench).streams},
	{"G16", "a shim before an engine", []string{"go"}, (*bench).shims},
	{"init", "what a start consists of", []string{"strace"}, (*bench).startup},
}

// packages says where a program that is missing comes from, in Debian's names.
var packages = map[string]string{
	"beanstalkd": "beanstalkd",
	"flock":      "util-linux", "gcc": "gcc libc6-dev", "go": "golang", "parallel": "parallel", "python3": "python3",
	"sem": "parallel", "sh": "dash", "strace": "strace", "tsp": "task-spooler", "xargs": "findutils",
}

// bench is one run of the measurements.
type bench struct {
	handsel string // the executable that is measured, absolute
	peer    string // the Python program, absolute
	self    string

	interpreter string // of Python
	stamp       string // made from stamp.c
	scratch     string
	made        int // directories handed out
	quick       bool
	turns       int
	report      report
	say         io.Writer
}

func main() {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], rolePrefix) {
		os.Exit(play(os.Args[1]))
	}
	os.Exit(run())
}

func run() int {
	b := &bench{say: os.Stderr}
	var only, dir string
	flag.StringVar(&b.handsel, "handsel", "bin/handsel", "the executable to measure")
	flag.StringVar(&b.peer, "peer", "testdata/peer/peer.py", "the Python program with the polling scheme")
	flag.StringVar(&only, "only", "", "goals to measure, with commas, as in G3,init (default: all)")
	flag.StringVar(&dir, "dir", os.TempDir(), "where to make the scratch directory; its file system is part of the figures")
	flag.BoolVar(&b.quick, "quick", false, "fewer samples and fewer processes, for a first look")
	flag.IntVar(&b.turns, "turns", 5, "turns in which everything is measured, at least 5")
	flag.Parse()
	if flag.NArg() > 0 || b.turns < 5 {
		fmt.Fprintln(b.say, "bench: no arguments, and at least 5 turns")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := b.prepare(ctx, dir)
	if b.scratch != "" {
		defer os.RemoveAll(b.scratch)
	}
	if err != nil {
		fmt.Fprintln(b.say, "bench:", err)
		return 1
	}
	b.report.machine = describeMachine(b.scratch)
	whole := b.measure(ctx, only)
	b.report.write(os.Stdout)
	if !whole {
		return 1
	}
	return 0
}

// prepare finds what every part needs.
func (b *bench) prepare(ctx context.Context, dir string) (err error) {
	for _, path := range []*string{&b.handsel, &b.peer, &dir} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	for _, path := range []string{b.handsel, b.peer} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w (run make build, and bench from the top of the tree)", err)
		}
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.scratch, err = os.MkdirTemp(dir, "handsel-bench-"); err != nil {
		return err
	}
	if b.stamp, err = compile(ctx, b.scratch, "stamp", stampSource); err != nil {
		return err
	}
	if b.interpreter, err = findInterpreter(ctx); err != nil {
		return err
	}
	return b.mayStart(ctx)
}

// mayStart makes sure that handsel starts anything at all from here: inside an
// agent it does not, and every figure would be that of a refusal.
func (b *bench) mayStart(ctx context.Context) error {
	cmd := b.run(ctx, b.home(), 8, "true")
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("handsel run -- true: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// measure takes the parts whose goals were asked for. One that cannot be
// measured is named in the report, and the others go on. It tells whether all
// could be.
func (b *bench) measure(ctx context.Context, only string) (whole bool) {
	whole = true
	for _, p := range parts {
		if ctx.Err() != nil || !asked(only, p.name) {
			continue
		}
		start := time.Now()
		err := missing(p.needs)
		if err == nil {
			err = p.measure(b, ctx)
		}
		if err != nil {
			whole = false
			b.report.add(row{goal: p.name, what: p.what + ": not measured", verdict: unmeasured})
			b.report.note("%s, %s: %v", p.name, p.what, err)
		}
		fmt.Fprintf(b.say, "bench: %s: %s: %.1f s\n", p.name, p.what, time.Since(start).Seconds())
	}
	return whole && ctx.Err() == nil
}

func asked(only, goals string) bool {
	if only == "" {
		return true
	}
	for goal := range strings.FieldsSeq(goals) {
		if slices.Contains(strings.Split(only, ","), goal) {
			return true
		}
	}
	return false
}

// missing names every program that is not installed, with its package.
func missing(programs []string) error {
	var errs []error
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			errs = append(errs, fmt.Errorf("%s is not installed: apt-get install %s", name, packages[name]))
		}
	}
	return errors.Join(errs...)
}

// pick is the first number, or the second when it has to be quick.
func (b *bench) pick(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}
