package hook

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"

	"github.com/handsel/handsel/internal/home"
)

// Seen is one settings file as it is.
type Seen struct {
	Client  Client `json:"client"`
	Scope   string `json:"scope"`
	Path    string `json:"path"`
	State   string `json:"state"`             // "installed", "elsewhere", "absent" or "unreadable"
	Command string `json:"command,omitempty"` // of the hook of ours
	Others  int    `json:"others"`            // hooks of others at the same event
	// Trusted is only said of Codex, which runs no hook before the user has trusted
	// it: whether it has a note of that. Whether the note is of this very hook is
	// for Codex to say.
	Trusted *bool  `json:"trusted,omitempty"`
	Problem string `json:"problem,omitempty"` // why it is unreadable
}

// Look reads a settings file and changes nothing. "elsewhere" is a hook that
// calls another executable than exe.
func Look(p Place, exe string) Seen {
	s := Seen{Client: p.Client, Scope: p.Scope, Path: p.Path, State: "absent"}
	if err := s.look(p, exe); err != nil {
		s.State, s.Problem = "unreadable", err.Error()
	}
	return s
}

func (s *Seen) look(p Place, exe string) error {
	target, err := p.target()
	if err != nil {
		return err
	}
	data, err := home.ReadFile(target, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	root, err := tree(data)
	var mine []found
	if err == nil {
		mine, s.Others, err = hooks(root, p.Client)
	}
	if err != nil {
		return at(p.Path, data, err)
	}
	if len(mine) == 0 {
		return nil
	}
	one := mine[0]
	s.State, s.Command = "elsewhere", one.command.text
	for _, other := range mine {
		if other.command.text == Command(exe, p.Client) {
			one, s.State, s.Command = other, "installed", other.command.text
		}
	}
	if p.Client == Codex {
		trusted := p.trusts(one)
		s.Trusted = &trusted
	}
	return nil
}

// trusts tells whether Codex has a note that the user trusts a hook. The note's name
// is made of the file's path, the event and the hook's number.
func (p Place) trusts(one found) bool {
	data, err := os.ReadFile(p.config)
	if err != nil || len(data) > maxSettings {
		return false
	}
	var conf struct {
		Hooks struct {
			State map[string]struct {
				Hash string `toml:"trusted_hash"`
			} `toml:"state"`
		} `toml:"hooks"`
	}
	if toml.Unmarshal(data, &conf) != nil {
		return false
	}
	paths := []string{p.Path}
	if real, err := filepath.EvalSymlinks(filepath.Dir(p.Path)); err == nil {
		paths = append(paths, filepath.Join(real, filepath.Base(p.Path)))
	}
	for _, path := range paths {
		if conf.Hooks.State[trustKey(path, one)].Hash != "" {
			return true
		}
	}
	return false
}
