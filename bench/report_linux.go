package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/machine"
)

// verdict is what became of a goal.
type verdict string

const (
	met        verdict = "met"
	missed     verdict = "NOT MET"
	unmeasured verdict = "FAILED"
)

// row is one line of the table. One without a target is there for comparison.
type row struct {
	goal, what   string
	ours, beside string
	ratio        string
	target       string
	verdict      verdict
}

// report collects rows, and what is told below them.
type report struct {
	machine []string
	rows    []row
	notes   []string
}

func (r *report) add(line row) { r.rows = append(r.rows, line) }

func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// against adds a row that compares two durations. most is the ratio that the
// goal allows, 0 for none.
func (r *report) against(goal, what string, ours time.Duration, name string, beside time.Duration, most float64) {
	ratio := float64(ours) / float64(beside)
	line := row{goal: goal, what: what, ours: short(ours), beside: short(beside) + " " + name, ratio: fraction(ratio)}
	if most != 0 {
		line.target, line.verdict = "≤ "+fraction(most), judge(ratio <= most)
	}
	r.add(line)
}

// atMost adds a row with an absolute goal.
func (r *report) atMost(goal, what string, ours, most time.Duration, beside string) {
	r.add(row{goal: goal, what: what, ours: short(ours), beside: beside, target: "≤ " + short(most), verdict: judge(ours <= most)})
}

// atLeast adds a row about a number that is to be large.
func (r *report) atLeast(goal, what string, n, least float64, ours, beside string) {
	r.add(row{goal: goal, what: what, ours: ours, beside: beside, ratio: digits(n), target: "≥ " + digits(least), verdict: judge(n >= least)})
}

// none adds a row about something that must not occur at all.
func (r *report) none(goal, what string, n int, beside string) {
	r.add(row{goal: goal, what: what, ours: fmt.Sprint(n), beside: beside, target: "0", verdict: judge(n == 0)})
}

func judge(ok bool) verdict {
	if ok {
		return met
	}
	return missed
}

// fraction shows a ratio as people say it: 1.9, or 1/7.8.
func fraction(ratio float64) string {
	if ratio > 0 && ratio < 0.6 {
		return "1/" + digits(1/ratio)
	}
	return digits(ratio)
}

func digits(x float64) string {
	if x >= 20 {
		return fmt.Sprintf("%.0f", x)
	}
	text := fmt.Sprintf("%.2f", x)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// short shows a duration with about three digits.
func short(d time.Duration) string {
	switch us := float64(d) / 1e3; {
	case d == 0:
		return "0"
	case us < 10:
		return fmt.Sprintf("%.1f µs", us)
	case us < 1e3:
		return fmt.Sprintf("%.0f µs", us)
	case us < 10e3:
		return fmt.Sprintf("%.2f ms", us/1e3)
	case us < 100e3:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case us < 1e6:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func (l row) cells() []string {
	return []string{l.goal, l.what, l.ours, l.beside, l.ratio, l.target, string(l.verdict)}
}

// write prints the report. The table is Markdown, and aligned.
func (r *report) write(w io.Writer) {
	for _, line := range append(r.machine, "load at the end: "+load()) {
		fmt.Fprintln(w, "- "+line)
	}
	table := [][]string{{"goal", "what", "handsel", "beside it", "ratio", "goal is", "verdict"}}
	for _, l := range r.rows {
		table = append(table, l.cells())
	}
	fmt.Fprintln(w)
	printTable(w, table)
	for _, n := range r.notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	r.sum(w)
}

func printTable(w io.Writer, table [][]string) {
	width := make([]int, len(table[0]))
	for _, line := range table {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	rule := make([]string, len(width))
	for i, n := range width {
		rule[i] = strings.Repeat("-", n)
	}
	for n, line := range table {
		printLine(w, line, width)
		if n == 0 {
			printLine(w, rule, width)
		}
	}
}

func printLine(w io.Writer, cells []string, width []int) {
	var out strings.Builder
	for i, cell := range cells {
		out.WriteString("| " + cell + strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)) + " ")
	}
	fmt.Fprintln(w, out.String()+"|")
}

func (r *report) sum(w io.Writer) {
	count := map[verdict]int{}
	for _, l := range r.rows {
		count[l.verdict]++
	}
	fmt.Fprintf(w, "\n%d met, %d not met, %d not measured\n", count[met], count[missed], count[unmeasured])
}

// describeMachine says where the figures were had.
func describeMachine(dir string) []string {
	var uts unix.Utsname
	_ = unix.Uname(&uts)
	kernel := string(bytes.TrimRight(uts.Release[:], "\x00"))
	fs := "unknown file system"
	if kind, err := machine.Kind(dir); err == nil {
		fs = kind.Name
	}
	return []string{
		"date: " + time.Now().UTC().Format("2006-01-02 15:04 MST"),
		fmt.Sprintf("machine: %d × %s, Linux %s, %s, %s", runtime.NumCPU(), processor(), kernel, fs, runtime.Version()),
		"load at the start: " + load(),
	}
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// load is that of the last minute, of five and of fifteen.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(text))
	return strings.Join(f[:min(3, len(f))], " ")
}
