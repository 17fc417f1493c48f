//go:build engines

package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/modelstub"
)

// TestLightGeminiIsConfined is E5 and C138 on the real gemini: what light takes
// away is not offered to the model, whatever the user's settings and rules allow,
// and without light it is, so that each claim can fail. What it leaves is shown as
// well: a shell that the user's rules allow writes where it likes.
func TestLightGeminiIsConfined(t *testing.T) {
	at := slices.IndexFunc(engines, func(e engine) bool { return e.name == "gemini" })
	for _, class := range []string{"heavy", "light"} {
		t.Run(class, func(t *testing.T) { geminiTools(t, engines[at], class == "light") })
	}
	t.Run("lifted", func(t *testing.T) { geminiLifted(t, engines[at]) })
}

// allowAll is a user's rule that allows everything as strongly as a user can.
const allowAll = `[[rule]]
toolName = "*"
decision = "allow"
priority = 999
allowRedirection = true
`

func geminiTools(t *testing.T, e engine, light bool) {
	c := newCell(t, e, nil)
	above := filepath.Dir(c.work)
	served := filepath.Join(above, "served")
	c.put("server.sh", "#!/bin/sh\ntouch "+served+"\nexec cat\n", 0o700)
	c.put(".gemini/policies/all.toml", allowAll, 0o600)
	c.put(".gemini/settings.json", toJSON(map[string]any{
		"security":   map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
		"general":    map[string]any{"enableAutoUpdate": false, "disableUpdateNag": true, "defaultApprovalMode": "auto_edit"},
		"privacy":    map[string]any{"usageStatisticsEnabled": false},
		"mcpServers": map[string]any{"mine": map[string]any{"command": filepath.Join(c.home, "server.sh"), "trust": true, "timeout": 5000}},
	}), 0o600)
	c.stub.Play(
		modelstub.Step{Call: &modelstub.Call{Name: "write_file", Args: map[string]any{"file_path": filepath.Join(c.work, "written"), "content": "x"}}},
		modelstub.Step{Shell: "echo x >inside; echo x >../outside"},
		modelstub.Step{Text: "Done."},
	)
	class := "heavy"
	if light {
		class = "light"
	}
	end := c.ask("--workload", class, "--model", "gemini-2.5-pro", prompt)
	if end.code != 0 || strings.TrimSpace(end.stdout) != "Done." {
		t.Fatalf("status %d%s", end.code, c.describe(end))
	}
	for _, one := range c.stub.Log() {
		if len(one.Tools) == 0 {
			continue
		}
		for _, tool := range []string{"write_file", "replace"} {
			if slices.Contains(one.Tools, tool) == light {
				t.Errorf("the model was offered %v", one.Tools)
			}
		}
		if !slices.Contains(one.Tools, "run_shell_command") {
			t.Errorf("the model was offered no shell: %v", one.Tools)
		}
	}
	for path, want := range map[string]bool{
		filepath.Join(c.work, "written"): !light, served: !light, filepath.Join(c.work, "inside"): true, filepath.Join(above, "outside"): true,
	} {
		if exists(path) != want {
			t.Errorf("%s is there: %v, want %v%s", filepath.Base(path), !want, want, c.describe(end))
		}
	}
	c.expectFree()
}

// geminiLifted: what would lift the class is refused before anything starts,
// naming the setting, and what only looks like it is not.
func geminiLifted(t *testing.T, e engine) {
	for _, one := range []struct {
		args    []string
		setting string
	}{
		{[]string{"-p", "x", "--yolo"}, "--yolo"}, {[]string{"-dy", "-p", "x"}, "-dy"}, {[]string{"-p", "x", "--approvalMode=yolo"}, "--approvalMode=yolo"},
		{[]string{"--include-directories", "/", "-p", "x"}, "--include-directories /"}, {[]string{"--allowed-tools", "replace", "-p", "x"}, "--allowed-tools replace"},
	} {
		c := newCell(t, e, nil, modelstub.Step{Text: "Done."})
		end := c.run([]string{os.Getenv("HANDSEL_BIN"), "run", "--workload", "light", "--"}, one.args...)
		if end.code != 78 || !strings.Contains(end.stderr, fmt.Sprintf("does not go with %s: ", one.setting)) || len(c.stub.Log()) > 0 {
			t.Errorf("%q: status %d%s", one.args, end.code, c.describe(end))
		}
		c.expectFree()
	}
	c := newCell(t, e, nil, modelstub.Step{Text: "Done."})
	end := c.run([]string{os.Getenv("HANDSEL_BIN"), "run", "--workload", "light", "--"}, "-m", "gemini-2.5-pro", "-p", "is --yolo fine?", "--approval-mode", "plan")
	if end.code != 0 || !strings.Contains(end.stdout, "Done.") {
		t.Errorf("a light line typed by hand: status %d%s", end.code, c.describe(end))
	}
	c.expectFree()
}
