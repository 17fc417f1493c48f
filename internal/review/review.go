// Package review keeps what was decided about a run: the digest of what was
// judged, the verdicts on it, the checks that were run for them, and its releases
// (P7 to P10).
//
// All of it stands in the run's own directory, beside run.json, one small file
// for each thing that happened: checks.N.json, verdict.N.json, release.N.json
// before a command is let go and released.N.json after it. Each is made whole and
// once, is on the disk before anybody is told, and is never written again: of two
// that decide at once, one wins and the other is told. So it needs no dispatcher,
// and a crash leaves a release that began and has no end, never one that looks
// as if it had not begun.
//
// The package decides nothing. It runs git for a digest, with everything switched
// off by which a repository could make git run something else, and writes nothing
// into the repository: no index, no new object, no configuration. It is no proof
// against the same user, who can edit these files; signatures are (see
// Policy.Verify).
package review

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// Version is the version of the formats written here (C12).
const Version = 1

// Where a run stands in its review (C13).
const (
	None     = "none" // nobody asked for one: it is done when it has ended
	Pending  = "pending"
	Accepted = "accepted"
	Rejected = "rejected"
	Released = "released"
)

// States are all of them.
var States = []string{None, Pending, Accepted, Rejected, Released}

// Policy is what a verdict must satisfy. A verdict names the policy it was given
// under, and counts under no other.
type Policy struct {
	// Checks are the commands that are run in the working directory before a
	// verdict; Require says that all of them must pass for an acceptance.
	Checks  [][]string `json:"checks,omitempty"`
	Require bool       `json:"require_checks,omitempty"`
	// Verify is a command that gets the verdict on stdin and vouches for who gave
	// it; empty is none.
	Verify []string `json:"verify,omitempty"`
}

// Sum names the policy.
func (p Policy) Sum() string {
	if len(p.Checks) == 0 {
		p.Checks, p.Require = nil, false // there is nothing to require
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts and a bool
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// What a verdict and a text may have at most, in bytes and in number.
const (
	MaxEvidence  = 64
	MaxText      = 4096 // of a reference, a note, a signer
	MaxSignature = 64 << 10
)

// Check is one command of the policy and how it ended.
type Check struct {
	Argv     []string    `json:"argv"`
	Run      string      `json:"run"` // the gate it ran in: handsel logs has what it printed
	Passed   bool        `json:"passed"`
	Outcome  string      `json:"outcome"`
	ExitCode *int        `json:"exit_code,omitempty"`
	Signal   int         `json:"signal,omitempty"`
	At       record.Time `json:"at"`
	RanS     float64     `json:"ran_s"`
}

// Checked is checks.N.json: the checks of one policy, run once on one digest.
type Checked struct {
	V       int         `json:"v"`
	N       int         `json:"n"`
	Attempt string      `json:"attempt"`
	Policy  string      `json:"policy"`
	Digest  Digest      `json:"digest"` // before them
	After   string      `json:"after"`  // its value after them
	At      record.Time `json:"at"`
	UID     int         `json:"uid"`
	Passed  bool        `json:"passed"` // all of them
	Checks  []Check     `json:"checks"`
}

// Changed tells whether the checks left something else than they were run on.
func (c *Checked) Changed() bool { return c.After != c.Digest.Value }

// Verdict is verdict.N.json.
type Verdict struct {
	V         int         `json:"v"`
	N         int         `json:"n"`
	Verdict   string      `json:"verdict"` // Accepted or Rejected
	Attempt   string      `json:"attempt"` // or the run
	Lane      string      `json:"lane,omitempty"`
	Fence     uint64      `json:"fence,omitempty"`
	Digest    Digest      `json:"digest"`
	Policy    string      `json:"policy"` // the one it was given under
	At        record.Time `json:"at"`
	UID       int         `json:"uid"`
	By        string      `json:"by"`               // the user's name, for people
	Signer    string      `json:"signer,omitempty"` // as Policy.Verify said
	Author    string      `json:"author,omitempty"` // who asked for the work
	Evidence  []string    `json:"evidence,omitempty"`
	Note      string      `json:"note,omitempty"`
	Signature string      `json:"signature,omitempty"` // on Statement, for Policy.Verify
	Checks    []Check     `json:"checks,omitempty"`
}

// Statement is what a signature is on: everything about the verdict that is known
// before it is given, and that makes it good for nothing else.
func (v *Verdict) Statement() string {
	return "handsel verdict 1\n" +
		"verdict: " + v.Verdict + "\n" +
		"attempt: " + v.Attempt + "\n" +
		"lane: " + strconv.QuoteToASCII(v.Lane) + "\n" +
		"digest: " + v.Digest.Value + "\n" +
		"policy: " + v.Policy + "\n"
}

// Who names who gave the verdict, in words.
func (v *Verdict) Who() string {
	who := v.By
	if who == "" {
		who = "uid " + strconv.Itoa(v.UID)
	}
	if v.Signer != "" {
		who = v.Signer + ", as " + who
	}
	return who
}

// Mark is release.N.json: written before the command starts.
type Mark struct {
	V       int             `json:"v"`
	N       int             `json:"n"`
	Attempt string          `json:"attempt"`
	Lane    string          `json:"lane,omitempty"`
	Fence   uint64          `json:"fence,omitempty"`
	Verdict int             `json:"verdict"` // the number of the one it goes by
	Digest  string          `json:"digest"`
	At      record.Time     `json:"at"`
	UID     int             `json:"uid"`
	By      string          `json:"by"`
	Argv0   string          `json:"argv0"`
	Command string          `json:"command_sha256"`
	Anyway  string          `json:"anyway,omitempty"` // why, in spite of Despite
	Despite []string        `json:"despite,omitempty"`
	Handsel record.Identity `json:"handsel"` // who waits for the command
}

// End is released.N.json: how the command of that mark ended.
type End struct {
	V        int         `json:"v"`
	N        int         `json:"n"`
	At       record.Time `json:"at"`
	Outcome  string      `json:"outcome"` // exited, signaled, not_started
	ExitCode *int        `json:"exit_code,omitempty"`
	Signal   int         `json:"signal,omitempty"`
	Message  string      `json:"message,omitempty"`
}

// Succeeded tells whether the command ended with 0.
func (e *End) Succeeded() bool {
	return e != nil && e.Outcome == record.Exited && e.ExitCode != nil && *e.ExitCode == 0
}

// What became of a release.
const (
	Going   = "going"   // its command runs
	Done    = "done"    // its command ended with 0
	Failed  = "failed"  // it ended otherwise, or could not be started
	Unknown = "unknown" // whoever waited for it is gone, or cannot be looked at: it may have happened
)

// Release is a mark with what became of it.
type Release struct {
	Mark
	End *End `json:"end,omitempty"`
}

// State is what became of the release, by its end or by the kernel's word on who
// waits for it.
func (r *Release) State() string {
	switch {
	case r.End.Succeeded():
		return Done
	case r.End != nil:
		return Failed
	}
	id := r.Handsel
	if proc.Judge(proc.Claim{Pid: id.Pid, Ticks: id.Ticks, Boot: id.BootID, NS: id.PidNS}) == proc.Alive {
		return Going
	}
	// Behind a wall, such as that of a container, it may be gone as well, and would
	// keep everybody for ever.
	return Unknown
}

// History is all that was decided about a run, each in the order of its numbers.
type History struct {
	Asked    bool       `json:"-"` // its record says that it is to be reviewed
	Checks   []*Checked `json:"checks,omitempty"`
	Verdicts []*Verdict `json:"verdicts,omitempty"`
	Releases []*Release `json:"releases,omitempty"`
}

// Last is the verdict that counts; nil when there is none.
func (h *History) Last() *Verdict {
	if len(h.Verdicts) == 0 {
		return nil
	}
	return h.Verdicts[len(h.Verdicts)-1]
}

// LastRelease is the newest release, nil when there is none.
func (h *History) LastRelease() *Release {
	if len(h.Releases) == 0 {
		return nil
	}
	return h.Releases[len(h.Releases)-1]
}

// State is where the run stands (C13). What was released stays so, whatever is
// said of it later.
func (h *History) State() string {
	for _, r := range h.Releases {
		if r.End.Succeeded() {
			return Released
		}
	}
	switch v := h.Last(); {
	case v != nil:
		return v.Verdict
	case h.Asked:
		return Pending
	}
	return None
}

// Results are those of the newest checks of that policy on that digest, nil when
// they have not been run.
func (h *History) Results(policy, digest string) *Checked {
	for i := len(h.Checks) - 1; i >= 0; i-- {
		if c := h.Checks[i]; c.Policy == policy && c.Digest.Value == digest {
			return c
		}
	}
	return nil
}

// Newer tells whether a run got its lane after another: by fence, and where one
// has none (an older version gave direct runs none), by id.
func Newer(a, b *record.Run) bool {
	if a.Fence != 0 && b.Fence != 0 && a.Fence != b.Fence {
		return a.Fence > b.Fence
	}
	return strings.Compare(a.ID, b.ID) > 0
}

// Match tells whether a lane's name fits one of the patterns, in which * stands
// for any bytes and ? for one.
func Match(patterns []string, lane string) bool {
	for _, p := range patterns {
		if lane != "" && fits(p, lane) {
			return true
		}
	}
	return false
}

// fits matches with one place to go back to: that of the last star.
func fits(p, name string) bool {
	i, star, from := 0, -1, 0
	for n := 0; n < len(name); {
		switch {
		case i < len(p) && p[i] == '*':
			star, from = i, n
			i++
		case i < len(p) && (p[i] == '?' || p[i] == name[n]):
			i++
			n++
		case star >= 0:
			from++
			i, n = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(p[i:], "*") == ""
}

// Patience bounds the wait for the command of Policy.Verify.
const Patience = 2 * time.Minute
