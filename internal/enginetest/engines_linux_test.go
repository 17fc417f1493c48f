//go:build engines

package enginetest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// engine is how one CLI is made to run headless against the stub.
type engine struct {
	name  string // as in cannot.txt and the table
	bin   string // in node_modules/.bin
	pool  string // its own pool under handsel
	turn  []string
	free  []string // what handsel agent must add so that the turn's tools are not asked for
	stdin bool     // the prompt comes on stdin, not as an argument
	env   func(url string) []string
	files func(url string) map[string]string // below HOME
}

// engines are the four CLIs, codex twice: with its own sandbox, whose shell
// commands live in a process namespace that dies with them, and without.
var engines = []engine{
	{
		name: "claude", bin: "claude", pool: "claude", stdin: true,
		turn: []string{"-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"},
		free: []string{"--dangerously-skip-permissions"},
		env: func(url string) []string {
			return []string{
				"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=x",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1",
				"IS_SANDBOX=1", // else it refuses root with permissions bypassed
			}
		},
	},
	{
		name: "codex", bin: "codex", pool: "codex", stdin: true,
		turn:  []string{"exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-"},
		free:  []string{"--dangerously-bypass-approvals-and-sandbox"},
		env:   codexEnv,
		files: codexFiles,
	},
	{
		name: "codex-sandboxed", bin: "codex", pool: "codex", stdin: true,
		turn:  []string{"exec", "--json", "--skip-git-repo-check", "--sandbox", "workspace-write", "-"},
		free:  []string{"-c", `sandbox_mode="workspace-write"`}, // which resume takes, too
		env:   codexEnv,
		files: codexFiles,
	},
	{
		name: "gemini", bin: "gemini", pool: "gemini",
		turn: []string{"--output-format", "stream-json", "--approval-mode", "yolo", "-m", "gemini-2.5-pro", "-p", prompt},
		free: []string{"--approval-mode", "yolo", "-m", "gemini-2.5-pro"},
		env: func(url string) []string {
			return []string{
				"GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=" + url, "GEMINI_CLI_TRUST_WORKSPACE=true",
				"GEMINI_TELEMETRY_ENABLED=false",
			}
		},
		files: func(string) map[string]string {
			return map[string]string{".gemini/settings.json": toJSON(map[string]any{
				"security": map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
				"general":  map[string]any{"enableAutoUpdate": false, "disableUpdateNag": true},
				"privacy":  map[string]any{"usageStatisticsEnabled": false},
			})}
		},
	},
	{
		name: "pi", bin: "pi", pool: "pi",
		turn: []string{"-p", "--mode", "json", "--provider", "stub", "--model", "stub-model", prompt},
		free: []string{"--provider", "stub", "--model", "stub-model"},
		env: func(string) []string {
			return []string{"PI_OFFLINE=1", "PI_SKIP_VERSION_CHECK=1"}
		},
		files: func(url string) map[string]string {
			return map[string]string{".pi/agent/models.json": toJSON(map[string]any{
				"providers": map[string]any{"stub": map[string]any{
					"baseUrl": url + "/v1", "api": "openai-completions", "apiKey": "x",
					"models": []any{map[string]any{"id": "stub-model"}},
				}},
			})}
		},
	},
}

func codexEnv(string) []string { return []string{"STUB_KEY=x"} }

func codexFiles(url string) map[string]string {
	return map[string]string{".codex/config.toml": `model = "stub-model"
model_provider = "stub"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.stub]
name = "stub"
base_url = "` + url + `/v1"
env_key = "STUB_KEY"
wire_api = "responses"
`}
}

// path is the CLI as npm installed it.
func (e engine) path(t *testing.T) string {
	t.Helper()
	root, err := root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "testdata", "engines", "node_modules", ".bin", e.bin)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not installed: run `make engines` (%v)", e.bin, err)
	}
	return path
}

func toJSON(value any) string {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic(err)
	}
	return string(body)
}
