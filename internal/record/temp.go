package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ScratchName is what a run calls a directory for what is temporary inside its
// working directory, ShortScratchName one below the system's temporary directory,
// where names have to be short.
func ScratchName(id string) string      { return ".handsel-tmp-" + lastOf(id, 8) }
func ShortScratchName(id string) string { return "handsel-" + lastOf(id, 12) }

func lastOf(id string, n int) string { return id[max(len(id)-n, 0):] }

// Abandon clears up what a run has left that nobody of its own can end any more:
// its temporary directories, and what was true only while it ran. What cannot be
// removed is noted. Only a directory with a name of this run's is ever removed.
func (r *Run) Abandon() {
	r.Trouble = nil
	var stay []string
	for _, dir := range r.Temp {
		if name := filepath.Base(dir); !filepath.IsAbs(dir) || name != ScratchName(r.ID) && name != ShortScratchName(r.ID) {
			continue
		}
		if err := RemoveScratch(dir); err != nil {
			stay = append(stay, dir)
			r.Notes = append(r.Notes, fmt.Sprintf("its temporary directory stays: %v", err))
		}
	}
	r.Temp = stay
}

// RemoveScratch removes a directory that was an agent's and all below it, also
// where the agent has left directories in which nothing may be removed, as Go's
// module cache does. A link that the agent has put in its place is removed, never
// followed out of the directory it is in.
func RemoveScratch(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	above, oerr := os.OpenRoot(filepath.Dir(dir))
	if oerr != nil {
		return err
	}
	defer above.Close()
	if st, serr := above.Lstat(filepath.Base(dir)); serr != nil || !st.IsDir() {
		return err
	}
	root, oerr := above.OpenRoot(filepath.Base(dir))
	if oerr != nil {
		return err
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = root.Chmod(path, 0o700) // what cannot be opened now is told by the removal
		}
		return nil
	})
	return os.RemoveAll(dir)
}
