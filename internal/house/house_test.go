// Package house tests the repository itself: which room may import which, that
// what the documents point at is there, that the schemas are schemas, and that
// nothing of the machine it was written on has stayed behind. What the rooms do
// is for their own tests.
package house

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/house/schema"
)

// made holds the directories, wherever they are, whose content is made or
// installed and not kept in the repository.
var made = map[string]bool{".git": true, ".cache": true, "node_modules": true}

// files returns the repository's files by slash-separated path below its root,
// those that pass keep. It walks the directories by itself: asking git or the
// go command would hide the files from the test cache, and neither need be
// there where the tests run.
func files(t *testing.T, keep func(name string) bool) (root string, names []string) {
	t.Helper()
	root, err := schema.Root()
	if err != nil {
		t.Fatalf("the root of the repository: %v", err)
	}
	err = filepath.WalkDir(root, func(full string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, full)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if e.IsDir() {
			if made[e.Name()] || name == "bin" || name == "dist" {
				return fs.SkipDir
			}
			return nil
		}
		if e.Type().IsRegular() && keep(name) {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatal("found no files to look at: this test would pass for nothing")
	}
	return root, names
}

func read(t *testing.T, root, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// foreign matches what belongs to one machine or one way of fetching things and
// so to nobody who reads the repository. The words are put together here so
// that this file passes its own test. A line with none of the words in it is not
// looked at closer: all of them take most of a minute, under the race detector.
var foreign = []struct {
	what  string
	words []string
	find  *regexp.Regexp
}{
	{"a path of one machine", []string{"/ro" + "ot/", "/wo" + "rk"}, regexp.MustCompile(`(?:^|[^\w./-])/(?:ro` + `ot/\w|wo` + `rk(?:/|$|["'\s:)]))`)},
	{"a home directory of one person", []string{"/ho" + "me/", "/Use" + "rs/"}, regexp.MustCompile(`(?:^|[^\w./-])/(?:ho` + `me|Use` + `rs)/(\w+)`)},
	{"the host of a package registry", []string{"golang.org", "regis" + "try.", "ian.org", "py" + "pi", "pythonho" + "sted"}, regexp.MustCompile(strings.Join([]string{
		`pro` + `xy\.golang\.org`, `su` + `m\.golang\.org`, `regis` + `try\.npmjs\.org`, `regis` + `try\.yarnpkg\.com`,
		`(?:deb|security|ftp)\.deb` + `ian\.org`, `py` + `pi\.org`, `pythonho` + `sted\.org`,
	}, "|"))},
	{"a promise in place of the thing", []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"}, regexp.MustCompile(`\b(?:TO` + `DO|FIX` + `ME|XX` + `X)\b`)},
}

// strange says what is foreign in a line, and where it stands.
func strange(line string, say func(what, where string)) {
	for _, f := range foreign {
		if !slices.ContainsFunc(f.words, func(word string) bool { return strings.Contains(line, word) }) {
			continue
		}
		for _, m := range f.find.FindAllStringSubmatch(line, -1) {
			if !anybody.MatchString(m[len(m)-1]) {
				say(f.what, strings.TrimSpace(m[0]))
			}
		}
	}
}

// anybody matches the names a home directory in an example may have.
var anybody = regexp.MustCompile(`^(?:\w|user|you)$`)

func TestNoMachinePaths(t *testing.T) {
	root, names := files(t, func(name string) bool { return name != "LICENSE" && path.Base(name) != "go.sum" })
	for _, name := range names {
		text := read(t, root, name)
		if bytes.IndexByte(text, 0) >= 0 {
			continue // not text
		}
		for i, line := range strings.Split(string(text), "\n") {
			strange(line, func(what, where string) { t.Errorf("%s:%d: %s: %q", name, i+1, what, where) })
		}
	}
}

func TestForeignWordsAreRecognised(t *testing.T) {
	for _, tt := range []struct {
		line string
		what string // "" = nothing is wrong with it
	}{
		{`open("/ro` + `ot/x")`, "a path of one machine"},
		{`cd /wo` + `rk/main`, "a path of one machine"},
		{`HOME=/ho` + `me/someone`, "a home directory of one person"},
		{`HOME=/Use` + `rs/someone`, "a home directory of one person"},
		{`HOME=/ho` + `me/you`, ""},
		{`cd "/wo` + `rk"`, "a path of one machine"},
		{`GOPROXY=https://pro` + `xy.golang.org`, "the host of a package registry"},
		{`GOSUMDB=su` + `m.golang.org`, "the host of a package registry"},
		{`https://regis` + `try.npmjs.org/x`, "the host of a package registry"},
		{`https://regis` + `try.yarnpkg.com/x`, "the host of a package registry"},
		{`deb http://deb.deb` + `ian.org/x`, "the host of a package registry"},
		{`deb http://security.deb` + `ian.org/x`, "the host of a package registry"},
		{`https://py` + `pi.org/x`, "the host of a package registry"},
		{`https://files.pythonho` + `sted.org/x`, "the host of a package registry"},
		{`// TO` + `DO: later`, "a promise in place of the thing"},
		{`// FIX` + `ME: later`, "a promise in place of the thing"},
		{`// XX` + `X later`, "a promise in place of the thing"},
		{`below ~/.local/state/handsel`, ""},
		{`see docs/wo` + `rk/flow.md`, ""},
		{`the pkg.go.dev page`, ""},
		{`mktemp /tmp/XX` + `XXXX`, ""},
	} {
		got := ""
		strange(tt.line, func(what, _ string) { got = what })
		if got != tt.what {
			t.Errorf("%q is %q, want %q", tt.line, got, tt.what)
		}
	}
}
