package attempt

import (
	"slices"
	"strings"
)

// MaxValue is the length from which the value of a variable is not stored, in
// bytes (L11).
const MaxValue = 4096

// Nameless stands among the dropped names for an entry without a name: what it
// holds may be a value, so it is not repeated.
const Nameless = "(an entry without a name)"

// plainNames are the names that are stored (docs/reference/env.md, which a test
// compares). Names that end in _ or * there are prefixes, below.
var plainNames = []string{"LANG", "TERM", "TZ", "PATH", "HOME", "USER", "SHELL"}

// plainPrefixes begin names that are stored.
var plainPrefixes = []string{"LC_", capPrefix}

// engineNames are settings of the engines that hold no secret: where their
// files are, which model, which endpoint, which of their own services. What
// lifts a guard of an engine is not among them.
var engineNames = []string{
	// all of them: whom to trust on the way to their services
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
	// claude
	"CLAUDE_CONFIG_DIR", "ANTHROPIC_MODEL", "ANTHROPIC_BASE_URL",
	"ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
	"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION", "AWS_REGION",
	"API_TIMEOUT_MS", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER",
	// codex
	"CODEX_HOME", "CODEX_SQLITE_HOME",
	// gemini
	"GEMINI_CLI_HOME", "GEMINI_MODEL", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI",
	"GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION",
	// pi
	"PI_CODING_AGENT_DIR", "PI_OFFLINE", "PI_SKIP_VERSION_CHECK", "PI_TELEMETRY",
}

// secretShapes make a name look like a secret's, anywhere in it and in any case.
var secretShapes = []string{"KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE", "SESSION"}

// ours are the variables that we set for an agent or that mean one process
// only: a stored one would speak of the launcher, so no prefix allows them (C9).
var ours = []string{
	"HANDSEL_AGENT_DEPTH", "HANDSEL_RUN", "HANDSEL_LANE", "HANDSEL_ATTEMPT", "HANDSEL_FENCE",
	"HANDSEL_OUTCOME", "HANDSEL_SHIM", "HANDSEL_TOKEN_FD",
}

// Keep chooses what of an environment is stored (L11): names on the list or with
// a prefix of allow, not shaped like a secret's, with a value shorter than
// MaxValue. kept are whole entries in their order, bytes unchanged; dropped are
// the names of the others, sorted, each once.
//
// Of a name that is there twice the last entry counts, as it does for programs
// that Go starts, and it alone: when that one is dropped, the name is. An empty
// prefix allows nothing.
//
// This makes less of an environment be stored, by name and length. It does not
// detect secrets: one in the value of an innocent name is kept.
func Keep(env []string, allow []string) (kept, dropped []string) {
	last := make(map[string]int, len(env))
	for i, entry := range env {
		last[nameOf(entry)] = i
	}
	for i, entry := range env {
		name := nameOf(entry)
		switch {
		case last[name] != i:
		case name == "":
			dropped = append(dropped, Nameless)
		case allowed(name, allow) && len(entry)-len(name)-1 < MaxValue:
			kept = append(kept, entry)
		default:
			dropped = append(dropped, name)
		}
	}
	slices.Sort(dropped)
	return kept, dropped
}

// nameOf is what stands before the first =, empty for an entry without one.
func nameOf(entry string) string {
	name, _, ok := strings.Cut(entry, "=")
	if !ok {
		return ""
	}
	return name
}

func allowed(name string, allow []string) bool {
	if secretShaped(name) || slices.Contains(ours, name) {
		return false
	}
	begins := func(prefix string) bool { return prefix != "" && strings.HasPrefix(name, prefix) }
	return slices.Contains(plainNames, name) || slices.Contains(engineNames, name) ||
		slices.ContainsFunc(plainPrefixes, begins) || slices.ContainsFunc(allow, begins)
}

func secretShaped(name string) bool {
	upper := strings.ToUpper(name)
	return slices.ContainsFunc(secretShapes, func(shape string) bool { return strings.Contains(upper, shape) })
}
