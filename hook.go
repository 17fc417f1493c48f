package handsel

import (
	"fmt"
	"io"
	"os"

	"github.com/handsel/handsel/internal/hook"
)

type (
	// HookClient is an agent CLI that a hook can be put into.
	HookClient = hook.Client

	// HookPlace is a settings file of such a client.
	HookPlace = hook.Place

	// HookChange is what would be done to a settings file. Apply does it.
	HookChange = hook.Change

	// HookSeen is a settings file as it is.
	HookSeen = hook.Seen

	// BadSettings reports a client's settings file that was left alone.
	BadSettings = hook.BadSettings
)

// ErrSettingsChanged reports a settings file that somebody has changed since the
// change of it was planned.
var ErrSettingsChanged = hook.ErrChanged

// HookClients lists the clients a hook can be put into.
func HookClients() []HookClient { return hook.Clients() }

// HookClientOf is the client of a name.
func HookClientOf(name string) (HookClient, bool) { return hook.ClientOf(name) }

// HookPlaceOf is the settings file of a client: the user's, or with a directory that
// of the project in it.
func HookPlaceOf(c HookClient, project string) (HookPlace, error) {
	return hook.PlaceOf(c, project, os.Getenv)
}

// InstallHook plans to put the hook, which calls exe, into a settings file (W8). A
// nil change is one that is not needed.
func (h *Home) InstallHook(p HookPlace, exe string) (*HookChange, error) {
	return hook.Install(h.dir, p, exe)
}

// UninstallHook plans to take it out. Where the file is as InstallHook left it, it
// becomes what it was, byte for byte. A nil change: there is no hook of ours.
func (h *Home) UninstallHook(p HookPlace) (*HookChange, error) { return hook.Uninstall(h.dir, p) }

// LookHook reads a settings file and changes nothing.
func LookHook(p HookPlace, exe string) HookSeen { return hook.Look(p, exe) }

// AnswerHook reads the tool call that a client hands to its hook, and returns what the
// client is to be told: nil where the call goes on as it is. exe is our executable.
// Where it cannot tell, that is an error, and the call should go on as it is as well.
func (h *Home) AnswerHook(c HookClient, call io.Reader, exe string) ([]byte, error) {
	in, err := hook.ReadCall(c, call)
	if err != nil || in.Line == "" {
		return nil, err
	}
	set, err := h.settings()
	if err != nil {
		return nil, fmt.Errorf("the configuration is not usable, so no command is gated: %w", err)
	}
	agent := func(argv []string) bool {
		name, err := set.engineOf("", argv)
		return name != "" || err != nil
	}
	line, ok := hook.Gated(in.Line, exe, set.GateRules, agent)
	if !ok {
		return nil, nil
	}
	return in.Answer(line)
}

// GateRules tells whether the configuration has rules for a hook to go by.
func (h *Home) GateRules() bool {
	set, _ := h.lenient()
	return len(set.GateRules) > 0
}

// MCPClients lists the clients that can be told of our MCP server by a command of
// their own.
func MCPClients() []string { return hook.Registers() }

// MCPRegistration is that command, or the one that takes it back; nil for a client
// that has none. exe is our executable.
func MCPRegistration(client, exe string, remove bool) []string {
	return hook.Registration(client, exe, remove)
}

// ShellLine writes a command as a person would type it.
func ShellLine(argv []string) string { return hook.Line(argv) }
