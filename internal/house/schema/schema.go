// Package schema checks JSON against the schemas we publish in
// docs/reference/schemas. It is imported by tests only.
//
// It says whether a value has the promised shape; whether the values in it are
// true is for the test that produced it.
package schema

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Dir is where the schemas are, below the root of the repository.
const Dir = "docs/reference/schemas"

// Check fails the test when value, one JSON text, does not have the shape that
// the schema called name, such as "status.schema", promises: the file
// docs/reference/schemas/<name>.json. It finds the repository by walking up
// from the working directory, so a test must be in its package's directory, or
// anywhere below, when it calls it.
func Check(t testing.TB, name string, value []byte) {
	t.Helper()
	if err := Validate(name, value); err != nil {
		t.Errorf("schema %s: %v\n%s", name, err, value)
	}
}

// Validate is Check without a test: it returns what is wrong with value.
func Validate(name string, value []byte) error {
	compiled, err := Compile(name)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return fmt.Errorf("not one JSON text: %w", err)
	}
	return compiled.Validate(doc)
}

// Compile reads the schema called name, and what it refers to. Formats (times,
// URIs) are asserted.
func Compile(name string) (*jsonschema.Schema, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	return c.Compile(filepath.Join(root, filepath.FromSlash(Dir), name+".json"))
}

// Root is the directory of the repository that holds the working directory: the
// nearest one upwards with a go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return "", err
		}
		dir = parent
	}
}
