package handsel

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/handsel/handsel/internal/record"
)

// TestOnlyWhatIsOursIsRemoved: whoever was there first keeps it, whether the start
// fails over it or is refused before; and a link in the scratch directory's place
// is not written through.
func TestOnlyWhatIsOursIsRemoved(t *testing.T) {
	for _, tt := range []struct {
		name    string
		confine string
		place   func(j *job) string
	}{
		{"light", "", func(j *job) string { return j.begin.scratch }},
		{"confined", ConfineOS, func(j *job) string { return j.jail.dirs[0] }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			h := homeWith(t, nil)
			j := &job{home: h, argv: []string{"codex", "exec", "x"}, id: record.NewID(), o: Options{Workload: Light, Confine: tt.confine, Dir: t.TempDir()}}
			if tt.confine != "" {
				j.argv = []string{"sh"}
			}
			err := j.resolve()
			if errors.As(err, new(*CannotConfine)) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			place := tt.place(j)
			theirs := filepath.Join(place, "theirs")
			if err := errors.Join(os.Mkdir(place, 0o700), os.WriteFile(theirs, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if warnings := j.clear(); len(warnings) > 0 { // it was refused before anything was made
				t.Error(warnings)
			}
			j.giveUp = func(error) {}
			j.rec = newRecorder(j)
			if _, err := j.admit(context.Background()); !errors.Is(err, fs.ErrExist) {
				t.Errorf("it starts all the same: %v", err)
			}
			if warnings := j.clear(); len(warnings) > 0 || len(j.temps()) > 0 {
				t.Error(warnings, j.temps())
			}
			if _, err := os.Stat(theirs); err != nil {
				t.Error(err)
			}
		})
	}
	b := &beginning{scratch: filepath.Join(t.TempDir(), record.ScratchName(record.NewID()))}
	if err := os.Symlink(t.TempDir(), b.scratch); err != nil {
		t.Fatal(err)
	}
	if err := b.makeScratch(); !errors.Is(err, fs.ErrExist) || b.made {
		t.Errorf("a link is taken for the directory: %v", err)
	}
}
