// Package quota decides what is known of an engine account's quota: what a limit,
// a throttle, a failed login or a success that a run saw makes of it, and whether
// the next start may go (P3 to P5).
//
// It guarantees that no failure is counted twice, that a limit which is met again
// and again is never met in a tight loop, that of a failing login one start at a
// time finds out whether it works again, and that two starts which must be spaced
// are. All that is known lives in the orders of the account in holds/, exactly as
// long as they do. It starts nothing, knows no engine, and touches no credential.
//
// Decide and State.Answer are pure. Book does what they say to the files.
package quota

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/machine"
)

// Account is an engine account: Name is empty for the one that the engine uses
// when nobody says otherwise.
type Account struct{ Engine, Name string }

// Parse reads ENGINE or ENGINE/NAME.
func Parse(text string) Account {
	engine, name, _ := strings.Cut(text, "/")
	return Account{engine, name}
}

// String is ENGINE or ENGINE/NAME.
func (a Account) String() string {
	if a.Name == "" {
		return a.Engine
	}
	return a.Engine + "/" + a.Name
}

// Scope is that of the account's orders.
func (a Account) Scope() string {
	if a.Name == "" {
		return "engine:" + a.Engine
	}
	return "account:" + a.Engine + "/" + a.Name
}

// OfScope is the account that an order is about; ok is false for any other order.
func OfScope(scope string) (a Account, ok bool) {
	what, name, _ := strings.Cut(scope, ":")
	return Parse(name), name != "" && (what == "engine" || what == "account")
}

// Moment is one reading of all clocks (C14).
type Moment struct {
	Wall  time.Time
	Boot  string        // of the kernel
	Since time.Duration // CLOCK_BOOTTIME
}

// Now reads them.
func Now() Moment { return Moment{machine.Now(), machine.BootID(), machine.SinceBoot()} }

// What a run saw.
type What int

// Failures of other kinds say nothing of the account, and are not observed.
const (
	Limit     What = iota + 1 // the provider refuses more, until its reset
	Throttle                  // too much at once
	Login                     // the login is missing or no longer valid
	Answered                  // the model said or did something: the login works
	Succeeded                 // the run succeeded
)

// Seen is one observation.
type Seen struct {
	What    What
	Reset   time.Time // of Limit: when it ends, if that was told
	Text    string    // the provider's own words, fit to be shown
	Run     string
	Started time.Duration // CLOCK_BOOTTIME at which the run was let through
}

// Rules are what the configuration says of an engine's quota.
type Rules struct {
	AutoResume bool          // a park ends by itself, and a login is probed
	MaxPark    time.Duration // the longest park, more than 0
}

// DefaultMaxPark is a little more than the five hours of the usual windows.
const DefaultMaxPark = 6 * time.Hour

// Codes are why a start waits (P6).
const (
	CodeParked   = "parked"
	CodeLogin    = "login"
	CodeThrottle = "throttle"
)

// State is what is known of an account; an order without a kind is not there.
type State struct{ Park, Pause, Pace hold.Order }

// StateOf finds the account's orders, those whose time has passed included.
func StateOf(orders hold.Orders, a Account) (s State) {
	for _, o := range orders.Account(a.Scope()) {
		switch o.Kind {
		case hold.Park:
			s.Park = o
		case hold.Pause:
			s.Pause = o
		case hold.Pace:
			s.Pace = o
		}
	}
	return s
}

// Orders are those that are there.
func (s State) Orders() (all []hold.Order) {
	for _, o := range []hold.Order{s.Park, s.Pause, s.Pace} {
		if o.Kind != "" {
			all = append(all, o)
		}
	}
	return all
}

// open tells whether an order is there and its time has not passed.
func (now Moment) open(o hold.Order) bool {
	return o.Kind != "" && !o.Passed(now.Wall, now.Boot, now.Since)
}

// Answer is what a state says to a start. Code is empty when it may go.
type Answer struct {
	Code  string
	Order hold.Order
	Left  time.Duration // until the answer ends by itself; 0: it does not
	// Probe says that the start may go as the one that finds out whether a login
	// works again. It has to be claimed (Book.Admit).
	Probe bool
}

// Answer is what an account says to the start of a run: a probe may go on.
func (s State) Answer(run string, now Moment) Answer {
	switch {
	case now.open(s.Park):
		return Answer{Code: CodeParked, Order: s.Park, Left: left(s.Park, now)}
	case s.Pause.Kind == "" || run != "" && s.Pause.Quota.Probe == run:
		return Answer{}
	case now.open(s.Pause):
		return Answer{Code: CodeLogin, Order: s.Pause, Left: left(s.Pause, now)}
	}
	return Answer{Order: s.Pause, Probe: true}
}

func left(o hold.Order, now Moment) time.Duration {
	switch {
	case o.Until.IsZero():
		return 0
	case o.Quota.Boot != "" && o.Quota.Boot == now.Boot:
		return max(time.Duration(o.Quota.EndMS)*time.Millisecond-now.Since, time.Nanosecond)
	}
	return max(o.Until.Sub(now.Wall), time.Nanosecond)
}

// Gap is the least time between two starts that a throttle asks for; 0: none.
func (s State) Gap(now Moment) time.Duration {
	if !now.open(s.Pace) {
		return 0
	}
	return time.Duration(s.Pace.Quota.GapMS) * time.Millisecond
}

// Throttled is when the throttle was met last, on CLOCK_BOOTTIME; 0: not in this
// boot.
func (s State) Throttled(now Moment) time.Duration {
	if s.Pace.Quota.Boot != now.Boot {
		return 0
	}
	return time.Duration(s.Pace.Quota.AtMS) * time.Millisecond
}

// probeAfter are the pauses before the probes of a login: the first of them after
// the first failure, each further one after one more probe.
var probeAfter = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

// mostLogins is the failure of a login after which nobody probes it any more.
const mostLogins = 3

func pauseBefore(probes int) time.Duration { return probeAfter[min(probes, len(probeAfter)-1)] }

const (
	firstBackOff = time.Minute // after a limit that names no reset; doubled each time
	leastAgain   = 15 * time.Second
	mostJitter   = 10 * time.Second
	firstGap     = 5 * time.Second // between two starts under a throttle; doubled each time
	mostGap      = time.Minute
	leastPace    = 5 * time.Minute // how long a throttle spaces starts
)

// Decide says what is known of an account once a run has seen something. changed
// are the kinds of order that are to be written, or removed where after has none.
func Decide(a Account, s State, seen Seen, r Rules, now Moment) (after State, changed []hold.Kind) {
	after = s
	switch seen.What {
	case Limit:
		after.Park = parked(a, s.Park, seen, r, now)
	case Throttle:
		after.Pace = paced(a, s.Pace, seen, now)
	case Login:
		after.Pause = paused(a, s.Pause, seen, r, now)
	case Answered:
		after.Pause = cleared(s.Pause, seen, now)
	case Succeeded:
		after = State{cleared(s.Park, seen, now), cleared(s.Pause, seen, now), cleared(s.Pace, seen, now)}
	}
	for _, k := range []struct {
		kind   hold.Kind
		was, o hold.Order
	}{{hold.Park, s.Park, after.Park}, {hold.Pause, s.Pause, after.Pause}, {hold.Pace, s.Pace, after.Pace}} {
		if k.was != k.o {
			changed = append(changed, k.kind)
		}
	}
	return after, changed
}

// news tells whether what a run saw says something that o does not know: it is the
// probe, or was let through after o was last changed. One that was let through
// before met the same failure as the run that o is because of.
func news(o hold.Order, seen Seen, now Moment) bool {
	switch {
	case o.Kind == "" || o.Quota.Boot != now.Boot:
		return true
	case o.Quota.Run == seen.Run:
		return false
	}
	return o.Quota.Probe == seen.Run || seen.Started.Milliseconds() >= o.Quota.AtMS
}

// cleared takes an order away on a success of the run that it is because of, which
// got over it, or of one that began after it. One without an end, and a person's
// that is in force, ends by hand.
func cleared(o hold.Order, seen Seen, now Moment) hold.Order {
	byHand := o.Until.IsZero() || o.Quota.Run == "" && now.open(o)
	if o.Kind == "" || o.Quota.Run == seen.Run || news(o, seen, now) && !byHand {
		return hold.Order{}
	}
	return o
}

// order is a new order in the place of o, which may be none; lasting 0 is without
// an end.
func order(a Account, o hold.Order, kind hold.Kind, code string, lasting time.Duration, seen Seen, now Moment) hold.Order {
	if o.Kind == "" {
		o = hold.Order{Since: stamp(now.Wall)}
	}
	o.V, o.Scope, o.Kind, o.Code, o.Reason, o.By = 1, a.Scope(), kind, code, seen.Text, "run "+seen.Run
	o.Quota.Run = seen.Run
	return lasts(o, lasting, now)
}

// lasts gives o its end.
func lasts(o hold.Order, lasting time.Duration, now Moment) hold.Order {
	o.Quota.Boot, o.Quota.AtMS = now.Boot, now.Since.Milliseconds()
	o.Until, o.Quota.EndMS = time.Time{}, 0
	if lasting > 0 {
		o.Until = stamp(now.Wall.Add(lasting))
		o.Quota.EndMS = (now.Since + lasting).Milliseconds()
	}
	return o
}

// stamp is a time as files have it (C12).
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// parked is the park after a limit. A limit that is met again right after its end
// gets a pause of its own that grows, whatever reset it names.
func parked(a Account, o hold.Order, seen Seen, r Rules, now Moment) hold.Order {
	open, same := now.open(o), !news(o, seen, now)
	if open && o.Until.IsZero() {
		return o // somebody decides when it ends
	}
	count := o.Quota.Count
	if !same {
		count++
	}
	count = max(count, 1)
	lasting := backOff(firstBackOff, count, r.MaxPark) + jitter(a, int64(count))
	named := seen.Reset.After(now.Wall)
	if named {
		lasting = max(seen.Reset.Sub(now.Wall)+jitter(a, seen.Reset.Unix()), again(count, r.MaxPark))
	}
	lasting = min(lasting, r.MaxPark)
	learnt := named && o.Quota.Reset.IsZero() && o.Quota.Run == seen.Run // the run that knew no reset has been told one
	switch {
	case open && same && !named, open && same && !learnt && lasting <= left(o, now)+time.Second:
		return o // nothing that it does not know
	case open && !learnt:
		lasting = max(lasting, left(o, now))
	}
	if !r.AutoResume {
		lasting = 0
	}
	n := order(a, o, hold.Park, CodeParked, lasting, seen, now)
	if !open {
		n.Since = stamp(now.Wall)
	}
	if n.Quota.Count, n.Quota.Reset = count, (time.Time{}); named {
		n.Quota.Reset = stamp(seen.Reset)
	}
	return n
}

// again is the least pause before a limit is met for another time.
func again(count int, most time.Duration) time.Duration {
	if count <= 1 {
		return time.Second
	}
	return backOff(leastAgain, count-1, most)
}

// backOff is first, doubled for every failure after the first.
func backOff(first time.Duration, count int, most time.Duration) time.Duration {
	d := first
	for range count - 1 {
		if d *= 2; d >= most {
			return most
		}
	}
	return min(d, most)
}

// jitter is a little time that differs between accounts and is the same for
// everybody who works it out for one, so that all agree on the end.
func jitter(a Account, of int64) time.Duration {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s|%d", a, of) // it never fails
	return time.Duration(h.Sum64()%uint64(mostJitter/time.Millisecond)) * time.Millisecond
}

// paused is the pause after a login that failed.
func paused(a Account, o hold.Order, seen Seen, r Rules, now Moment) hold.Order {
	if !news(o, seen, now) || o.Kind != "" && o.Until.IsZero() {
		return o
	}
	count := o.Quota.Count + 1
	lasting := pauseBefore(o.Quota.Probes)
	if count >= mostLogins || !r.AutoResume {
		lasting = 0
	}
	n := order(a, o, hold.Pause, CodeLogin, lasting, seen, now)
	n.Quota.Count, n.Quota.Probe = count, ""
	return n
}

// probed is the pause once a run has gone to see whether the login works: nobody
// else does before the next pause is over, whatever becomes of that run.
func probed(o hold.Order, run string, now Moment) hold.Order {
	o.Quota.Probes++
	o.Quota.Probe = run
	return lasts(o, pauseBefore(o.Quota.Probes), now)
}

// paced is the spacing after a throttle.
func paced(a Account, o hold.Order, seen Seen, now Moment) hold.Order {
	switch {
	case !now.open(o):
		o = hold.Order{}
	case !news(o, seen, now):
		return o
	}
	count := o.Quota.Count + 1
	gap := backOff(firstGap, count, mostGap)
	n := order(a, o, hold.Pace, CodeThrottle, max(leastPace, 10*gap), seen, now)
	n.Quota.Count, n.Quota.GapMS = count, gap.Milliseconds()
	return n
}

// Set is an order that a person gives: until then, or until it is taken back.
func Set(a Account, reason, by string, until time.Time, now Moment) hold.Order {
	o := hold.Order{V: 1, Scope: a.Scope(), Kind: hold.Park, Code: CodeParked, Reason: reason, By: by, Since: stamp(now.Wall)}
	lasting := time.Duration(0)
	if !until.IsZero() {
		lasting = max(until.Sub(now.Wall), time.Millisecond)
	}
	return lasts(o, lasting, now)
}

// Text says of an account what an order means, for people; its end is told besides.
func Text(o hold.Order) string {
	a, _ := OfScope(o.Scope)
	who := "engine " + a.Engine
	if a.Name != "" {
		who = "account " + a.String()
	}
	said := ""
	if o.Reason != "" {
		said = ": " + o.Reason
	}
	by := ""
	if o.By != "" && o.Quota.Run == "" { // a person
		by = " (by " + o.By + ")"
	}
	switch o.Kind {
	case hold.Pause:
		end := " failed " + times(o.Quota.Count)
		switch {
		case o.Until.IsZero():
			end += ", and is not tried again by itself"
		case o.Quota.Probe != "":
			end += ", and run " + o.Quota.Probe + " finds out whether it works again"
		default:
			end += ", and one start finds out whether it works again"
		}
		return "the login of " + who + end + said + by
	case hold.Pace:
		return fmt.Sprintf("%s is throttled, so its starts are %v apart%s%s", who, time.Duration(o.Quota.GapMS)*time.Millisecond, said, by)
	}
	return who + " is limited" + said + by
}

func times(n int) string {
	if n <= 1 {
		return "once"
	}
	return fmt.Sprintf("%d times in a row", n)
}

// Ends says what ends an order.
func Ends(o hold.Order) string {
	a, _ := OfScope(o.Scope)
	verb := "handsel quota clear " + a.String()
	switch {
	case o.Kind == hold.Pause && !o.Until.IsZero():
		return "a start that works, the first of which goes at that time; or " + verb
	case o.Until.IsZero():
		return verb
	}
	return verb + ", or that time"
}
