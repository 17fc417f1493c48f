package house

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/handsel/handsel/internal/house/schema"
)

// page is what one Markdown file offers and points at.
type page struct {
	links   []string        // targets of links and images, titles cut off
	anchors map[string]bool // what #… may name in it
	makes   []string        // the targets of every `make x` that is code
}

var (
	link      = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+["'][^)]*)?\s*\)`)
	reference = regexp.MustCompile(`^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s|$)`)
	heading   = regexp.MustCompile(`^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$`)
	named     = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)
	fence     = regexp.MustCompile("^\\s*(```+|~~~+)")
	code      = regexp.MustCompile("`+[^`]+`+")
	makeLine  = regexp.MustCompile(`^\s*(?:[$#]\s+)?(?:sudo\s+)?make((?:\s+[A-Za-z_]\S*)+)`)
)

// readPage takes a Markdown text apart, as far as we write it.
func readPage(text string) page {
	p := page{anchors: map[string]bool{}}
	fenced := ""
	for line := range strings.SplitSeq(text, "\n") {
		if m := fence.FindStringSubmatch(line); m != nil && (fenced == "" || strings.HasPrefix(m[1], fenced)) {
			if fenced == "" {
				fenced = m[1]
			} else {
				fenced = ""
			}
			continue
		}
		if fenced != "" || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t") {
			p.makes = append(p.makes, makesIn(line)...)
			if fenced != "" {
				continue
			}
		}
		p.prose(line)
	}
	return p
}

func (p *page) prose(line string) {
	for _, c := range code.FindAllString(line, -1) {
		p.makes = append(p.makes, makesIn(strings.Trim(c, "`"))...)
	}
	for _, m := range named.FindAllStringSubmatch(line, -1) {
		p.anchors[m[1]] = true
	}
	if m := heading.FindStringSubmatch(line); m != nil {
		p.anchors[p.fresh(slug(m[1]))] = true
	}
	bare := code.ReplaceAllString(line, "")
	for _, m := range link.FindAllStringSubmatch(bare, -1) {
		p.links = append(p.links, m[1])
	}
	if m := reference.FindStringSubmatch(bare); m != nil {
		p.links = append(p.links, m[1])
	}
}

// fresh numbers a heading that occurs again: usage, usage-1, usage-2.
func (p *page) fresh(s string) string {
	for n, try := 1, s; ; n++ {
		if !p.anchors[try] {
			return try
		}
		try = fmt.Sprintf("%s-%d", s, n)
	}
}

// slug makes the anchor a forge makes of a heading.
func slug(h string) string {
	h = link.ReplaceAllString(h, "]")
	var b strings.Builder
	for _, r := range strings.ToLower(h) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	return b.String()
}

// makesIn returns the targets a line of code asks make for.
func makesIn(line string) (targets []string) {
	m := makeLine.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	for _, word := range strings.Fields(m[1]) {
		if word == "#" {
			break
		}
		if !strings.Contains(word, "=") {
			targets = append(targets, strings.TrimRight(word, ",;:."))
		}
	}
	return targets
}

func TestDocsLinksResolve(t *testing.T) {
	root, names := files(t, func(name string) bool {
		return path.Ext(name) == ".md" && !strings.Contains(name, "testdata/")
	})
	pages := map[string]page{}
	for _, name := range names {
		pages[name] = readPage(string(read(t, root, name)))
	}
	targets := makeTargets(string(read(t, root, "Makefile")))
	for name, p := range pages {
		for _, target := range p.links {
			if err := resolve(root, pages, name, target); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, target := range p.makes {
			if !slices.Contains(targets, target) {
				t.Errorf("%s: make %s: the Makefile has no such target", name, target)
			}
		}
	}
}

// resolve says what is wrong with a link of a page, if anything is. Links out
// of the repository are not followed.
func resolve(root string, pages map[string]page, from, target string) error {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return nil
	}
	file, anchor, anchored := strings.Cut(target, "#")
	to := from
	if file != "" {
		to = path.Join(path.Dir(from), file)
	}
	if path.IsAbs(file) || to == ".." || strings.HasPrefix(to, "../") {
		return fmt.Errorf("link %s leaves the repository", target)
	}
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil {
		return fmt.Errorf("link %s: there is no %s", target, to)
	}
	if p, ok := pages[to]; anchored && ok && !p.anchors[anchor] {
		return fmt.Errorf("link %s: %s has no heading for it", target, to)
	}
	return nil
}

var makeRule = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9 _-]*):(?:[^=]|$)`)

func makeTargets(makefile string) (targets []string) {
	for line := range strings.SplitSeq(makefile, "\n") {
		if m := makeRule.FindStringSubmatch(line); m != nil {
			targets = append(targets, strings.Fields(m[1])...)
		}
	}
	return targets
}

func TestMarkdownIsReadAsWritten(t *testing.T) {
	p := readPage("# What it *is*: `handsel run`\n\n## Usage\n## Usage\n[a](b.md#c \"title\") ![x](i.png) `[no](code.md)`\n" +
		"[ref]: other.md\n\nRun `make demo`, or `make test STEPS=\"vet\"`; make sure of it.\n" +
		"```sh\nmake build install PREFIX=/usr # then\n[no](fenced.md)\n```\n")
	for _, want := range []string{"what-it-is-handsel-run", "usage", "usage-1"} {
		if !p.anchors[want] {
			t.Errorf("no anchor %s in %v", want, p.anchors)
		}
	}
	if want := []string{"b.md#c", "i.png", "other.md"}; !slices.Equal(p.links, want) {
		t.Errorf("links = %q, want %q", p.links, want)
	}
	if want := []string{"demo", "test", "build", "install"}; !slices.Equal(p.makes, want) {
		t.Errorf("makes = %q, want %q", p.makes, want)
	}
}

func TestDeadLinkIsNoticed(t *testing.T) {
	root, err := schema.Root()
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]page{"LICENSE": {}, "docs/a.md": {anchors: map[string]bool{"here": true}}}
	for target, good := range map[string]bool{
		"LICENSE":             true,
		"internal/house":      true,
		"no-such-file.md":     false,
		"../elsewhere.md":     false,
		"/etc/passwd":         false,
		"LICENSE#no-heading":  false,
		"https://example.org": true,
	} {
		if err := resolve(root, pages, "README.md", target); (err == nil) != good {
			t.Errorf("resolve(%s) = %v", target, err)
		}
	}
}

func TestSchemasCompile(t *testing.T) {
	_, names := files(t, func(name string) bool {
		return path.Dir(name) == schema.Dir && path.Ext(name) == ".json"
	})
	for _, name := range names {
		name := strings.TrimSuffix(path.Base(name), ".json")
		s, err := schema.Compile(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.Title == "" || s.Description == "" {
			t.Errorf("%s: wants a title and a description: a person reads it, too", name)
		}
		if s.DraftVersion != 2020 {
			t.Errorf("%s: is draft %d, want 2020 ($schema)", name, s.DraftVersion)
		}
		if s.Types != nil && s.Types.String() == "[object]" && s.Properties["v"] == nil {
			t.Errorf("%s: has no v: every format carries its version (C12)", name)
		}
	}
}
