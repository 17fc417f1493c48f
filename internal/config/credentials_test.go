package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func credentialsIn(t *testing.T, text string) (map[string]Credentials, error) {
	t.Helper()
	p := parse("/c.toml", []byte(text))
	if bad := p.problems(); len(bad) > 0 {
		t.Fatalf("%q: %v", text, bad)
	}
	s := defaults()
	p.apply(s)
	return s.Credentials()
}

func TestCredentialsNameAFileOrACommand(t *testing.T) {
	all, err := credentialsIn(t, `
[credentials.claude]
env_file = "/run/secrets/claude"
[credentials.codex]
command = ["pass", "show", "a b"]
`)
	if err != nil {
		t.Fatal(err)
	}
	if c := all["claude"]; c.EnvFile != "/run/secrets/claude" || c.Command != nil || c.From != "/c.toml" {
		t.Errorf("claude: %+v", c)
	}
	if c := all["codex"]; !slices.Equal(c.Command, []string{"pass", "show", "a b"}) || c.EnvFile != "" {
		t.Errorf("codex: %+v", c)
	}
}

// A mistake is named with file and key, and no value is repeated: it may be the
// secret itself, put in the wrong place.
func TestBadCredentialsRepeatNoValue(t *testing.T) {
	for _, text := range []string{
		`env_file = "hunter2"`, `command = "hunter2"`, `command = []`, `command = [""]`, `command = ["hunter2", 1]`,
		`key = "hunter2"`, `env_file = "/hunter2"` + "\n" + `command = ["hunter2"]`, `env_file = 2`, `env_file = ""`,
	} {
		_, err := credentialsIn(t, "[credentials.claude]\n"+text)
		var bad *Bad
		if !errors.As(err, &bad) || bad.File != "/c.toml" || bad.Key != "credentials.claude" {
			t.Errorf("%s: %v", text, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the message repeats the value: %v", text, err)
		}
	}
}

func TestEnvLines(t *testing.T) {
	text := "# a comment\n\nA=1\n  export B = 2\nexport C=3 \r\nD=\"x y\"\nE='q\"'\nF=\nA=last\nG=a=b#c\nH=\"\n"
	got, err := ParseEnv([]byte(strings.ReplaceAll(text, "B = 2", "B= 2")))
	want := []string{"A=last", "B=2", "C=3", "D=x y", "E=q\"", "F=", "G=a=b#c", "H=\""}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("ParseEnv = %q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{"hunter2", "1A=hunter2", "A B=hunter2", "=hunter2", "A=hunter2\x00", "HANDSEL_LANE=hunter2", "Ä=hunter2"} {
		_, err := ParseEnv([]byte("OK=1\n" + bad))
		if err == nil || !strings.Contains(err.Error(), "line 2") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v; want line 2 named and nothing repeated", bad, err)
		}
	}
	if _, err := ParseEnv(make([]byte, MaxEnv+1)); err == nil {
		t.Error("a text without end was taken")
	}
}

// Whatever a file holds, the result is an environment: each name once, none of
// ours, no NUL.
func FuzzEnvLines(f *testing.F) {
	f.Add([]byte("A=1\nexport B='2'\n# c\n"))
	f.Add([]byte("=\x00\nHANDSEL_X=1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		env, err := ParseEnv(text)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, pair := range env {
			name, value, ok := strings.Cut(pair, "=")
			if !ok || !isName(name) || seen[name] || strings.HasPrefix(name, "HANDSEL_") || strings.ContainsAny(value, "\x00\n") {
				t.Errorf("%q of %q", pair, text)
			}
			seen[name] = true
		}
	})
}
