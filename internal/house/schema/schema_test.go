package schema

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWrongShapeIsNoticed(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, filepath.FromSlash(Dir))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(root, "go.mod"): "module example.test",
		filepath.Join(dir, "point.json"): `{
			"$schema": "https://json-schema.org/draft/2020-12/schema",
			"type": "object",
			"required": ["v", "at"],
			"properties": {"v": {"const": 1}, "at": {"type": "string", "format": "date-time"}}
		}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir) // anywhere below the root will do

	for value, good := range map[string]bool{
		`{"v": 1, "at": "2026-11-30T08:00:00.000Z", "new": true}`: true,
		`{"v": 1}`: false,
		`{"v": 2, "at": "2026-11-30T08:00:00.000Z"}`: false,
		`{"v": 1, "at": "yesterday"}`:                false,
		`{"v": 1, "at": "2026-11-30T08:00:00Z"} {}`:  false,
		``: false,
	} {
		if err := Validate("point", []byte(value)); (err == nil) != good {
			t.Errorf("Validate(%s) = %v", value, err)
		}
	}
	if err := Validate("line", []byte(`{}`)); err == nil {
		t.Error("a schema that is not there passed a value")
	}
}
