package cli

import (
	"context"
	"errors"
	"syscall"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/host"
	"github.com/handsel/handsel/internal/web"
)

// The exit statuses of our own; an agent's passes through (docs/reference/exit-statuses.md).
const (
	statusOK          = 0
	statusFinal       = 1   // a final refusal; doctor found something; wait saw a failure
	statusUsage       = 2   // the command line has the wrong shape
	statusNotFound    = 3   // X not found
	statusUnavailable = 69  // EX_UNAVAILABLE: the dispatcher is needed and does not answer
	statusRetry       = 75  // EX_TEMPFAIL: the remedy is to run the same command again
	statusUntrusted   = 77  // EX_NOPERM: the place is not ours to trust
	statusConfig      = 78  // EX_CONFIG: nothing started, and nothing will until somebody changes something
	statusTimeout     = 124 // as timeout(1)
	statusOurs        = 125 // our own failure, as env(1)
	statusNotRun      = 126 // a client's command cannot be executed
	statusNoCommand   = 127 // a client's command is not found
)

// usageError reports a command line of the wrong shape.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// statusError carries a status whose reason was already printed.
type statusError int

func (e statusError) Error() string { return "" }

// exitStatus is the one place where an error becomes a number.
func exitStatus(err error) int {
	var (
		status    statusError
		refused   *handsel.Refused
		owned     *handsel.LaneOwned
		start     *handsel.StartError
		badConfig *handsel.BadConfig
	)
	if status, ok := actStatus(err); ok {
		return status
	}
	if status, ok := enqueueStatus(err); ok {
		return status
	}
	if status, ok := claimStatus(err); ok {
		return status
	}
	if status, ok := reviewStatus(err); ok {
		return status
	}
	switch {
	case err == nil:
		return statusOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, new(*usageError)), errors.As(err, new(*handsel.GateOrder)), errors.As(err, new(*handsel.GatedEngine)), errors.As(err, new(*handsel.Ambiguous)):
		return statusUsage
	case errors.As(err, new(*handsel.NotFound)):
		return statusNotFound
	case errors.As(err, new(*handsel.Inside)), errors.As(err, new(*handsel.ForeignFile)):
		return statusFinal
	case errors.As(err, &owned):
		if !owned.Retryable() {
			return statusFinal
		}
		return statusRetry
	case errors.As(err, &refused):
		if refused.Code == handsel.CodeUnsupported {
			return statusConfig
		}
		if !refused.Retryable() {
			return statusFinal
		}
		return statusRetry
	case errors.As(err, &badConfig), errors.As(err, new(*handsel.BadOption)), errors.As(err, new(*handsel.BadPath)),
		errors.As(err, new(*handsel.Unconfined)), errors.As(err, new(*handsel.NetworkFS)),
		errors.As(err, new(*handsel.BadLane)), errors.As(err, new(*handsel.LaneMismatch)), errors.As(err, new(*handsel.NewerLane)),
		errors.As(err, new(*handsel.Unconfinable)), errors.As(err, new(*handsel.CannotConfine)), errors.As(err, new(*handsel.Boundless)),
		errors.As(err, new(*handsel.Lifted)), errors.As(err, new(*handsel.TooLong)), errors.As(err, new(*handsel.BadProfile)),
		errors.As(err, new(*handsel.NoProfile)), errors.As(err, new(*handsel.UntrustedProject)), errors.As(err, new(*handsel.BadEngine)),
		errors.As(err, new(*handsel.ShimLoop)), errors.As(err, new(*handsel.NoShims)), errors.As(err, new(*handsel.BadShim)),
		errors.As(err, new(*handsel.BadSettings)):
		return statusConfig
	case errors.As(err, new(*handsel.Untrusted)), errors.As(err, new(*handsel.UntrustedLock)):
		return statusUntrusted
	case errors.As(err, &start):
		return startStatus(start)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.As(err, new(*host.Running)),
		errors.Is(err, handsel.ErrSettingsChanged), errors.As(err, new(*web.Taken)):
		return statusRetry
	case errors.Is(err, context.DeadlineExceeded):
		return statusTimeout
	}
	return statusOurs
}

// startStatus is 127 or 126 as env(1) has them, and 125 for what is not the
// command's fault.
func startStatus(e *handsel.StartError) int {
	switch e.Kind {
	case handsel.NotFoundCommand:
		return 127
	case handsel.NotExecutable, handsel.WrongFormat, handsel.BusyFile, handsel.TooBig:
		return 126
	case handsel.NoDescriptors:
		return statusRetry
	}
	return statusOurs
}
