package handsel

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/run"
)

// credentialsPatience bounds a credentials command (L12). Tests shorten it.
var credentialsPatience = 15 * time.Second

// NoCredentials reports that an engine's secrets could not be had, so that its
// agent was not started. It repeats nothing of them.
type NoCredentials struct {
	Engine string
	Err    error
}

func (e *NoCredentials) Error() string {
	return fmt.Sprintf("the credentials of %s: %v", e.Engine, e.Err)
}

func (e *NoCredentials) Unwrap() error { return e.Err }

// Reason is why nothing was started, in the words of C13.
func (e *NoCredentials) Reason() *Reason {
	return &Reason{Class: "config", Code: "credentials", Message: e.Error()}
}

// secrets are the variables that [credentials] gives an engine's agent. They go
// from here into the agent's environment and nowhere else.
func (f *inForce) secrets(ctx context.Context, engine string, signals <-chan os.Signal) ([]string, *run.Outcome, error) {
	c, found, err := f.credentialsOf(engine)
	if err != nil || !found {
		return nil, nil, err
	}
	var text []byte
	var ended *run.Outcome
	if c.EnvFile != "" {
		text, err = readSecrets(c.EnvFile)
	} else {
		text, ended, err = commandSecrets(ctx, c.Command, signals)
	}
	var env []string
	if err == nil {
		env, err = config.ParseEnv(text)
	}
	if err != nil {
		return nil, ended, &NoCredentials{Engine: engine, Err: err}
	}
	return env, nil, nil
}

// credentialsOf finds an engine's table, whichever of its names the file uses.
func (f *inForce) credentialsOf(engine string) (c config.Credentials, found bool, err error) {
	all, err := f.Credentials()
	if err != nil || engine == "" {
		return c, false, err
	}
	if c, found = all[engine]; found {
		return c, true, nil
	}
	for name, c := range all {
		if canonical, err := f.engineOf(name, nil); err == nil && canonical == engine {
			return c, true, nil
		}
	}
	return c, false, nil
}

// readSecrets reads a file that must be ours or root's, and nobody else's to
// write or to replace.
func readSecrets(path string) ([]byte, error) {
	if err := home.TrustParent(path); err != nil {
		return nil, err
	}
	return home.ReadFile(path, config.MaxEnv)
}

// commandSecrets runs a command and returns what it wrote to its stdout. It has
// our own environment, without what is only for us; what it writes to stderr
// goes nowhere, as it may be a secret too.
func commandSecrets(ctx context.Context, argv []string, signals <-chan os.Signal) ([]byte, *run.Outcome, error) {
	said, err := run.Command{
		Argv: argv, Dir: "/", Env: plainEnv(os.Environ()), Limit: credentialsPatience, Grace: time.Second, Signals: signals,
		Daemons: true, // a key agent that it starts is meant to stay
		Out:     config.MaxEnv,
	}.Run(ctx)
	if err == nil {
		err = said.Failure()
	}
	if err == nil && said.More {
		err = fmt.Errorf("%s wrote more than %d bytes", strconv.QuoteToASCII(argv[0]), config.MaxEnv)
	}
	if err != nil {
		return nil, said.Outcome, err
	}
	return said.Stdout, said.Outcome, nil
}

// plainEnv is env without our own variables.
func plainEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, "HANDSEL_") })
}
