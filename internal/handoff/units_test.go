package handoff

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/home"
)

// unit reads a unit of packaging as "Section.Key" → values.
func unit(t *testing.T, name string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "packaging", "systemd", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	section := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		key, value, is := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case is:
			out[section+"."+key] = append(out[section+"."+key], value)
		}
	}
	return out
}

// What a unit must say for the promises to hold: the agents of a dispatcher that
// is stopped, or that runs out of memory, go on (L17); nothing is tried again
// that would fail again; systemd hears of us.
func TestUnitsLeaveAgentsAlone(t *testing.T) {
	for _, name := range []string{"user/handsel.service", "system/handsel@.service"} {
		u := unit(t, name)
		for key, want := range map[string]string{
			"Service.KillMode":                 "process",
			"Service.OOMPolicy":                "continue",
			"Service.Type":                     "notify",
			"Service.NotifyAccess":             "main",
			"Service.Restart":                  "on-failure",
			"Service.RestartPreventExitStatus": "2 75 77 78",
			"Service.ExecStart":                "handsel dispatch",
		} {
			if got := u[key]; !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}
	if got := unit(t, "system/handsel@.service")["Service.User"]; !slices.Equal(got, []string{"%i"}) {
		t.Errorf("the template runs as %q", got)
	}
}

// systemd listens where clients look, and lets nobody else in.
func TestUnitListensInTheHome(t *testing.T) {
	u := unit(t, "user/handsel.socket")
	at := func(name string) string { return "%h/.local/state/handsel/" + name }
	if got := u["Socket.ListenStream"]; !slices.Equal(got, []string{at(home.HandoffSocket), at(home.APISocket)}) {
		t.Errorf("it listens at %q", got)
	}
	for key, want := range map[string]string{"Socket.SocketMode": "0600", "Socket.DirectoryMode": "0700"} {
		if got := u[key]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %s", key, got, want)
		}
	}
	if got := unit(t, "user/handsel.service")["Unit.Requires"]; !slices.Contains(got, "handsel.socket") {
		t.Errorf("the service requires %q", got)
	}
}
