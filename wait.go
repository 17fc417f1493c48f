package handsel

import (
	"context"
	"errors"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/runs"
)

// ErrOwnRun reports a wait for the run that this process is part of.
var ErrOwnRun = runs.ErrOwnRun

// WaitReason puts the error of WaitRuns into the words of C13; nil when there
// is none.
func WaitReason(err error) *Reason {
	var refused *lease.Refused
	switch {
	case errors.As(err, &refused):
		return ReasonOf(refused)
	case errors.Is(err, ErrOwnRun):
		return &Reason{Class: "resource", Code: CodeOwnAncestors, Message: err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return &Reason{Class: "time", Code: "timeout", Message: "not all of the runs ended in time", Retryable: true}
	}
	return ReasonOf(err)
}

// EngineName reads an engine's name as people spell it, the configuration's own
// included; *BadOption for one that is not known.
func (h *Home) EngineName(declared string) (string, error) {
	s, _ := config.LoadLenient(h.configEnv()) // a looking verb goes on with what can be read
	return (&inForce{Settings: s}).engineOf(declared, nil)
}
