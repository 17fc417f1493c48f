//go:build engines

package enginetest

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	_ "embed"
)

//go:embed cannot.txt
var cannotText string

// results is what every cell came to, engine × scenario.
type results struct {
	mu    sync.Mutex
	cells map[[2]string]string
}

var table = &results{cells: map[[2]string]string{}}

func (r *results) set(engine, scenario, result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells[[2]string{engine, scenario}] = result
}

// cannot reads cannot.txt: the cells that are not run, each with its reason.
func cannot() (map[[2]string]string, error) {
	listed := map[[2]string]string{}
	lines := bufio.NewScanner(strings.NewReader(cannotText))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, "|", 3)
		if len(fields) != 3 || strings.TrimSpace(fields[2]) == "" {
			return nil, fmt.Errorf("cannot.txt: %q is not `engine | scenario | reason`", line)
		}
		who, what := strings.TrimSpace(fields[0]), strings.TrimSpace(fields[1])
		if !slices.ContainsFunc(engines, func(e engine) bool { return e.name == who }) ||
			!slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == what }) {
			return nil, fmt.Errorf("cannot.txt: no cell %s | %s", who, what)
		}
		listed[[2]string{who, what}] = strings.TrimSpace(fields[2])
	}
	return listed, lines.Err()
}

// report prints the table, keeps a copy beside the cells, and answers 1 when a
// cell was neither run nor listed. A run of selected tests is not held to that.
func (r *results) report() int {
	if flag.Lookup("test.list").Value.String() != "" {
		return 0
	}
	listed, err := cannot()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var b strings.Builder
	missing := r.write(&b, listed)
	fmt.Print("\n" + b.String())
	if cache, err := cacheDir(); err == nil {
		_ = os.WriteFile(filepath.Join(cache, "table.txt"), []byte(b.String()), 0o644)
	}
	selected := flag.Lookup("test.run").Value.String() + flag.Lookup("test.skip").Value.String()
	if len(missing) == 0 || selected != "" {
		return 0
	}
	fmt.Fprintln(os.Stderr, "enginetest: not run and not in cannot.txt:", strings.Join(missing, ", "))
	return 1
}

func (r *results) write(b *strings.Builder, listed map[[2]string]string) (missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "ENGINE\tSCENARIO\tRESULT")
	for _, e := range engines {
		for _, s := range scenarios {
			cell := [2]string{e.name, s.name}
			result := r.cells[cell]
			if reason, ok := listed[cell]; ok {
				result = "cannot: " + reason
			}
			if result == "" {
				result = "NOT RUN"
				missing = append(missing, e.name+" | "+s.name)
			}
			fmt.Fprintf(out, "%s\t%s\t%s\n", e.name, s.name, result)
		}
	}
	_ = out.Flush() // into memory
	return missing
}
