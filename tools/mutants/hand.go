package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// fault is one change of the source that the tests must notice.
type fault struct {
	id        string   // CLAUSE.word; of the automatic pass its place
	clauses   []string // those it breaks
	why       string   // what is wrong then, in words
	place     string   // file:line
	explained string   // why no test can notice; "" = one must
	checks    []check  // the most likely to notice first
	auto      bool

	// What the files say with the fault in them, by their path below the root.
	content map[string][]byte
}

// edit is a change of some whole lines, which stand in the file exactly once.
type edit struct{ file, old, new string }

// list is what faults.txt says.
type list struct {
	clauses []string // each must have a fault
	faults  []*fault
	edits   map[*fault][]edit
}

var faultID = regexp.MustCompile(`^([A-Z][0-9]+[a-z]?)\.[a-z0-9-]+$`)

// readFaults reads the hand-written faults. A line begins with what it is:
//
//	clauses S5 S6     each of these must have a fault below
//	fault S5.links    begins one; S5 is the clause that it breaks
//	why TEXT          what is wrong then
//	file PATH         what the lines below change; may be repeated
//	-LINE  +LINE      a line that goes, a line that comes; one that stays has a
//	                  blank in that place. Runs of them are one edit.
//	test DIR [-run RE] [-short] [-tags T] [-timeout D]   may be repeated
//	explained TEXT    no test can notice, and why
//	# …               a remark
func readFaults(path string) (*list, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l := &list{edits: map[*fault][]edit{}}
	p := &handParser{list: l}
	for n, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Base(path), n+1, err)
		}
	}
	return l, p.end()
}

type handParser struct {
	list   *list
	now    *fault
	file   string
	inEdit bool
}

func (p *handParser) line(line string) error {
	if p.now != nil && line != "" && strings.ContainsRune("-+ ", rune(line[0])) {
		return p.changed(line[0], line[1:])
	}
	p.inEdit = false
	key, value, _ := strings.Cut(line, " ")
	value = strings.TrimSpace(value)
	switch {
	case line == "" || line[0] == '#':
		return nil
	case key == "clauses":
		p.list.clauses = append(p.list.clauses, strings.Fields(value)...)
		return nil
	case key == "fault":
		return p.begin(value)
	case p.now == nil:
		return fmt.Errorf("%q before any fault", key)
	}
	switch key {
	case "why":
		p.now.why = value
	case "explained":
		p.now.explained = value
	case "file":
		p.file = value
	case "test":
		c, err := parseCheck(value)
		if err != nil {
			return err
		}
		p.now.checks = append(p.now.checks, c)
	default:
		return fmt.Errorf("%q is nothing that a fault has", key)
	}
	return nil
}

func (p *handParser) begin(id string) error {
	if err := p.end(); err != nil {
		return err
	}
	m := faultID.FindStringSubmatch(id)
	if m == nil {
		return fmt.Errorf("%q is no name for a fault (S5.links)", id)
	}
	if slices.ContainsFunc(p.list.faults, func(f *fault) bool { return f.id == id }) {
		return fmt.Errorf("%s: there are two", id)
	}
	p.now, p.file = &fault{id: id, clauses: []string{m[1]}}, ""
	p.list.faults = append(p.list.faults, p.now)
	return nil
}

// end makes sure that the fault that was being read is whole.
func (p *handParser) end() error {
	f := p.now
	switch {
	case f == nil:
		return nil
	case f.why == "":
		return fmt.Errorf("%s does not say why it is wrong", f.id)
	case len(p.list.edits[f]) == 0:
		return fmt.Errorf("%s changes nothing", f.id)
	case len(f.checks) == 0 && f.explained == "":
		return fmt.Errorf("%s has no test that must notice", f.id)
	}
	return nil
}

func (p *handParser) changed(kind byte, line string) error {
	if p.file == "" {
		return errors.New("lines of no file")
	}
	edits := p.list.edits[p.now]
	if !p.inEdit {
		edits, p.inEdit = append(edits, edit{file: p.file}), true
	}
	e := &edits[len(edits)-1]
	if kind != '+' {
		e.old += line + "\n"
	}
	if kind != '-' {
		e.new += line + "\n"
	}
	p.list.edits[p.now] = edits
	return nil
}

// apply plants the hand-written faults in the tree at root, in memory. Those
// that no longer apply are returned with the reason.
func (l *list) apply(root string) (bad []error) {
	for _, f := range l.faults {
		if err := f.apply(root, l.edits[f]); err != nil {
			bad = append(bad, fmt.Errorf("%s no longer applies: %w", f.id, err))
		}
	}
	for _, clause := range l.clauses {
		if !slices.ContainsFunc(l.faults, func(f *fault) bool { return f.clauses[0] == clause }) {
			bad = append(bad, fmt.Errorf("clause %s has no fault", clause))
		}
	}
	return bad
}

func (f *fault) apply(root string, edits []edit) error {
	f.content = map[string][]byte{}
	for _, e := range edits {
		text, begun := f.content[e.file]
		if !begun {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, e.file)); err != nil {
				return err
			}
		}
		src := "\n" + string(text)
		if n := strings.Count(src, "\n"+e.old); n != 1 {
			first, _, _ := strings.Cut(e.old, "\n")
			return fmt.Errorf("%s has its lines %d times, want once: %q", e.file, n, strings.TrimSpace(first))
		}
		at := strings.Index(src, "\n"+e.old)
		if f.place == "" {
			f.place = fmt.Sprintf("%s:%d", e.file, strings.Count(src[:at+1], "\n"))
		}
		f.content[e.file] = []byte(strings.Replace(src, "\n"+e.old, "\n"+e.new, 1)[1:])
	}
	return nil
}
