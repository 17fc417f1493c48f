package handsel_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel"
)

// asks is a home where claude's quota is asked of a script that finds its own
// directory as $1, and is good for an hour. more is of its table.
func asks(t *testing.T, script, more string) *handsel.Home {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	text := "[quota.claude]\nevery = \"1h\"\ncommand = [\"/bin/sh\", \"" + filepath.Join(dir, "ask") + "\", \"" + dir + "\"]\n" + more + "\n"
	for path, text := range map[string]string{config: text, filepath.Join(dir, "ask"): script} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return open(t, map[string]string{"HANDSEL_CONFIG": config})
}

// A command that says until when is asked again then, long before its answer is
// too old and however rarely those who wait look by themselves; also where that time
// has come before its word is read.
func TestCommandIsAskedAgainAtItsUntil(t *testing.T) { // P3
	for name, more := range map[string]string{"in time": "", "late": "sleep 2"} {
		t.Run(name, func(t *testing.T) {
			h := asks(t, `
if [ -e "$1/asked" ]; then exit 0; fi
: >"$1/asked"
date -u -d '+1 second' '+{"until":"%Y-%m-%dT%H:%M:%SZ"}'
`+more+`
exit 10
`, "")
			l, err := h.Acquire(t.Context(), handsel.Start{Engine: "claude", Wait: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A time that cannot be written down is no end, and the answer counts.
func TestCommandThatNamesNoTimeOfOurs(t *testing.T) {
	h := asks(t, `
echo asked >>"$1/asked"
echo '{"until":"9999-12-31T23:59:59-23:59"}'
exit 10
`, "")
	for range 2 {
		if l, err := h.Acquire(t.Context(), handsel.Start{Engine: "claude"}); err == nil {
			t.Error("it was let through", l.Release())
		}
	}
}

// Those who wait for the answer of a command that has to be killed wait for that, and
// are told of the command, not of the lock that keeps them apart.
func TestCommandThatMustBeKilledIsWaitedFor(t *testing.T) {
	h := asks(t, `
trap "" TERM
while :; do sleep 1; done
`, `timeout = "1s"`)
	var mu sync.Mutex
	var notes []string
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			_, err := h.Run(t.Context(), []string{"true"}, handsel.Options{Engine: "claude", OnNote: func(text string) {
				mu.Lock()
				defer mu.Unlock()
				notes = append(notes, text)
			}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(notes) != 3 {
		t.Errorf("%q", notes)
	}
	for _, note := range notes {
		if !strings.Contains(note, "has not ended in 1s") {
			t.Error(note)
		}
	}
}
