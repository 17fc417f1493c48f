package stream

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Summary is what the events of one run come to.
type Summary struct {
	Decoded bool // a decoder made events of the lines; without one there are none

	Session, Model, Version string
	Usage                   *Usage // the last that was told
	Result                  *Event // the last one
	// Retry is the event that told of it, while the engine tries again by itself.
	Retry *Event
	// Fault is the last limit, throttle, login or permission fault that was told
	// of, whether the engine got over it or not: what a quota gate wants to know
	// before the run has ended.
	Fault *Event
	// Last is when the last event came, of whatever kind.
	Last time.Time
	// Progress is when the agent last got on. It gets on by (E12):
	//
	//   - a line of stdout, event or not, that is not empty and is none of the last
	//     64 different ones again;
	//   - of a line whose events only tell of what failed or is refused, by what they
	//     say, whatever else is in the line: an engine that tries again and counts is
	//     getting on, one that says the same each time is not;
	//   - every 64 KiB of a line that is still under way;
	//   - an event that its stderr tells of, by the same rule. Other text there is no
	//     progress.
	Progress time.Time

	Counts Counts
	Tail   string   // the beginning of a last line that was no whole one, to be shown
	Said   []string // the last lines of stderr, to be shown

	pending *Event // the last fault that the engine has not got over
	trouble string // what the last event that told of a failure said
}

// add folds one event that came at a time.
func (s *Summary) add(e Event, at time.Time) {
	s.Last = at
	s.Session, s.Model, s.Version = or(e.Session, s.Session), or(e.Model, s.Model), or(e.Version, s.Version)
	if e.Usage != nil {
		s.Usage = e.Usage.over(s.Usage)
	}
	if ofService(e.Fault) {
		s.Fault, s.pending = &e, &e
	}
	switch e.Kind {
	case Text, Tool:
		s.Retry, s.pending, s.trouble = nil, nil, ""
	case Limit, Trouble:
		s.trouble = or(e.Text, s.trouble)
		if e.Retry != nil {
			s.Retry = &e
		}
	case Result:
		s.Result, s.Retry = &e, nil
		if !e.Failed {
			s.pending = nil
		}
	}
}

// over is u with what it does not tell taken from what was told before.
func (u *Usage) over(was *Usage) *Usage {
	sum := *u
	if was == nil {
		return &sum
	}
	sum.Input, sum.Cached, sum.Output = or(sum.Input, was.Input), or(sum.Cached, was.Cached), or(sum.Output, was.Output)
	sum.Cost, sum.Turns = or(sum.Cost, was.Cost), or(sum.Turns, was.Turns)
	return &sum
}

func or[T comparable](a, b T) T {
	var zero T
	if a != zero {
		return a
	}
	return b
}

// ofService tells whether a fault is one of those that another start meets again.
func ofService(f Fault) bool {
	return f == ByLimit || f == ByThrottle || f == ByLogin || f == ByPermission
}

// State says in one line what the engine is held up by, such as "engine retrying:
// 401, attempt 5 of 10"; "" when nothing is known to hold it up.
func (s *Summary) State() string {
	if s.Retry != nil {
		return "engine retrying: " + s.Retry.why() + s.Retry.Retry.count()
	}
	p := s.pending
	switch {
	case p == nil || s.Result != nil && s.Result.Failed:
		return ""
	case p.Fault == ByLimit && !p.Until.IsZero():
		return "engine limited until " + p.Until.UTC().Format(time.RFC3339)
	}
	return "engine reports " + words[p.Fault]
}

// words are the faults of a service in people's words.
var words = map[Fault]string{
	ByLimit: "a used-up limit", ByThrottle: "rate limiting", ByLogin: "a login failure", ByPermission: "a missing permission",
}

// why is the shortest reason an event gives.
func (e *Event) why() string {
	switch {
	case e.Status != 0:
		return strconv.Itoa(e.Status)
	case e.Fault != "":
		return string(e.Fault)
	}
	return or(clean([]byte(e.Text), 80), "no reason given")
}

func (r *Retry) count() string {
	switch {
	case r.Attempt == 0:
		return ""
	case r.Of == 0:
		return fmt.Sprintf(", attempt %d", r.Attempt)
	}
	return fmt.Sprintf(", attempt %d of %d", r.Attempt, r.Of)
}

// Exit is how the process of a run ended, as far as its ending depends on it.
type Exit struct {
	Started bool // it ran at all
	Code    int  // its exit status; 0 for one that was ended after its result
	Signal  int  // what it died of; 0: nothing
	// Idle is the limit that ended it, because it did not get on for so long; 0: it
	// was not ended by it.
	Idle time.Duration
	// Stopped says in words why it was ended before its end by something else, such
	// as "cancelled" or "ended by its total limit"; "": it was not.
	Stopped string
	Lost    bool // stdout could not be read to its end
}

// Ending is how a run went, from process and stream (E11).
type Ending struct {
	Succeeded bool
	// Kind is why it failed. "" for one that was stopped and had no trouble till
	// then: the outcome (C13) says all there is to say.
	Kind    Fault
	Message string    // one line, to be shown; "" for one that succeeded
	Until   time.Time // of a limit, when it is over; zero: not told
}

// End says how the run went. It looks at events and numbers, never at free text;
// texts it only passes on to be shown.
func (s *Summary) End(x Exit) Ending {
	switch {
	case !x.Started:
		return Ending{Kind: NotStarted, Message: "it did not start"}
	case s.Result != nil && s.Result.Failed:
		return s.refused()
	case x.Idle > 0:
		return s.held(Stalled, "nothing new for "+x.Idle.String())
	case x.Stopped != "":
		return s.held("", x.Stopped)
	case x.Signal != 0:
		return s.held(ByAgent, fmt.Sprintf("it died of signal %d", x.Signal))
	case x.Code != 0:
		return s.held(ByAgent, fmt.Sprintf("exit status %d", x.Code))
	case !s.Decoded:
		return Ending{Succeeded: true}
	case s.Result == nil && (x.Lost || s.Counts.TooLong > 0):
		return s.held(OutputLost, "exit status 0, and what it said could not be read to its end")
	case s.Result == nil:
		return s.held(NoResult, "exit status 0 and no result")
	case s.Result.Text == "" && s.Result.Cut == 0:
		return s.held(NoResult, "exit status 0 and an empty result")
	}
	return Ending{Succeeded: true}
}

// refused is the ending of a result that says so itself. Where it gives no reason
// of the service's, what the engine told before and did not get over is the reason.
func (s *Summary) refused() Ending {
	e, text := s.Result, s.Result.Text
	if !ofService(e.Fault) && s.pending != nil {
		e = s.pending
	}
	text = or(text, or(e.Text, s.trouble))
	return Ending{Kind: or(e.Fault, ByAgent), Message: or(clean([]byte(text), mostMessage), "the engine reports an error"), Until: e.Until}
}

// held is the ending of a run without a valid result. What held up the engine at
// its end is the kind, whatever ended the process.
func (s *Summary) held(kind Fault, how string) Ending {
	if p := s.pending; p != nil {
		return Ending{Kind: p.Fault, Message: how + ", " + or(s.State(), "engine reports "+words[p.Fault]) + said(p.Text), Until: p.Until}
	}
	return Ending{Kind: kind, Message: how + s.last()}
}

// last is what a failed run said last, to be shown after how it ended.
func (s *Summary) last() string {
	switch {
	case s.Tail != "":
		return fmt.Sprintf("; its last line was not finished: %q", s.Tail)
	case s.trouble != "":
		return said(s.trouble)
	case len(s.Said) > 0:
		return said(s.Said[len(s.Said)-1])
	case s.Decoded && s.Counts.Bytes == 0:
		return "; it printed nothing"
	}
	return ""
}

// mostMessage is how much of an engine's own words is passed on, in bytes.
const mostMessage = 500

func said(text string) string {
	if text = strings.TrimSpace(clean([]byte(text), mostMessage)); text == "" {
		return ""
	}
	return ": " + text
}
