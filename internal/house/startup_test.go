package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"

	"github.com/handsel/handsel/internal/house/schema"
)

// TestNothingIsCompiledAtStart is C1: a regular expression of a package's own is
// compiled when it is first used. All that run once before main did nothing else
// for three milliseconds of each start.
func TestNothingIsCompiledAtStart(t *testing.T) {
	root, err := schema.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources(t) {
		if s.test || forTests[s.room] || floors[s.room] > floors["cmd/handsel"] {
			continue
		}
		for _, decl := range parse(t, filepath.Join(root, filepath.FromSlash(s.name)), parser.SkipObjectResolution).Decls {
			vars, ok := decl.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			for _, spec := range vars.Specs {
				for _, value := range spec.(*ast.ValueSpec).Values {
					if compiles(value) {
						t.Errorf("%s: compiles a regular expression before main", s.name)
					}
				}
			}
		}
	}
}

// compiles tells whether an expression compiles a regular expression itself, and
// not a function in it.
func compiles(value ast.Expr) (found bool) {
	ast.Inspect(value, func(n ast.Node) bool {
		if _, later := n.(*ast.FuncLit); later {
			return false
		}
		if call, ok := n.(*ast.CallExpr); ok {
			if name, ok := call.Fun.(*ast.SelectorExpr); ok && name.Sel.Name == "MustCompile" {
				found = true
			}
		}
		return !found
	})
	return found
}
