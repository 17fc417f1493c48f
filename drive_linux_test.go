package handsel

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/run"
)

// secretsOf reads a configuration of the test's own and asks for an engine's.
func secretsOf(t *testing.T, text, engine string, signals <-chan os.Signal) ([]string, *run.Outcome, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := OpenWith(func(name string) string {
		return map[string]string{"HANDSEL_HOME": filepath.Join(dir, "home"), "HANDSEL_CONFIG": file}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.settings()
	if err != nil {
		t.Fatal(err)
	}
	return s.secrets(t.Context(), engine, signals)
}

// L12: from a file or from what a command prints, for the engine under any of
// its names, and for no other.
func TestSecretsComeFromAFileOrACommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("# a key\nA_KEY=s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HANDSEL_LANE", "outer")
	text := `
[credentials.claude]
env_file = "` + file + `"
[credentials.openai-codex]
command = ["sh", "-c", "echo B_KEY=\"$1$HANDSEL_LANE\"; echo A_KEY=oops >&2; cat", "sh", "two words"]
`
	for engine, want := range map[string][]string{"claude": {"A_KEY=s3cret"}, "codex": {"B_KEY=two words"}, "gemini": nil, "": nil} {
		got, _, err := secretsOf(t, text, engine, nil)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", engine, got, err, want)
		}
	}
}

// What cannot be had is named, and nothing of what was said is repeated.
func TestMissingSecretsAreNamedAndNotRepeated(t *testing.T) {
	wide := filepath.Join(t.TempDir(), "wide")
	if err := errors.Join(os.WriteFile(wide, []byte("K=hunter2\n"), 0o600), os.Chmod(wide, 0o622)); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, table := range map[string]string{
		"a file others can write":  `env_file = "` + wide + `"`,
		"a file without names":     `env_file = "` + broken + `"`,
		"no file":                  `env_file = "` + broken + `.none"`,
		"a command that fails":     `command = ["sh", "-c", "echo K=hunter2; echo hunter2 >&2; exit 3"]`,
		"a command that is killed": `command = ["sh", "-c", "echo K=hunter2; kill -9 $$"]`,
		"a command without names":  `command = ["echo", "hunter2"]`,
		"no command":               `command = ["no-such-command-here"]`,
		"endless output":           `command = ["sh", "-c", "yes K=hunter2 | head -c 2000000"]`,
	} {
		got, _, err := secretsOf(t, "[credentials.claude]\n"+table, "claude", nil)
		var none *NoCredentials
		if !errors.As(err, &none) || none.Engine != "claude" || got != nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// L12: a command that does not come to an end is ended, with what it started.
func TestSecretsCommandIsEndedInTime(t *testing.T) {
	credentialsPatience = 50 * time.Millisecond
	defer func() { credentialsPatience = 15 * time.Second }()
	_, _, err := secretsOf(t, "[credentials.claude]\ncommand = [\"sleep\", \"3600\"]", "claude", nil)
	var none *NoCredentials
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("secrets: %v", err)
	}
}

// A signal that comes while secrets are fetched ends the attempt, not only the
// command.
func TestSignalWhileSecretsAreFetchedIsTold(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	_, early, err := secretsOf(t, "[credentials.claude]\ncommand = [\"sleep\", \"3600\"]", "claude", signals)
	if err == nil || early == nil || early.By != syscall.SIGTERM {
		t.Errorf("secrets: %+v, %v", early, err)
	}
}

// A key agent that a command starts in a session of its own is meant to stay.
func TestDaemonOfSecretsCommandStays(t *testing.T) {
	note := filepath.Join(t.TempDir(), "pid")
	got, _, err := secretsOf(t, `[credentials.claude]
command = ["sh", "-c", "setsid sh -c 'echo $$ >$1; exec sleep 60' sh $1 >/dev/null 2>&1 & while ! test -s $1; do sleep 0.01; done; echo K=v", "sh", "`+note+`"]
`, "claude", nil)
	if err != nil || !slices.Equal(got, []string{"K=v"}) {
		t.Errorf("secrets: %q, %v", got, err)
	}
	text, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	for _, c := range strings.TrimSpace(string(text)) {
		pid = 10*pid + int(c-'0')
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("the daemon is gone: %v", err)
	}
}

func TestEntriesGoOverThoseOfTheirName(t *testing.T) {
	got := over([]string{"A=1", "B=2", "A=3", "odd"}, []string{"A=4", "C=5"})
	if want := []string{"B=2", "odd", "A=4", "C=5"}; !slices.Equal(got, want) {
		t.Errorf("over = %q, want %q", got, want)
	}
}

// A pipe on which no whole offer comes is given up, and closed.
func TestSilentOfferIsGivenUp(t *testing.T) {
	offerPatience = 20 * time.Millisecond
	defer func() { offerPatience = 5 * time.Second }()
	for _, part := range []string{"", "an attempt\nabc"} {
		var ends [2]int
		if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if _, err := syscall.Write(ends[1], []byte(part)); err != nil {
			t.Fatal(err)
		}
		if said, err := readOffer(ends[0]); err == nil {
			t.Errorf("%q was taken for an offer", said)
		}
		if err := syscall.Close(ends[0]); err == nil {
			t.Error("the pipe is still open")
		}
		syscall.Close(ends[1])
	}
}
