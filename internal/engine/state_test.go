package engine

import "testing"

// TestStateIsWhereTheEngineLooks: E6, per engine and environment.
func TestStateIsWhereTheEngineLooks(t *testing.T) {
	for _, tt := range []struct{ engine, set, want string }{
		{"claude", "", "/h/.claude"},
		{"claude", "/else/where", "/else/where"},
		{"claude_code", "", "/h/.claude"},
		{"codex", "", "/h/.codex"},
		{"gemini", "", "/h/.gemini"},
		{"gemini", "/else", "/else/.gemini"},
		{"agy", "", "/h/.gemini"},
		{"pi", "", "/h/.pi/agent"},
		{"pi", "~/x", "/h/x"},
	} {
		s, ok := StateOf(tt.engine)
		got := s.Dir(func(name string) string {
			if name == s.Env {
				return tt.set
			}
			return ""
		}, "/h")
		if !ok || got != tt.want {
			t.Errorf("%s with %s=%q: %q, want %q", tt.engine, s.Env, tt.set, got, tt.want)
		}
	}
	if _, ok := StateOf("mine"); ok {
		t.Error("the state of an engine nobody knows")
	}
	for _, name := range Names() {
		if s, ok := StateOf(name); !ok || s.Env == "" || len(s.Logins) == 0 {
			t.Errorf("%s has no state: %+v", name, s)
		}
	}
}

// TestOnlyTheChoiceOfLoginIsTaken: no hook or other setting comes along.
func TestOnlyTheChoiceOfLoginIsTaken(t *testing.T) {
	s, _ := StateOf("gemini")
	for _, tt := range []struct{ name, settings, want string }{
		{"one", `{"hooks":{"x":1},"security":{"auth":{"selectedType":"oauth-personal","other":1},"y":2}}`, `{"security":{"auth":{"selectedType":"oauth-personal"}}}` + "\n"},
		{"none", `{"security":{"auth":{}}}`, ""},
		{"another shape", `{"security":[1]}`, ""},
		{"not JSON", `{`, ""},
		{"empty", ``, ""},
	} {
		if got := string(s.Chosen([]byte(tt.settings))); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if claude, _ := StateOf("claude"); claude.Chosen([]byte(`{"a":1}`)) != nil {
		t.Error("claude has no choice to keep")
	}
}
