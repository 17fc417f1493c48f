package browsertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Stage is a handsel home with stand-in agents, and the processes that were
// started in it.
type Stage struct {
	Dir     string // work is done here
	Handsel string // the executable
	Agent   string // the stand-in; also claude, codex, gemini and pi in PATH
	env     []string
	going   []*exec.Cmd
}

// NewStage makes one below dir, with this configuration.
func NewStage(dir, handsel, agent, config string) (*Stage, error) {
	s := &Stage{Dir: filepath.Join(dir, "work"), Handsel: handsel, Agent: agent}
	bin := filepath.Join(dir, "bin")
	file := filepath.Join(dir, "config.toml")
	for _, d := range []string{s.Dir, bin, filepath.Join(dir, "home")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"fakeagent", "claude", "codex", "gemini", "pi"} {
		if err := os.Symlink(agent, filepath.Join(bin, name)); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	s.env = append(without(os.Environ(), "HANDSEL_", "HOME=", "PATH=", "FAKEAGENT"), "HANDSEL_HOME="+filepath.Join(dir, "home"), "HANDSEL_CONFIG="+file, "HOME="+dir,
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "FAKEAGENT_LIFE=5m", "GORACE=atexit_sleep_ms=0")
	return s, nil
}

// Command is `handsel args…` in the stage, not started yet.
func (s *Stage) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.Handsel, args...)
	cmd.Dir, cmd.Env = s.Dir, s.env
	return cmd
}

// Run runs handsel to its end and returns what it printed.
func (s *Stage) Run(args ...string) (string, error) {
	cmd := s.Command(args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("handsel %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return string(out), nil
}

// Start starts handsel and goes on. Close ends it.
func (s *Stage) Start(args ...string) (*exec.Cmd, error) {
	cmd := s.Command(args...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.going = append(s.going, cmd)
	return cmd, nil
}

// Web starts `handsel web` and returns the link it printed.
func (s *Stage) Web() (cmd *exec.Cmd, link string, err error) {
	cmd = s.Command("web", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	s.going = append(s.going, cmd)
	var said struct{ URL string }
	if err := json.NewDecoder(out).Decode(&said); err != nil {
		return nil, "", fmt.Errorf("handsel web: %w", err)
	}
	return cmd, said.URL, nil
}

// Dispatcher starts one and returns when it answers.
func (s *Stage) Dispatcher() (*exec.Cmd, error) {
	cmd, err := s.Start("dispatch")
	if err != nil {
		return nil, err
	}
	return cmd, Wait("the dispatcher to answer", func() bool {
		_, err := s.Run("dispatch", "status")
		return err == nil
	})
}

// Wait waits for what must come.
func Wait(what string, there func() bool) error {
	for until := time.Now().Add(Patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if there() {
			return nil
		}
	}
	return errors.New("waited in vain for " + what)
}

// Tell writes a line that a stand-in waits for (until FILE).
func (s *Stage) Tell(file string) error {
	return os.WriteFile(filepath.Join(s.Dir, file), []byte("go\n"), 0o600)
}

// Close ends everything that was started, the agents of it first.
func (s *Stage) Close() {
	_, _ = s.Run("drain") // nothing new meanwhile
	if out, err := s.Run("runs", "--json"); err == nil {
		var list struct {
			Runs []struct{ ID, State string }
		}
		if json.Unmarshal([]byte(out), &list) == nil {
			for _, r := range list.Runs {
				if r.State != "ended" {
					_, _ = s.Run("cancel", "run:"+r.ID)
				}
			}
		}
	}
	for _, cmd := range s.going {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, cmd := range s.going {
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = cmd.Wait()
		}()
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-gone
		}
	}
}
