// Package hold reads and keeps the orders not to start: holds, drains, parks and
// pauses, one small file each in a home's holds directory (C10, P1).
//
// It guarantees that an order is there whole or not at all, that one whose time
// has passed binds nobody, and that listing costs a single system call where
// nothing was ever held. It does not wake anybody when an order goes, does not
// say who may give one, and starts or ends nothing.
//
// A file that cannot be read as an order binds nobody, and is named as a
// problem: it cannot say whom it holds or until when, and taking it for a hold on
// everything would let one torn byte stop the machine with no reason to show.
// Orders are replaced atomically, so a torn file was not written by this program.
package hold

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/machine"
)

// Kind is what sort of order it is. All of them hold new starts and none ends
// what runs; they differ in who gives them and what ends them.
type Kind string

// The kinds of C10.
const (
	Hold  Kind = "hold"  // a person's
	Drain Kind = "drain" // a person's, of everything, until resumed
	Park  Kind = "park"  // a limit's, until it resets
	Pause Kind = "pause" // a failing login's, until it is probed or resumed
	Pace  Kind = "pace"  // a throttle's: it holds nobody, and spaces starts
)

// Order is one file. Scope is "all", or "engine:", "pool:", "lane:" or "account:"
// and a name; an account's is ENGINE/NAME. A park, a pause or a pace of an engine
// is of its default account alone, a hold of an engine of all its accounts.
type Order struct {
	V      int       `json:"v"`
	Scope  string    `json:"scope"`
	Kind   Kind      `json:"kind"`
	Code   string    `json:"code"`
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // zero: until it is removed

	// Quota is what a park, pause or pace of an engine account knows besides. It
	// lives exactly as long as the order.
	Quota Quota `json:"quota,omitzero"`
}

// Quota is how an engine account came to its order (P3).
type Quota struct {
	// Boot is the boot in which AtMS and EndMS are readings of CLOCK_BOOTTIME, in
	// milliseconds: when the order was last changed, and the same end as Until.
	// While that boot lasts EndMS counts, whatever the wall clock does (C14).
	Boot  string `json:"boot,omitempty"`
	AtMS  int64  `json:"at_ms,omitempty"`
	EndMS int64  `json:"end_ms,omitempty"`

	Count  int       `json:"count,omitempty"`  // failures of this kind in a row
	Run    string    `json:"run,omitempty"`    // whose failure was counted last
	Reset  time.Time `json:"reset,omitzero"`   // when the provider said that the limit ends
	Probes int       `json:"probes,omitempty"` // starts that were let through to see whether the login works
	Probe  string    `json:"probe,omitempty"`  // the run of the last of them
	GapMS  int64     `json:"gap_ms,omitempty"` // of a pace: least time between two starts, in milliseconds
}

// OfAccount tells whether an order is about an engine account's quota.
func (o Order) OfAccount() bool {
	what, _, _ := strings.Cut(o.Scope, ":")
	return (what == "engine" || what == "account") && (o.Kind == Park || o.Kind == Pause || o.Kind == Pace)
}

// Passed tells whether the order's time is over: by the clock of the boot that it
// was given in, and by the wall clock in any other.
func (o Order) Passed(now time.Time, boot string, since time.Duration) bool {
	switch {
	case o.Until.IsZero():
		return false
	case o.Quota.Boot != "" && o.Quota.Boot == boot:
		return since.Milliseconds() >= o.Quota.EndMS
	}
	return !now.Before(o.Until)
}

const (
	version = 1
	// maxFile bounds one file in bytes.
	maxFile = 16 << 10
	// timeFormat is RFC 3339 in UTC with milliseconds (C12).
	timeFormat = "2006-01-02T15:04:05.000Z"
	suffix     = ".json"
)

// Problem is a file that was passed over.
type Problem struct {
	Path string
	Err  error
}

func (p Problem) Error() string { return strconv.QuoteToASCII(p.Path) + ": " + p.Err.Error() }

// Orders are those in force at one moment, the oldest first.
type Orders struct {
	All []Order
	// Passed are those of engine accounts whose time is over: they bind nobody, and
	// still carry what they know.
	Passed   []Order
	Problems []Problem
}

// List reads a holds directory. One that is not there holds nothing and costs
// one open(2). The error is one of the directory itself, which is not ours to
// trust or cannot be read: then nobody knows what is held.
func List(dir string) (Orders, error) { return list(dir, machine.Now()) }

func list(dir string, now time.Time) (Orders, error) {
	folder, err := home.OpenFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Orders{}, nil
	}
	if err != nil {
		return Orders{}, err
	}
	defer folder.Close()
	names, err := folder.Names()
	if err != nil {
		return Orders{}, err
	}
	slices.Sort(names) // a stable order among orders of one moment
	var all Orders
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue // not finished
		}
		switch order, err := read(folder, name); {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			all.Problems = append(all.Problems, Problem{filepath.Join(dir, name), err})
		case !order.Passed(now, machine.BootID(), machine.SinceBoot()):
			all.All = append(all.All, order)
		case order.OfAccount():
			all.Passed = append(all.Passed, order)
		}
	}
	slices.SortStableFunc(all.All, func(a, b Order) int { return a.Since.Compare(b.Since) })
	return all, nil
}

func read(folder *home.Folder, name string) (Order, error) {
	data, err := folder.ReadFile(name, maxFile)
	if err != nil {
		return Order{}, err
	}
	return decode(data)
}

// decode takes orders of later versions too, as far as they are understood: an
// order that is understood binds.
func decode(data []byte) (Order, error) {
	var o Order
	if err := json.Unmarshal(data, &o); err != nil {
		return Order{}, fmt.Errorf("it holds nobody, not being an order: %w", err)
	}
	if err := o.check(); err != nil {
		return Order{}, fmt.Errorf("it holds nobody: %w", err)
	}
	return o, nil
}

func (o Order) check() error {
	switch {
	case o.V < 1:
		return errors.New("it has no version")
	case o.Kind != Hold && o.Kind != Drain && o.Kind != Park && o.Kind != Pause && o.Kind != Pace:
		return fmt.Errorf("its kind %s is unknown", strconv.QuoteToASCII(string(o.Kind)))
	case o.Scope == "all":
		return nil
	}
	what, name, _ := strings.Cut(o.Scope, ":")
	if name == "" || what != "engine" && what != "pool" && what != "lane" && what != "account" {
		return fmt.Errorf("its scope %s is unknown", strconv.QuoteToASCII(o.Scope))
	}
	return nil
}

// Match is the oldest order that binds a start of this engine in these pools. A
// start under a named account gives its engine as ENGINE/NAME. What is about an
// account's quota is not among the answers: see Account.
func (l Orders) Match(engine string, pools []string) (Order, bool) { return l.match(engine, pools, "") }

// MatchLane is Match for a start that owns a lane.
func (l Orders) MatchLane(engine string, pools []string, lane string) (Order, bool) {
	return l.match(engine, pools, lane)
}

func (l Orders) match(engine string, pools []string, lane string) (Order, bool) {
	family, _, named := strings.Cut(engine, "/")
	for _, o := range l.All {
		what, name, _ := strings.Cut(o.Scope, ":")
		switch {
		case o.OfAccount():
		case what == "all" && name == "",
			what == "engine" && name == family,
			what == "account" && named && name == engine,
			what == "pool" && slices.Contains(pools, name),
			what == "lane" && lane != "" && name == lane:
			return o, true
		}
	}
	return Order{}, false
}

// Account are the orders about the quota of one account, by its scope, those whose
// time has passed included.
func (l Orders) Account(scope string) (own []Order) {
	for _, all := range [][]Order{l.All, l.Passed} {
		for _, o := range all {
			if o.OfAccount() && o.Scope == scope {
				own = append(own, o)
			}
		}
	}
	return own
}

// ErrNewer reports an order that a later version wrote, with what this one does not
// know: it binds, and is never rewritten (C12).
var ErrNewer = errors.New("a later version of handsel gave that order, and it stays as it is")

// Put gives an order, replacing one of the same kind and scope, but none of a later
// version (ErrNewer). A zero Since is now. The home is created if need be.
func Put(d home.Dir, o Order) error {
	o.V = version
	if o.Since.IsZero() {
		o.Since = machine.Now()
	}
	if err := o.check(); err != nil {
		return fmt.Errorf("hold %s: %w", strconv.QuoteToASCII(o.Scope), err)
	}
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("hold %s: %w", strconv.QuoteToASCII(o.Scope), err)
	}
	if len(data) >= maxFile {
		return fmt.Errorf("hold %s: its reason is too long", strconv.QuoteToASCII(o.Scope))
	}
	folder, err := d.Make(filepath.Base(d.Holds()))
	if err != nil {
		return fmt.Errorf("hold %s: %w", strconv.QuoteToASCII(o.Scope), err)
	}
	defer folder.Close()
	if have, err := read(folder, fileName(o.Kind, o.Scope)); err == nil && have.V > version {
		return fmt.Errorf("hold %s: %w", strconv.QuoteToASCII(o.Scope), ErrNewer)
	}
	// Holds outlive a restart, so they are flushed.
	if err := folder.WriteFileSync(fileName(o.Kind, o.Scope), append(data, '\n')); err != nil {
		return fmt.Errorf("hold %s: %w", strconv.QuoteToASCII(o.Scope), err)
	}
	return nil
}

// Remove takes an order back. One that is not there is fs.ErrNotExist.
func Remove(d home.Dir, kind Kind, scope string) error {
	folder, err := d.Open(filepath.Base(d.Holds()))
	if err == nil {
		err = folder.Remove(fileName(kind, scope))
		folder.Close()
	}
	if err != nil {
		return fmt.Errorf("resume %s: %w", strconv.QuoteToASCII(scope), err)
	}
	return nil
}

// MarshalJSON writes times as C12 has them.
func (q Quota) MarshalJSON() ([]byte, error) {
	type plain Quota
	out := struct {
		plain
		Reset string `json:"reset,omitempty"`
	}{plain: plain(q)}
	if !q.Reset.IsZero() {
		out.Reset = q.Reset.UTC().Format(timeFormat)
	}
	return json.Marshal(out)
}

// MarshalJSON writes times as C12 has them.
func (o Order) MarshalJSON() ([]byte, error) {
	type plain Order
	out := struct {
		plain
		Since string `json:"since"`
		Until string `json:"until,omitempty"`
	}{plain: plain(o), Since: o.Since.UTC().Format(timeFormat)}
	if !o.Until.IsZero() {
		out.Until = o.Until.UTC().Format(timeFormat)
	}
	return json.Marshal(out)
}

// fileName spells kind and scope so that no two orders share a file (C11).
func fileName(kind Kind, scope string) string {
	var out strings.Builder
	out.WriteString(string(kind) + ".")
	for _, c := range []byte(scope) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.' {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "=%02x", c)
		}
	}
	name := out.String()
	if len(name) > 200 {
		sum := sha256.Sum256([]byte(scope))
		name = name[:160] + "==" + hex.EncodeToString(sum[:16])
	}
	return name + suffix
}
