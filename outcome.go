package handsel

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/record"
)

// WriteOutcome writes one JSON object to path that says how a run ended, so
// that an agent's own exit status is never taken for a refusal of ours
// (docs/reference/schemas/outcome.schema.json). A regular file is replaced
// whole; a device, a FIFO or a link such as /dev/stderr is written to as it is.
func WriteOutcome(path string, out *Outcome, err error) error {
	text, merr := json.MarshalIndent(describe(out, err), "", "  ")
	if merr != nil {
		return merr
	}
	text = append(text, '\n')
	info, serr := os.Lstat(path)
	if serr != nil || info.Mode().IsRegular() {
		return home.WriteFile(path, text)
	}
	f, oerr := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) // a FIFO nobody reads must not hold us up
	if oerr != nil {
		return oerr
	}
	_, werr := f.Write(text)
	return errors.Join(werr, f.Close())
}

// outcomeJSON is the object of --outcome.
type outcomeJSON struct {
	V         int               `json:"v"`
	Run       string            `json:"run"`
	Outcome   string            `json:"outcome"`
	ExitCode  *int              `json:"exit_code,omitempty"`
	Signal    int               `json:"signal,omitempty"`
	EndedBy   int               `json:"ended_by_signal,omitempty"` // a signal to us that ended the run
	Limit     string            `json:"limit,omitempty"`
	Engine    string            `json:"engine,omitempty"`
	Workload  string            `json:"workload,omitempty"`
	Lane      string            `json:"lane,omitempty"`
	ChildPid  int               `json:"child_pid,omitempty"`
	WaitedS   float64           `json:"waited_s"`
	Result    string            `json:"result,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Message   string            `json:"message,omitempty"`
	Until     record.Time       `json:"until,omitzero"`
	Session   string            `json:"session_id,omitempty"`
	Usage     *Usage            `json:"usage,omitempty"`
	Reason    *Reason           `json:"reason,omitempty"`
	Survivors []record.Survivor `json:"survivors,omitempty"`
}

// Reason is why something waits or was refused (C13).
type Reason = record.Reason

// ReasonHolder is who has what a reason names.
type ReasonHolder = record.Holder

func describe(out *Outcome, err error) outcomeJSON {
	o := outcomeJSON{
		V: 1, Run: out.Run, Outcome: out.Outcome.Outcome, Signal: int(out.Signal), EndedBy: int(out.By), Limit: out.Limit,
		Engine: out.Engine, Workload: out.Workload, Lane: out.Lane, ChildPid: out.Child.Pid, WaitedS: out.Waited.Seconds(), Reason: ReasonOf(err),
		Result: out.Result, Kind: out.Kind, Message: out.Message, Until: at(out.Until), Session: out.Session, Usage: out.Usage,
	}
	if out.Child.Pid != 0 && out.Signal == 0 {
		o.ExitCode = &out.ExitCode
	}
	for _, s := range out.Survivors {
		o.Survivors = append(o.Survivors, record.Survivor{Pid: s.Pid, Comm: s.Comm, Why: s.Why})
	}
	return o
}

// ReasonOf puts an error of a start into the words of C13; nil when there is none.
func ReasonOf(err error) *Reason {
	if err == nil {
		return nil
	}
	if r := reasonFrom(err); r != nil {
		return r
	}
	var refused *Refused
	var inside *Inside
	var notYours *NotYours
	var start *StartError
	var owned *LaneOwned
	switch {
	case errors.As(err, &owned):
		return &Reason{Class: "ownership", Code: owned.Code(), Message: err.Error(), Holders: ownerOf(owned.Seen), Retryable: owned.Retryable()}
	case errors.As(err, &refused):
		return &Reason{
			Class: cmp.Or(refused.Class, classOf(refused.Code)), Code: refused.Code, Message: err.Error(), Until: at(refused.Until),
			Holders: holdersOf(refused.Holders), Retryable: refused.Retryable(),
		}
	case errors.As(err, &notYours):
		return &Reason{Class: "ownership", Code: "inside_agent", Message: err.Error()}
	case errors.As(err, &inside):
		return &Reason{Class: "ownership", Code: inside.Code(), Message: err.Error()}
	case errors.As(err, &start):
		return &Reason{Class: "config", Code: "not_started", Message: err.Error(), Retryable: start.Kind == NoDescriptors}
	}
	return &Reason{Class: otherClass(err), Code: otherCode(err), Message: err.Error(), Retryable: outOfDescriptors(err)}
}

// otherCode names what has no type of its own among refusals.
func otherCode(err error) string {
	switch {
	case outOfDescriptors(err):
		return "descriptors"
	case errors.As(err, new(*Untrusted)), errors.As(err, new(*UntrustedLock)):
		return "untrusted"
	case errors.As(err, new(*NetworkFS)):
		return "network_fs"
	case errors.As(err, new(*Unconfined)):
		return "unconfined"
	case errors.As(err, new(*Unconfinable)), errors.As(err, new(*CannotConfine)), errors.As(err, new(*Boundless)):
		return "cannot_confine"
	case errors.As(err, new(*Unusable)):
		return "home_unusable"
	case errors.As(err, new(*LaneMismatch)):
		return "lane_mismatch"
	case errors.As(err, new(*NewerLane)):
		return "newer"
	case otherClass(err) == "config":
		return "config"
	}
	return "failed"
}

// otherClass tells what somebody has to mend from what went wrong here.
func otherClass(err error) string {
	if outOfDescriptors(err) || errors.As(err, new(*Unusable)) {
		return "resource"
	}
	for _, mend := range []any{
		new(*BadConfig), new(*BadOption), new(*BadPath), new(*Unconfined), new(*Unconfinable), new(*CannotConfine), new(*Boundless), new(*NetworkFS), new(*Untrusted), new(*UntrustedLock),
		new(*BadLane), new(*LaneMismatch), new(*NewerLane), new(*NotFound), new(*Ambiguous), new(*GateOrder), new(*GatedEngine), new(*BadEngine),
		new(*Lifted), new(*TooLong), new(*BadProfile), new(*NoProfile), new(*UntrustedProject), new(*BadSettings), new(*BadShim), new(*NoShims), new(*ShimLoop),
	} {
		if errors.As(err, mend) {
			return "config"
		}
	}
	return "resource"
}

// outOfDescriptors tells whether no descriptor could be had: the same later
// may work.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

func classOf(code string) string {
	switch code {
	case "hold", "drain", "park", "pause":
		return "hold"
	case CodeParked, CodeLogin, CodeThrottle, CodeMinGap, CodeCommandWait, CodeCommandDeny:
		return classQuota
	case CodeUnsupported:
		return "config"
	case CodeLaneOwned:
		return "ownership"
	}
	return "resource"
}

// at is a moment as records have it, none for the zero time.
func at(t time.Time) record.Time {
	if t.IsZero() {
		return record.Time{}
	}
	return record.At(t)
}
