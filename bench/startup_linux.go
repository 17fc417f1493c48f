package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// startup shows what `run -- true` consists of: what its packages do before
// main, and the system calls it makes.
func (b *bench) startup(ctx context.Context) error {
	if err := b.packageInit(ctx); err != nil {
		return err
	}
	return b.systemCalls(ctx)
}

// initLine is a line of GODEBUG=inittrace=1.
var initLine = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock, (\d+) bytes, (\d+) allocs`)

// cost is what a package's initialisation takes.
type cost struct {
	name         string
	took         time.Duration
	bytes, alloc string
}

// packageInit takes the median of several starts, package by package.
func (b *bench) packageInit(ctx context.Context) error {
	took, last := map[string][]time.Duration{}, map[string]cost{}
	home := b.home()
	for range 4 * b.turns {
		cmd := b.run(ctx, home, 8, "true")
		cmd.Env = append(cmd.Env, "GODEBUG=inittrace=1")
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Run(); err != nil {
			return err
		}
		for _, m := range initLine.FindAllStringSubmatch(said.String(), -1) {
			d, err := time.ParseDuration(m[2] + "ms")
			if err != nil {
				return err
			}
			took[m[1]] = append(took[m[1]], d)
			last[m[1]] = cost{name: m[1], bytes: m[3], alloc: m[4]}
		}
	}
	var all []cost
	var sum time.Duration
	for name, c := range last {
		c.took = quantile(took[name], 0.5)
		sum += c.took
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y cost) int { return cmp.Or(cmp.Compare(y.took, x.took), strings.Compare(x.name, y.name)) })
	var out strings.Builder
	fmt.Fprintf(&out, "Package initialisation of run -- true: %s in %d packages; the ten that take longest:\n", short(sum), len(all))
	for _, c := range all[:min(10, len(all))] {
		fmt.Fprintf(&out, "\n    %8s %7s bytes %5s allocations  %s", short(c.took), c.bytes, c.alloc, c.name)
	}
	b.report.note("%s", &out)
	return nil
}

var (
	callName = regexp.MustCompile(`(?m)^\d+ +(\w+)\(`)
	procStat = regexp.MustCompile(`"/proc/\d+/stat"`)
)

// systemCalls counts what one warm run makes, its child's loader not included
// where it can be told apart: true makes some 30.
func (b *bench) systemCalls(ctx context.Context) error {
	home, trace := b.home(), filepath.Join(b.dir(), "trace")
	if err := b.run(ctx, home, 8, "true").Run(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "strace", "-f", "-o", trace, b.handsel, "run", "--", "true")
	cmd.Env = environ(settings(home, 8))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("strace: %w: %s", err, text)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		return err
	}
	count, total := map[string]int{}, 0
	for _, m := range callName.FindAllStringSubmatch(string(text), -1) {
		count[m[1]]++
		total++
	}
	names := slices.Collect(maps.Keys(count))
	slices.SortFunc(names, func(x, y string) int { return cmp.Or(count[y]-count[x], strings.Compare(x, y)) })
	var often []string
	for _, name := range names[:min(12, len(names))] {
		often = append(often, fmt.Sprintf("%s %d", name, count[name]))
	}
	b.report.note("System calls of run -- true, its child's included: %d (%s); %d processes looked at in /proc.",
		total, strings.Join(often, ", "), len(procStat.FindAllString(string(text), -1)))
	return nil
}
