package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == initWord {
		os.Exit(initMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// A small tree with one fault for each thing that can become of one.
func smallTree(t *testing.T, faults, explained string) string {
	t.Helper()
	return tree(t, map[string]string{
		"go.mod":       "module example\n\ngo 1.26.0\n",
		"room/room.go": "package room\n\nfunc Larger(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn b\n}\n",
		"room/room_test.go": `package room

import (
	"os"
	"testing"
)

func TestLarger(t *testing.T) {
	if Larger(1, 2) != 2 || Larger(2, 1) != 2 {
		t.Error("not the larger")
	}
	if len(os.Args) > 99 || os.Getenv("HANDSEL_HOME") != "" {
		t.Error("the caller's environment comes through")
	}
}
`,
		"tools/mutants/faults.txt":    faults,
		"tools/mutants/rooms.txt":     "room room\ntest room\n",
		"tools/mutants/explained.txt": explained,
	})
}

const because = "room/room.go Larger bound: a > b\n\tequal ones are the same\n"

func change(id, from, to string) string {
	return fmt.Sprintf("fault S5.%s\nwhy it is wrong\nfile room/room.go\n-%s\n+%s\ntest room -timeout 2s\n\n", id, from, to)
}

func TestEachVerdict(t *testing.T) {
	t.Setenv("HANDSEL_HOME", "/nowhere") // what the caller has set reaches no test
	for what, c := range map[string]struct {
		faults, explained string
		all               bool
		want              int
	}{
		"caught, hung and explained": {change("return", "\t\treturn a", "\t\treturn b") + change("loop", "\tif a > b {", "\tfor a == a {"), because, false, 0},
		"survived":                   {change("equal", "\tif a > b {", "\tif a >= b {"), because, false, 1},
		"unexplained":                {change("return", "\t\treturn a", "\t\treturn b"), "", false, 1},
		"by hand, does not build":    {change("type", "\t\treturn a", "\t\treturn nil"), because, false, 1},
		"no longer applies":          {change("gone", "\t\treturn c", "\t\treturn b"), because, false, 1},
		"explained wrongly":          {change("return", "\t\treturn a", "\t\treturn b"), because + "room/room.go Larger negate: a > b\n\tso they say\n", true, 1},
		"explained rightly":          {change("return", "\t\treturn a", "\t\treturn b"), because, true, 0},
		"without a fault it fails":   {change("return", "\t\treturn a", "\t\treturn b") + "test room -run Nothing\n", because, false, 2},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := options{root: smallTree(t, c.faults, c.explained), kinds: negate + "," + bound, all: c.all, jobs: 1, bare: os.Geteuid() != 0}
			if got := run(t.Context(), o); got != c.want {
				t.Errorf("status %d, want %d", got, c.want)
			}
		})
	}
}

func TestFirstFailureIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.0s)\n        x\n--- FAIL: TestC (0s)\n": "TestA/b",
		"ok\npanic: oh\n--- FAIL: TestA (0.1s)\n":                                                 "a panic: oh",
		"PASS\n": "",
	} {
		if got := firstFailure(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	var out tail
	for range 100 {
		fmt.Fprint(&out, strings.Repeat("x", tailSize/3))
	}
	fmt.Fprint(&out, "the end")
	if got := out.String(); len(got) > 3*tailSize || !strings.HasSuffix(got, "the end") {
		t.Errorf("%d bytes kept", len(got))
	}
}
