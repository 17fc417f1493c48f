package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// room is a directory whose conditions are turned into their opposites.
type room struct {
	dir    string
	files  []string // only these; none = all
	checks []check
}

// readRooms reads lines "room DIR [FILE…]", each followed by its "test …", the
// room's own first.
func readRooms(path string) ([]room, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var rooms []room
	for n, line := range strings.Split(string(text), "\n") {
		key, value, _ := strings.Cut(line, " ")
		words := strings.Fields(value)
		switch {
		case line == "" || line[0] == '#':
			continue
		case key == "room" && len(words) > 0:
			rooms = append(rooms, room{dir: words[0], files: words[1:]})
			continue
		case key == "test" && len(rooms) > 0:
			c, err := parseCheck(value)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", filepath.Base(path), n+1, err)
			}
			r := &rooms[len(rooms)-1]
			r.checks = append(r.checks, c)
			continue
		}
		return nil, fmt.Errorf("%s:%d: want a room or its test: %q", filepath.Base(path), n+1, line)
	}
	for _, r := range rooms {
		if len(r.checks) == 0 {
			return nil, fmt.Errorf("%s: room %s has no test", filepath.Base(path), r.dir)
		}
	}
	return rooms, nil
}

// Kinds of automatic faults.
const (
	negate = "negate" // a whole condition is its opposite
	bound  = "bound"  // < is <=, >= is >, and the other way round
	part   = "part"   // one side of && or || is its opposite
)

// site is a place for an automatic fault. Its key holds no line number, so that
// an explanation lives on when the file changes elsewhere.
type site struct {
	file, fn, kind, text string
	n                    int // the how-manieth of that text in that function, from 1
	line                 int
	clauses              []string
	from, to             int // what is replaced
	with                 string
}

func (s *site) key() string {
	kind := s.kind
	if s.n > 1 {
		kind += fmt.Sprintf("#%d", s.n)
	}
	return fmt.Sprintf("%s %s %s: %s", s.file, s.fn, kind, s.text)
}

// sites finds the places in a room, in the files that Linux compiles.
func (r room) sites(root string, kinds []string) ([]*site, error) {
	entries, err := os.ReadDir(filepath.Join(root, r.dir))
	if err != nil {
		return nil, err
	}
	ctx := build.Default
	ctx.GOOS = "linux"
	var all []*site
	var found []string
	for _, e := range entries {
		name := e.Name()
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || len(r.files) > 0 && !slices.Contains(r.files, name) {
			continue
		}
		found = append(found, name)
		if ok, err := ctx.MatchFile(filepath.Join(root, r.dir), name); err != nil || !ok {
			continue
		}
		some, err := sitesOf(root, path.Join(r.dir, name), kinds)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	for _, name := range r.files {
		if !slices.Contains(found, name) {
			return nil, fmt.Errorf("room %s has no %s any more", r.dir, name)
		}
	}
	return all, nil
}

// finder collects the sites of one file.
type finder struct {
	file  string
	src   []byte
	set   *token.FileSet
	ast   *ast.File
	kinds []string
	seen  map[string]int
	sites []*site

	fn      string
	clauses []string
}

func sitesOf(root, file string, kinds []string) ([]*site, error) {
	src, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{file: file, src: src, set: set, ast: tree, kinds: kinds, seen: map[string]int{}}
	for _, d := range tree.Decls {
		f.fn, f.clauses = nameOf(d), f.clausesIn(d)
		ast.Inspect(d, f.visit)
	}
	return f.sites, nil
}

func nameOf(d ast.Decl) string {
	fn, ok := d.(*ast.FuncDecl)
	switch {
	case !ok:
		return "var"
	case fn.Recv == nil:
		return fn.Name.Name
	}
	switch t := fn.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		return fmt.Sprintf("(*%s).%s", typeName(t.X), fn.Name.Name)
	default:
		return typeName(t) + "." + fn.Name.Name
	}
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return "?"
}

var clauseName = regexp.MustCompile(`\b[SL][0-9]+[a-z]?\b`)

// clausesIn are those that a declaration's comments name.
func (f *finder) clausesIn(d ast.Decl) (names []string) {
	from := d.Pos()
	if fn, ok := d.(*ast.FuncDecl); ok && fn.Doc != nil {
		from = fn.Doc.Pos()
	}
	for _, group := range f.ast.Comments {
		if group.Pos() < from || group.End() > d.End() {
			continue
		}
		for _, name := range clauseName.FindAllString(group.Text(), -1) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.ForStmt:
		f.condition(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					f.condition(e)
				}
			}
		}
	case *ast.ReturnStmt:
		for _, e := range n.Results {
			if isCondition(e) {
				f.condition(e)
			}
		}
	}
	return true
}

// isCondition tells whether an expression is true or false by its looks.
func isCondition(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return isCondition(e.X)
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
			return true
		}
	}
	return false
}

var shifted = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

func (f *finder) condition(e ast.Expr) {
	if e == nil {
		return
	}
	f.add(negate, e, e.Pos(), e.End(), "!("+f.text(e)+")")
	ast.Inspect(e, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false // its own conditions are found by themselves
		}
		b, ok := n.(*ast.BinaryExpr)
		if !ok {
			return true
		}
		if with, ok := shifted[b.Op]; ok {
			f.add(bound, b, b.OpPos, b.OpPos+token.Pos(len(b.Op.String())), with)
		}
		if b.Op == token.LAND || b.Op == token.LOR {
			for _, side := range []ast.Expr{b.X, b.Y} {
				if s, ok := side.(*ast.BinaryExpr); !ok || s.Op != b.Op {
					f.add(part, side, side.Pos(), side.End(), "!("+f.text(side)+")")
				}
			}
		}
		return true
	})
}

func (f *finder) text(n ast.Node) string {
	return string(f.src[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset])
}

func (f *finder) add(kind string, e ast.Expr, from, to token.Pos, with string) {
	if !slices.Contains(f.kinds, kind) {
		return
	}
	s := &site{
		file: f.file, fn: f.fn, kind: kind, text: strings.Join(strings.Fields(f.text(e)), " "),
		line: f.set.Position(from).Line, clauses: f.clauses,
		from: f.set.Position(from).Offset, to: f.set.Position(to).Offset, with: with,
	}
	same := s.fn + " " + s.kind + ": " + s.text
	f.seen[same]++
	s.n = f.seen[same]
	f.sites = append(f.sites, s)
}

// plant makes a fault of the site.
func (s *site) plant(root string, r room) (*fault, error) {
	src, err := os.ReadFile(filepath.Join(root, s.file))
	if err != nil {
		return nil, err
	}
	text := slices.Concat(src[:s.from], []byte(s.with), src[s.to:])
	return &fault{
		id: s.key(), clauses: s.clauses, place: fmt.Sprintf("%s:%d", s.file, s.line), checks: r.checks, auto: true,
		content: map[string][]byte{s.file: text},
	}, nil
}

// automatic finds all faults of the automatic pass. The explanations are put
// where they belong; those that belong nowhere are returned as errors.
func automatic(root string, rooms []room, why map[string]string) (faults []*fault, bad []error) {
	used := map[string]bool{}
	for _, r := range rooms {
		sites, err := r.sites(root, []string{negate, bound, part})
		if err != nil {
			bad = append(bad, fmt.Errorf("room %s no longer applies: %w", r.dir, err))
			continue
		}
		for _, s := range sites {
			f, err := s.plant(root, r)
			if err != nil {
				bad = append(bad, err)
				continue
			}
			f.explained, used[f.id] = why[f.id], true
			faults = append(faults, f)
		}
	}
	for key := range why {
		if !used[key] {
			bad = append(bad, fmt.Errorf("the explanation of %q no longer applies", key))
		}
	}
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return faults, bad
}

// kindOf is the kind of an automatic fault.
func kindOf(f *fault) string {
	words := strings.Fields(f.id)
	kind, _, _ := strings.Cut(strings.TrimSuffix(words[2], ":"), "#")
	return kind
}

// readExplained reads why some automatic faults cannot be noticed: a site's key
// on a line of its own, the reason indented below it. Keys may follow each other
// and share a reason.
func readExplained(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	why := map[string]string{}
	var keys []string
	for n, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			if len(keys) == 0 {
				return nil, fmt.Errorf("%s:%d: a reason for nothing", filepath.Base(path), n+1)
			}
			for _, k := range keys {
				why[k] = strings.TrimSpace(why[k] + " " + strings.TrimSpace(line))
			}
		default:
			if len(keys) > 0 && why[keys[0]] != "" {
				keys = nil
			}
			if _, twice := why[line]; twice {
				return nil, fmt.Errorf("%s:%d: explained twice", filepath.Base(path), n+1)
			}
			why[line] = ""
			keys = append(keys, line)
		}
	}
	for k, reason := range why {
		if reason == "" {
			return nil, fmt.Errorf("%s: %q has no reason", filepath.Base(path), k)
		}
	}
	return why, nil
}
