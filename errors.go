package handsel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/proc"
)

type (
	// Refused reports that a start was not admitted, or, when a slot could not
	// record the child, that nothing is left of it. Retryable tells whether the
	// same call may be admitted later.
	Refused = lease.Refused

	// Waiting is why a start is not admitted yet.
	Waiting = lease.Waiting

	// Holder is one slot that is taken.
	Holder = lease.Holder

	// Inside reports a start from inside an agent: refused for good (S26).
	Inside = nest.Inside

	// StartError reports that the command could not be started.
	StartError = proc.StartError

	// BadConfig reports a value in a variable or file that does not parse.
	BadConfig = config.Bad

	// BadPath reports a variable that cannot name a place.
	BadPath = home.BadPath

	// Untrusted reports a file or directory that is not ours to trust.
	Untrusted = home.Untrusted

	// UntrustedLock is Untrusted for the files that are locked.
	UntrustedLock = flock.Untrusted

	// NetworkFS reports a home on a network file system.
	NetworkFS = home.NetworkFS

	// Unusable reports a home that cannot be written: full, read-only.
	Unusable = home.Unusable

	// Survivor is a process that a run has left behind.
	Survivor = proc.Survivor
)

// BadOption reports an option whose value has no meaning. Nothing was started.
type BadOption struct {
	Option string // as it is called on the command line
	Value  string
	Why    string
}

func (e *BadOption) Error() string { return fmt.Sprintf("--%s %q: %s", e.Option, e.Value, e.Why) }

// OptionOf is the option that an error is about, in the words of the command line;
// nil where it is about none.
func OptionOf(err error) *BadOption {
	if bad, ok := errors.AsType[*BadOption](err); ok {
		return bad
	}
	if bad, ok := errors.AsType[*BadLane](err); ok {
		return &BadOption{"lane", bad.Name, bad.Why}
	}
	if none, ok := errors.AsType[*NoProfile](err); ok {
		return &BadOption{"profile", none.Name, none.Error()}
	}
	if start, ok := errors.AsType[*StartError](err); ok && start.Kind == proc.NoDir {
		return &BadOption{"chdir", start.Path, start.Detail}
	}
	return nil
}

// Unconfined refuses a light start of a command that nothing confines: light
// buys its room by confinement (E6a).
type Unconfined struct {
	Argv0  string
	Engine string // one that has nothing to confine itself with; empty: another command
}

func (e *Unconfined) Error() string {
	if e.Engine != "" {
		return fmt.Sprintf("--workload light: %s has nothing to confine itself with; run it as heavy, or let the kernel confine it: --confine os (code unconfined)", e.Engine)
	}
	return fmt.Sprintf("--workload light: nothing confines %q; run it as heavy (code unconfined)", e.Argv0)
}

// GatedEngine refuses an agent under a gate: it would run uncounted.
type GatedEngine struct{ Engine string }

func (e *GatedEngine) Error() string {
	return fmt.Sprintf("gate is for commands, and this one is a %s agent, which would not be counted as one: use handsel run --pool POOL", e.Engine)
}

// GateOrder refuses a gate inside a gate that names a pool not later in the
// order than those the outer one holds: two of them could wait for each other.
type GateOrder struct{ Pool, Outer string }

func (e *GateOrder) Error() string {
	return fmt.Sprintf("gate %q inside a gate that holds %q: an inner gate may only name pools later in name order, or two could wait for each other", e.Pool, e.Outer)
}

// Why a command could not be started, as StartError.Kind.
const (
	NotFoundCommand = proc.NotFound
	NotExecutable   = proc.NotExecutable
	WrongFormat     = proc.WrongFormat
	BusyFile        = proc.Busy
	TooBig          = proc.TooBig
	NoDescriptors   = proc.NoDescriptors
)

// Codes of a refusal that callers branch on.
const (
	CodePoolFull     = lease.PoolFull
	CodeLine         = lease.InLine
	CodeOwnAncestors = lease.OwnAncestors
	CodeUnsupported  = lease.Unsupported
)

// NotFound reports that nothing goes by a name.
type NotFound struct{ Name string }

func (e *NotFound) Error() string { return fmt.Sprintf("%q: nothing goes by that name", e.Name) }

// Ambiguous reports a name that means several things.
type Ambiguous struct {
	Name string
	Fits []string
}

func (e *Ambiguous) Error() string {
	return fmt.Sprintf("%q means more than one thing: %s", e.Name, strings.Join(e.Fits, ", "))
}
