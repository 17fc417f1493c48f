package attempt

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/handsel/handsel/internal/home"
)

// What a row may hold at most, in bytes and in number. The launcher refuses
// what is beyond them before it takes a lane.
const (
	MaxPriority = 1000 // either way (C5)
	MaxText     = 4096 // of a path, an author, a last failure
	MaxLabels   = 64
	MaxLabel    = 1024 // of a label's name and of its value
	MaxPools    = 64
	MaxCaps     = 256
	MaxAfter    = 256
	MaxDriver   = 64 // words of a driver's command, each of MaxText
	MaxRetries  = 1000
	MaxArgv0    = 255
	MaxReasons  = 64 // different ones that a row waited for
	maxName     = 63 // of a pool, an engine, a class, a profile (C8)
	maxCount    = 1 << 40
)

// Malformed reports a row that does not have the shape of one. The field is named
// as in JSON; what it holds is not repeated.
type Malformed struct {
	Field string
	Why   string
}

func (e *Malformed) Error() string { return "row: " + e.Field + ": " + e.Why }

// bad is the trouble with one field, nil when there is none.
func bad(field, why string) error {
	if why == "" {
		return nil
	}
	return &Malformed{field, why}
}

// Check tells whether the row has the shape of one: it may have come from
// anybody. The error is a *Malformed.
func (r *Row) Check() error {
	if r.V != Version {
		return bad("v", fmt.Sprintf("version %d, and this one reads version %d", r.V, Version))
	}
	for _, check := range []func(*Row) error{(*Row).checkIdentity, (*Row).checkPlace, (*Row).checkWords, (*Row).checkConditions, (*Row).checkProgress} {
		if err := check(r); err != nil {
			return err
		}
	}
	return r.Placement.check()
}

func (r *Row) checkIdentity() error {
	if err := home.ValidLane(r.Lane); err != nil {
		return bad("lane", whyOf(err))
	}
	if _, ok := dateOf(r.ID); !ok {
		return bad("id", "not a UUIDv7")
	}
	if _, ok := dateOf(r.RetryOf); !ok && r.RetryOf != "" {
		return bad("retry_of", "not a UUIDv7")
	}
	if r.RetryVerdict < 0 || r.RetryVerdict > maxCount || r.RetryVerdict > 0 && r.RetryOf == "" {
		return bad("retry_verdict", "not a verdict's number")
	}
	return nil
}

// whyOf is a lane's trouble without its name, which the sender chose.
func whyOf(err error) string {
	if lane, ok := errors.AsType[*home.BadLane](err); ok {
		return lane.Why
	}
	return err.Error()
}

func (r *Row) checkPlace() error {
	switch {
	case r.QueueStart.IsZero() || !r.QueueStart.writable():
		return bad("queue_start", "missing")
	case r.BootStartNS < 0:
		return bad("boot_start_ns", "negative")
	case outside(r.EpochMS):
		return bad("epoch_ms", "not a time")
	case r.Priority < -MaxPriority || r.Priority > MaxPriority:
		return bad("priority", fmt.Sprintf("not from %d to %d", -MaxPriority, MaxPriority))
	case r.State != Queued && r.State != Starting:
		return bad("state", `neither "queued" nor "starting"`)
	case !r.StateSince.writable():
		return bad("state_since", "not a time")
	}
	return bad("boot_id", text(r.BootID, maxName))
}

// outside tells a number of milliseconds that no year of four digits has, so
// that keys made of it do not overflow.
func outside(ms int64) bool { return ms < -1<<47 || ms > 1<<48 }

func (r *Row) checkWords() error {
	if err := bad("author", text(r.Author, MaxText)); err != nil {
		return err
	}
	if len(r.Labels) > MaxLabels {
		return bad("labels", tooMany(len(r.Labels), MaxLabels))
	}
	for name, value := range r.Labels {
		if name == "" {
			return bad("labels", "one has no name")
		}
		if why := cmp.Or(text(name, MaxLabel), text(value, MaxLabel)); why != "" {
			return bad("labels", why)
		}
	}
	if err := bad("argv0", text(r.Argv0, MaxArgv0)); err != nil {
		return err
	}
	switch {
	case r.Argc < 1 || r.Argc > maxCount:
		return bad("argc", "a command has at least one word")
	case len(r.Command) != 64 || strings.Trim(r.Command, "0123456789abcdef") != "":
		return bad("command_sha256", "not 64 hex digits")
	}
	return bad("last_failure", text(r.LastFailure, MaxText))
}

func (r *Row) checkConditions() error {
	if !r.NotBefore.writable() {
		return bad("not_before", "not a time")
	}
	if len(r.After) > MaxAfter {
		return bad("after", tooMany(len(r.After), MaxAfter))
	}
	for _, a := range r.After {
		if why := a.trouble(); why != "" {
			return bad("after", why)
		}
	}
	if r.RetryLost < 0 || r.RetryLost > MaxRetries {
		return bad("retry_lost", fmt.Sprintf("not from 0 to %d", MaxRetries))
	}
	if len(r.Driver) > MaxDriver {
		return bad("driver", tooMany(len(r.Driver), MaxDriver))
	}
	for i, word := range r.Driver {
		if why := text(word, MaxText); why != "" {
			return bad("driver", why)
		}
		if i == 0 && word == "" {
			return bad("driver", "it names no program")
		}
	}
	return nil
}

func (a After) trouble() string {
	switch {
	case (a.Lane == "") == (a.Attempt == ""):
		return "it names either a lane or an attempt"
	case a.Lane != "":
		if err := home.ValidLane(a.Lane); err != nil {
			return whyOf(err)
		}
	default:
		if _, ok := dateOf(a.Attempt); !ok {
			return "the attempt is not a UUIDv7"
		}
	}
	return ""
}

func (r *Row) checkProgress() error {
	switch {
	case r.Starts < 0 || r.Starts > maxCount:
		return bad("starts", "not a count")
	case r.Unclaimed < 0 || r.Unclaimed > r.Starts:
		return bad("unclaimed", "not a count of the starts")
	case !r.AdmittedAt.writable():
		return bad("admitted_at", "not a time")
	case len(r.WaitedFor) > MaxReasons:
		return bad("waited_for", tooMany(len(r.WaitedFor), MaxReasons))
	}
	for why, s := range r.WaitedFor {
		if why == "" || text(why, maxName) != "" || !(s >= 0) || s > maxCount {
			return bad("waited_for", "not seconds by the code of a reason")
		}
	}
	return nil
}

func (p *Placement) check() error {
	if why := text(p.Cwd, MaxText); why != "" {
		return bad("placement.cwd", why)
	}
	if !filepath.IsAbs(p.Cwd) {
		return bad("placement.cwd", "not an absolute path")
	}
	for _, name := range []struct {
		field, value string
		needed       bool
	}{{"engine", p.Engine, false}, {"account", p.Account, false}, {"workload", p.Workload, true}, {"confinement", p.Confinement, true}} {
		if !named(name.value) && (name.needed || name.value != "") {
			return bad("placement."+name.field, "not a name")
		}
	}
	if err := bad("placement.profile", text(p.Profile, MaxText)); err != nil {
		return err
	}
	if len(p.Pools) > MaxPools {
		return bad("placement.pools", tooMany(len(p.Pools), MaxPools))
	}
	for _, pool := range p.Pools {
		if !named(pool) {
			return bad("placement.pools", "one is not a name")
		}
	}
	if !seconds(p.TimeoutS) {
		return bad("placement.timeout_s", "not a number of seconds")
	}
	if !seconds(p.IdleS) {
		return bad("placement.idle_s", "not a number of seconds")
	}
	return p.checkCaps()
}

func (p *Placement) checkCaps() error {
	if len(p.Caps) > MaxCaps {
		return bad("placement.caps", tooMany(len(p.Caps), MaxCaps))
	}
	for name, value := range p.Caps {
		if !isCap(name) || text(name, MaxLabel) != "" {
			return bad("placement.caps", "one is not a variable of a cap")
		}
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err != nil || n < 0 {
			return bad("placement.caps", "one is not a whole number")
		}
	}
	return nil
}

// capPrefix begins every variable that sets a cap (S2).
const capPrefix = "HANDSEL_MAX_AGENTS"

func isCap(name string) bool {
	rest, ok := strings.CutPrefix(name, capPrefix)
	return ok && (rest == "" || rest[0] == '_')
}

// named tells whether a word has the form of a pool's name (C8).
func named(word string) bool {
	if word == "" || len(word) > maxName || word[0] == '_' || word[0] == '-' {
		return false
	}
	for _, c := range []byte(word) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// text is what is wrong with a text of at most max bytes.
func text(s string, most int) string {
	switch {
	case len(s) > most:
		return fmt.Sprintf("%d bytes, and %d is the most", len(s), most)
	case !utf8.ValidString(s):
		return "not UTF-8"
	case strings.IndexByte(s, 0) >= 0:
		return "it contains a zero byte"
	}
	return ""
}

func tooMany(n, most int) string { return fmt.Sprintf("%d of them, and %d is the most", n, most) }

// seconds tells a length of time that time.Duration can hold.
func seconds(s float64) bool { return s >= 0 && s < math.MaxInt64/1e9 }
