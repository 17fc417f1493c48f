package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestQuotaAndAccountsAreRead(t *testing.T) { // P3, P5, C7
	s := newWorld(t).user(`
[quota.claude]
max_park = "2h"
command = ["q", "claude"]
[accounts.claude.work]
env = { CLAUDE_CONFIG_DIR = "/y", OTHER = "1" }
[accounts.claude.plain]
[accounts.mine.x.env]
TOKEN_DIR = "~/t"
[engine.mine]
names = ["mine"]
`).extra("[quota.claude]\nauto_resume = false\nevery = 30\ntimeout = \"2s\"\n[accounts.claude.work.env]\nOTHER = \"2\"\n").load()
	q := s.QuotaOf["claude"]
	if !q.NoResume || q.MaxPark != 2*time.Hour || !slices.Equal(q.Command, []string{"q", "claude"}) || q.Every != 30*time.Second || q.Timeout != 2*time.Second {
		t.Errorf("%+v", q)
	}
	if a := s.AccountsOf["claude"]; len(a) != 2 || !maps.Equal(a["work"].Env, map[string]string{"CLAUDE_CONFIG_DIR": "/y", "OTHER": "2"}) || len(a["plain"].Env) != 0 {
		t.Errorf("%+v", a)
	}
	if dir := s.AccountsOf["mine"]["x"].Env["TOKEN_DIR"]; strings.HasPrefix(dir, "~") || !strings.HasSuffix(dir, "/t") {
		t.Errorf("~ became %q", dir)
	}
	var keys []string
	for _, shown := range s.Show() {
		if strings.HasPrefix(shown.Key, "quota.") || strings.HasPrefix(shown.Key, "accounts.") {
			keys = append(keys, shown.Key)
		}
		if strings.Contains(shown.Value, "/y") {
			t.Errorf("%s repeats what a variable holds", shown.Key)
		}
	}
	if want := "quota.claude.auto_resume quota.claude.max_park quota.claude.command quota.claude.every quota.claude.timeout " +
		"accounts.claude.work.env.CLAUDE_CONFIG_DIR accounts.claude.work.env.OTHER accounts.mine.x.env.TOKEN_DIR"; strings.Join(keys, " ") != want {
		t.Errorf("shown: %v", keys)
	}
	// What one reader does with its settings is not seen by the next.
	w := newWorld(t).user("[accounts.claude.work]\nenv = { A = \"1\" }\n")
	w.load().AccountsOf["claude"]["work"].Env["A"] = "2"
	if got := w.load().AccountsOf["claude"]["work"].Env["A"]; got != "1" {
		t.Errorf("the next reader has %q", got)
	}
}

func TestBadQuotaIsShownWithItsPlace(t *testing.T) { // C7: 78, and a caret
	for _, tt := range []struct{ text, key, why string }{
		{"[quota.claude]\nautoresume = true\n", "quota.claude.autoresume", "unknown key; [quota.claude] has auto_resume, command, every, max_park, timeout"},
		{"[quota.claude]\nauto_resume = 1\n", "quota.claude.auto_resume", "true or false"},
		{"[quota.claude]\nmax_park = 0\n", "quota.claude.max_park", "more than 0"},
		{"[quota.claude]\nevery = \"soon\"\n", "quota.claude.every", "a duration"},
		{"[quota.claude]\ncommand = \"x\"\n", "quota.claude.command", "a list of texts"},
		{"[quota.claude]\ncommand = []\n", "quota.claude.command", "a list of words"},
		{"[quota.claude-code]\nmax_park = 1\n", "quota.claude-code", `this engine is called "claude"`},
		{"[quota]\nclaude = 1\n", "quota.claude", "it is a table"},
		{"[accounts.claude]\nwork = 1\n", "accounts.claude.work", "it is a table"},
		{"[accounts.claude.Work]\nenv = { A = \"1\" }\n", "accounts.claude.Work", "an account's name"},
		{"[accounts.claude.work]\nenv = \"A\"\n", "accounts.claude.work.env", "it is a table"},
		{"[accounts.claude.work]\nenv = { A = 1 }\n", "accounts.claude.work.env.A", "a text"},
		{"[accounts.claude.work]\nenv = { HANDSEL_RUN = \"x\" }\n", "accounts.claude.work.env.HANDSEL_RUN", "ours to set"},
		{"[accounts.claude.work]\nenv = { \"a b\" = \"x\" }\n", "accounts.claude.work.env.a b", "no variable"},
		{"[accounts.claude.work]\nlogin = \"x\"\n", "accounts.claude.work.login", "unknown key"},
	} {
		bad := newWorld(t).user(tt.text).bad()
		if bad.Key != tt.key || !strings.Contains(bad.Why, tt.why) || bad.Line == 0 || bad.Caret == "" {
			t.Errorf("%q: %+v", tt.text, bad)
		}
	}
	for _, text := range []string{"[quota.nobody]\nmax_park = 1\n", "[accounts.nobody.work]\nenv = { A = \"1\" }\n"} {
		w := newWorld(t).user(text)
		if bad := w.bad(); bad.File != w.env.UserFile || !strings.Contains(bad.Why, `there is no engine "nobody"`) {
			t.Errorf("%q: %+v", text, bad)
		}
	}
}
