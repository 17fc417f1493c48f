package host

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/handsel/handsel"
)

// Options say how a dispatcher works.
type Options struct {
	Driver      []string
	Version     string
	Log         *slog.Logger
	Ready       func()
	Takeover    bool
	ClaimWindow time.Duration
}

var errNone = errors.New("this platform has no dispatcher")

// Running reports that another dispatcher has the home.
type Running struct{ Pid int }

func (e *Running) Error() string { return "another dispatcher is running" }

// Serve refuses: descriptors cannot be handed over here.
func Serve(context.Context, *handsel.Home, Options) error { return errNone }

// Log is the dispatcher's log in its home.
type Log struct{}

// OpenLog refuses.
func OpenLog(*handsel.Home) (*Log, error) { return nil, errNone }

// Write refuses.
func (*Log) Write([]byte) (int, error) { return 0, errNone }

// Close does nothing.
func (*Log) Close() error { return nil }
