package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what the caller asked for.
type options struct {
	root    string
	clause  string
	file    string
	id      string
	only    string
	kinds   string
	sample  int
	seed    uint64
	jobs    int
	check   bool
	list    bool
	all     bool
	bare    bool
	verbose bool
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == initWord {
		os.Exit(initMain(os.Args[2:]))
	}
	var o options
	flag.StringVar(&o.root, "root", ".", "the tree whose tests are asked")
	flag.StringVar(&o.clause, "clause", "", "only faults of these `clauses` (S5,S16)")
	flag.StringVar(&o.file, "file", "", "only faults in files below this `path`")
	flag.StringVar(&o.id, "id", "", "only faults with this `text` in their name")
	flag.StringVar(&o.only, "only", "", "hand or auto")
	flag.StringVar(&o.kinds, "kinds", negate+","+bound, "which `kinds` the automatic pass makes: negate, bound, part")
	flag.IntVar(&o.sample, "sample", 0, "take only `N` of the automatic faults")
	flag.Uint64Var(&o.seed, "seed", 0, "which of them; 0 = at random")
	flag.IntVar(&o.jobs, "j", 1, "how many at a time")
	flag.BoolVar(&o.check, "check", false, "only see that every fault and explanation still applies")
	flag.BoolVar(&o.list, "list", false, "only list what would be run")
	flag.BoolVar(&o.all, "explained", false, "run the explained ones too; one that is caught is a failure")
	flag.BoolVar(&o.bare, "bare", false, "run without a pid namespace, where none can be had: a fault may end your processes")
	flag.BoolVar(&o.verbose, "v", false, "show what the tests of a survivor and of a build that failed printed")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "mutants: no arguments are wanted, only flags")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, o)
	stop()
	os.Exit(status)
}

// run returns the exit status: 0 when every fault was noticed or is explained,
// 1 when not, 2 when that could not be found out.
func run(ctx context.Context, o options) int {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return trouble(err)
	}
	if !o.check && !o.list {
		if os.Geteuid() != 0 && !o.bare {
			return trouble(errors.New("a pid namespace needs root; -bare runs without one, at the risk of your processes"))
		}
		scratch, err := openTemp("", "hm")
		if err != nil {
			return trouble(err)
		}
		defer os.RemoveAll(scratch)
		if err := copyTree(root, scratch+"/tree"); err != nil {
			return trouble(err)
		}
		root = scratch + "/tree"
	}
	faults, bad, err := load(root)
	if err != nil {
		return trouble(err)
	}
	for _, err := range bad {
		fmt.Println(err)
	}
	if o.check {
		fmt.Printf("%d faults and their explanations looked at, %d do not apply\n", len(faults), len(bad))
		return min(len(bad), 1)
	}
	chosen, err := o.choose(faults)
	if err != nil {
		return trouble(err)
	}
	if o.list {
		for _, f := range chosen {
			fmt.Printf("%-12s %s  (%s)\n", strings.Join(f.clauses, ","), f.id, f.place)
		}
		fmt.Printf("%d faults\n", len(chosen))
		return min(len(bad), 1)
	}
	return hunt(ctx, o, root, chosen, bad)
}

func trouble(err error) int {
	fmt.Fprintln(os.Stderr, "mutants:", err)
	return 2
}

// load reads the lists of the tree at root and plants all faults in memory. bad
// are those that do not apply.
func load(root string) (faults []*fault, bad []error, err error) {
	at := filepath.Join(root, "tools", "mutants")
	l, err := readFaults(at + "/faults.txt")
	if err != nil {
		return nil, nil, err
	}
	rooms, err := readRooms(at + "/rooms.txt")
	if err != nil {
		return nil, nil, err
	}
	why, err := readExplained(at + "/explained.txt")
	if err != nil {
		return nil, nil, err
	}
	bad = l.apply(root)
	auto, more := automatic(root, rooms, why)
	return append(l.faults, auto...), append(bad, more...), nil
}

// choose narrows the faults to those that were asked for.
func (o options) choose(faults []*fault) ([]*fault, error) {
	if o.only != "" && o.only != "hand" && o.only != "auto" {
		return nil, fmt.Errorf("-only %s: want hand or auto", o.only)
	}
	clauses := strings.FieldsFunc(o.clause, func(r rune) bool { return r == ',' })
	kinds := strings.Split(o.kinds, ",")
	var hand, auto []*fault
	for _, f := range faults {
		switch {
		case len(f.content) == 0, // it does not apply, and was named for that
			len(clauses) > 0 && !slices.ContainsFunc(clauses, func(c string) bool { return slices.Contains(f.clauses, c) }),
			o.file != "" && !strings.HasPrefix(f.place, strings.TrimPrefix(o.file, "./")),
			!strings.Contains(f.id, o.id),
			o.only == "hand" && f.auto, o.only == "auto" && !f.auto,
			f.auto && !slices.Contains(kinds, kindOf(f)):
		case f.auto:
			auto = append(auto, f)
		default:
			hand = append(hand, f)
		}
	}
	if o.sample > 0 && o.sample < len(auto) {
		seed := o.seed
		if seed == 0 {
			seed = rand.Uint64()
		}
		fmt.Printf("a sample of %d of %d automatic faults, seed %d\n", o.sample, len(auto), seed)
		picked := rand.New(rand.NewPCG(seed, seed)).Perm(len(auto))[:o.sample]
		slices.Sort(picked)
		var some []*fault
		for _, i := range picked {
			some = append(some, auto[i])
		}
		auto = some
	}
	return append(hand, auto...), nil
}

// hunt runs the tests against each fault, with a control before and after: a
// test that fails without any fault notices nothing.
func hunt(ctx context.Context, o options, root string, faults []*fault, bad []error) int {
	began := time.Now()
	h, err := newHunter(ctx, o, root)
	if err != nil {
		return trouble(err)
	}
	var checks []check
	run := 0
	for _, f := range faults {
		if f.explained != "" && !o.all {
			continue
		}
		run++
		for _, c := range f.checks {
			if !slices.ContainsFunc(checks, func(d check) bool { return d.String() == c.String() }) {
				checks = append(checks, c)
			}
		}
	}
	fmt.Printf("%d faults to run, %d explained, control of %d runs of tests\n", run, len(faults)-run, len(checks))
	if err := h.control(ctx, checks); err != nil {
		return trouble(fmt.Errorf("without a fault: %w", err))
	}
	results := h.all(ctx, faults)
	if ctx.Err() == nil {
		if err := h.control(ctx, checks); err != nil {
			return trouble(fmt.Errorf("without a fault, after all: %w", err))
		}
	}
	status := report(results, bad)
	fmt.Printf("after %v\n", time.Since(began).Round(time.Second))
	if ctx.Err() != nil {
		return trouble(ctx.Err())
	}
	return status
}

// report prints the sums and the survivors, and returns the exit status.
func report(results []result, bad []error) int {
	sums := map[bool]map[verdict]int{false: {}, true: {}}
	var survivors []result
	failed := len(bad) > 0
	for _, r := range results {
		sums[r.auto][r.verdict]++
		switch {
		case r.verdict == survived:
			survivors = append(survivors, r)
			failed = true
		case r.verdict == wronglyExplained, r.verdict == broken, r.verdict == unbuilt && !r.auto:
			failed = true
		}
	}
	fmt.Println()
	if len(survivors) > 0 {
		fmt.Println("survived:")
	}
	for _, r := range survivors {
		fmt.Printf("  %-10s %s (%s) %s\n", strings.Join(r.clauses, ","), r.id, r.place, r.why)
	}
	for _, auto := range []bool{false, true} {
		what := map[bool]string{false: "by hand", true: "automatic"}[auto]
		s := sums[auto]
		fmt.Printf("%-10s %d caught (%d of them hung), %d survived, %d explained, %d did not build",
			what, s[caught]+s[hung], s[hung], s[survived], s[explained], s[unbuilt])
		if n := s[wronglyExplained]; n > 0 {
			fmt.Printf(", %d explained but caught", n)
		}
		if n := s[broken]; n > 0 {
			fmt.Printf(", %d could not be run", n)
		}
		fmt.Println()
	}
	fmt.Printf("%-10s %d\n", "no longer applies:", len(bad))
	if failed {
		return 1
	}
	return 0
}
