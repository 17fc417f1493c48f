package quota

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/handsel/handsel/internal/hold"
)

var (
	noon   = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	claude = Account{Engine: "claude"}
	usual  = Rules{AutoResume: true, MaxPark: DefaultMaxPark}
)

// at is a moment that long after noon, an hour after the boot began.
func at(d time.Duration) Moment { return Moment{noon.Add(d), "b", time.Hour + d} }

// of is what a run that was about to start at began saw.
func of(what What, run string, began time.Duration) Seen {
	return Seen{What: what, Run: run, Started: time.Hour + began}
}

func (s Seen) resets(d time.Duration) Seen { s.Reset = noon.Add(d); return s }

// play takes in what was seen at a time.
func play(s State, seen Seen, now time.Duration) State {
	after, _ := Decide(claude, s, seen, usual, at(now))
	return after
}

func TestAccountsHaveTheirScopes(t *testing.T) { // P5
	for _, tt := range []struct {
		text, scope string
		a           Account
	}{
		{"claude", "engine:claude", claude},
		{"claude/work", "account:claude/work", Account{"claude", "work"}},
	} {
		if a := Parse(tt.text); a != tt.a || a.Scope() != tt.scope || a.String() != tt.text {
			t.Errorf("%s is %+v, %s, %s", tt.text, a, a.Scope(), a)
		}
		if a, ok := OfScope(tt.scope); !ok || a != tt.a {
			t.Errorf("%s is of %+v", tt.scope, a)
		}
	}
	for _, scope := range []string{"all", "pool:claude", "lane:claude/x", "engine:"} {
		if a, ok := OfScope(scope); ok {
			t.Errorf("%s is of %+v", scope, a)
		}
	}
}

// TestLimitParksUntilItsReset: C125. A reset that has passed, and none, back off.
func TestLimitParksUntilItsReset(t *testing.T) {
	for _, tt := range []struct {
		name          string
		reset         time.Duration // after noon; 0: none is named
		least, most   time.Duration // of the park
		known         bool
		countedBefore int
	}{
		{"in two minutes", 2 * time.Minute, 2 * time.Minute, 2*time.Minute + mostJitter, true, 0},
		{"in 3.2 seconds", 3200 * time.Millisecond, 3200 * time.Millisecond, 3200*time.Millisecond + mostJitter, true, 0},
		{"next year", 400 * 24 * time.Hour, DefaultMaxPark, DefaultMaxPark, true, 0},
		{"a minute ago", -time.Minute, firstBackOff, firstBackOff + mostJitter, false, 0},
		{"none", 0, firstBackOff, firstBackOff + mostJitter, false, 0},
		{"none, the fourth time", 0, 8 * time.Minute, 8*time.Minute + mostJitter, false, 3},
		{"in 3.2 seconds, the fourth time", 3200 * time.Millisecond, 4 * leastAgain, 4*leastAgain + mostJitter, true, 3},
		{"none, the fiftieth time", 0, DefaultMaxPark, DefaultMaxPark, false, 49},
	} {
		s := State{}
		if tt.countedBefore > 0 {
			s.Park = lasts(hold.Order{V: 1, Scope: claude.Scope(), Kind: hold.Park, Quota: hold.Quota{Run: "r0", Count: tt.countedBefore}}, time.Second, at(-time.Minute))
		}
		seen := of(Limit, "r1", -time.Second)
		if tt.reset != 0 {
			seen = seen.resets(tt.reset)
		}
		s = play(s, seen, 0)
		got := s.Park.Until.Sub(noon)
		if got < tt.least || got > tt.most || s.Park.Quota.Count != tt.countedBefore+1 || s.Park.Quota.Reset.IsZero() == tt.known {
			t.Errorf("%s: parked for %v, %+v", tt.name, got, s.Park.Quota)
		}
		if a := s.Answer("r2", at(got-2*time.Millisecond)); a.Code != CodeParked {
			t.Errorf("%s: before its end it says %+v", tt.name, a)
		}
		if a := s.Answer("r2", at(got+time.Millisecond)); a.Code != "" {
			t.Errorf("%s: after its end it says %+v", tt.name, a)
		}
	}
}

// TestAllAgreeOnTheEnd: whoever works it out comes to the same jitter, and accounts
// differ in it.
func TestAllAgreeOnTheEnd(t *testing.T) {
	seen := of(Limit, "r1", 0).resets(time.Hour)
	one := play(State{}, seen, time.Second)
	two := play(State{}, of(Limit, "r2", 0).resets(time.Hour), 20*time.Second)
	if !one.Park.Until.Equal(two.Park.Until) {
		t.Errorf("%v and %v", one.Park.Until, two.Park.Until)
	}
	ends := map[time.Time]bool{}
	for i := range 20 {
		s, _ := Decide(Account{"claude", fmt.Sprint("a", i)}, State{}, seen, usual, at(0))
		ends[s.Park.Until] = true
	}
	if len(ends) < 15 {
		t.Errorf("twenty accounts have %d ends", len(ends))
	}
}

func TestFailureIsCountedOnce(t *testing.T) { // P3
	for _, what := range []What{Limit, Throttle, Login} {
		s := play(State{}, of(what, "r1", -time.Minute), 0)
		first := s
		s = play(s, of(what, "r1", -time.Minute), time.Second)      // the same run, again
		s = play(s, of(what, "r2", -30*time.Second), 2*time.Second) // one that ran already
		if !reflect.DeepEqual(s, first) {
			t.Errorf("%d: %+v became %+v", what, first, s)
		}
		for _, o := range play(s, of(what, "r3", time.Second), 3*time.Second).Orders() {
			if o.Quota.Count != 2 {
				t.Errorf("%d: a run that began after it left %+v", what, o.Quota)
			}
		}
	}
}

// TestLimitMetAfterAParkIsALimit, also by a run that began before that park: it is no
// other failure, and the account has no capacity all the same.
func TestLimitMetAfterAParkIsALimit(t *testing.T) {
	s := play(State{}, of(Limit, "r1", 0), time.Second)
	s = play(s, of(Limit, "r0", -time.Minute), time.Hour)
	if a := s.Answer("r2", at(time.Hour+30*time.Second)); a.Code != CodeParked || s.Park.Quota.Count != 1 {
		t.Errorf("the next start is told %+v; %+v", a, s.Park.Quota)
	}
}

func TestResetToldLaterCounts(t *testing.T) {
	s := play(State{}, of(Limit, "r1", 0), time.Second)
	s = play(s, of(Limit, "r1", 0).resets(20*time.Second), 2*time.Second)
	if d := s.Park.Until.Sub(noon); d < 20*time.Second || d > 20*time.Second+mostJitter || s.Park.Quota.Count != 1 {
		t.Errorf("the run that was told a reset is parked for %v: %+v", d, s.Park.Quota)
	}
	s = play(s, of(Limit, "r0", 0).resets(time.Hour), 3*time.Second) // another knows of a later one
	if d := s.Park.Until.Sub(noon); d < time.Hour || s.Park.Quota.Count != 1 {
		t.Errorf("the later reset is parked for %v: %+v", d, s.Park.Quota)
	}
}

// TestDeadLoginIsProbedByOneStartAtATime: 1, 5 and 15 minutes, and the third
// failure is the last (C124).
func TestDeadLoginIsProbedByOneStartAtATime(t *testing.T) {
	s := play(State{}, of(Login, "r1", 0), time.Second)
	now := time.Second
	for i, after := range []time.Duration{time.Minute, 5 * time.Minute} {
		if a := s.Answer("rx", at(now+after-2*time.Millisecond)); a.Code != CodeLogin || a.Left <= 0 {
			t.Fatalf("pause %d: %+v", i, a)
		}
		now += after + time.Millisecond
		if a := s.Answer("rx", at(now)); a.Code != "" || !a.Probe {
			t.Fatalf("pause %d is over: %+v", i, a)
		}
		probe := fmt.Sprint("probe", i)
		s.Pause = probed(s.Pause, probe, at(now))
		if a := s.Answer("rx", at(now)); a.Code != CodeLogin {
			t.Errorf("a second start goes beside the probe: %+v", a)
		}
		if a := s.Answer(probe, at(now)); a.Code != "" || a.Probe {
			t.Errorf("the probe itself is asked for again: %+v", a)
		}
		s = play(s, of(Login, probe, now), now+time.Second)
		now += time.Second
	}
	if a := s.Answer("rx", at(now+1000*time.Hour)); a.Code != CodeLogin || a.Left != 0 || s.Pause.Quota.Count != mostLogins || !s.Pause.Until.IsZero() {
		t.Errorf("after the third failure: %+v, %+v", a, s.Pause)
	}
	// Nothing that ends by itself ends that, not even a run that had begun.
	if after := play(s, of(Succeeded, "old", now), now+time.Second); after.Pause.Kind == "" {
		t.Error("a success took it back")
	}
}

// TestProbeThatTellsNothing: it died, or failed otherwise. The next one goes after
// the next pause.
func TestProbeThatTellsNothing(t *testing.T) {
	s := play(State{}, of(Login, "r1", 0), 0)
	now := time.Minute
	for i, after := range []time.Duration{5 * time.Minute, 15 * time.Minute, 15 * time.Minute} {
		s.Pause = probed(s.Pause, fmt.Sprint("p", i), at(now))
		if a := s.Answer("rx", at(now+after-2*time.Millisecond)); a.Code != CodeLogin {
			t.Errorf("after probe %d: %+v", i, a)
		}
		if a := s.Answer("rx", at(now+after)); !a.Probe {
			t.Errorf("after probe %d and its pause: %+v", i, a)
		}
		now += after
	}
	if s.Pause.Quota.Count != 1 {
		t.Errorf("%+v", s.Pause.Quota)
	}
}

func TestSuccessClearsWhatCameBeforeIt(t *testing.T) {
	for _, what := range []What{Limit, Throttle, Login} {
		s := play(State{}, of(what, "r1", 0), time.Minute)
		if after := play(s, of(Succeeded, "old", 30*time.Second), 2*time.Minute); len(after.Orders()) != 1 {
			t.Errorf("%d: a run that had begun before took it back", what)
		}
		if after := play(s, of(Succeeded, "r1", 0), 2*time.Minute); len(after.Orders()) != 0 {
			t.Errorf("%d: the run that got over it left %+v", what, after)
		}
		if after := play(s, of(Succeeded, "r2", time.Minute), 2*time.Minute); len(after.Orders()) != 0 {
			t.Errorf("%d: a run that began after it left %+v", what, after)
		}
		if after := play(s, of(Answered, "r2", time.Minute), 2*time.Minute); (len(after.Orders()) == 0) != (what == Login) {
			t.Errorf("%d: an answer of the model left %+v", what, after)
		}
	}
	s := State{Park: Set(claude, "mine", "me", noon.Add(time.Hour), at(0))}
	if after := play(s, of(Succeeded, "r", time.Second), time.Minute); after.Park.Kind == "" {
		t.Error("a success took a person's order back")
	}
	s = State{Park: Set(claude, "mine", "me", time.Time{}, at(0))}
	if after := play(s, of(Limit, "r", time.Second).resets(time.Minute), time.Second); after != s {
		t.Errorf("a limit gave a person's order an end: %+v", after)
	}
}

func TestNothingGoesByItselfWhereItMustNot(t *testing.T) { // auto_resume = false
	for _, what := range []What{Limit, Login} {
		s, _ := Decide(claude, State{}, of(what, "r", 0).resets(time.Minute), Rules{MaxPark: time.Hour}, at(0))
		if a := s.Answer("x", at(10_000*time.Hour)); a.Code == "" || a.Left != 0 {
			t.Errorf("%d: %+v", what, a)
		}
		if what == Limit && s.Park.Quota.Reset.IsZero() {
			t.Error("the reset is forgotten")
		}
	}
}

func TestThrottleSpacesAndNeverParks(t *testing.T) { // P3
	s, last := State{}, time.Duration(0)
	for i := range 8 {
		now := time.Duration(i) * time.Minute
		s = play(s, of(Throttle, fmt.Sprint("r", i), now), now)
		if a := s.Answer("x", at(now)); a.Code != "" {
			t.Fatalf("it parks: %+v", a)
		}
		gap := s.Gap(at(now))
		if gap < last || gap <= 0 || gap > mostGap {
			t.Errorf("after %d throttles starts are %v apart, and %v before", i+1, gap, last)
		}
		last = gap
	}
	if end := s.Pace.Until.Sub(noon); s.Gap(at(end+time.Millisecond)) != 0 {
		t.Error("it never ends")
	}
	healed := s.Pace.Until.Sub(noon) + time.Minute
	if s = play(s, of(Throttle, "later", healed), healed); s.Pace.Quota.Count != 1 {
		t.Errorf("an old throttle is still counted: %+v", s.Pace.Quota)
	}
}

// TestClockJumpsChangeNothingWithinABoot: C14, and right after a jump of −1 h and
// of +8 h.
func TestClockJumpsChangeNothingWithinABoot(t *testing.T) {
	s := play(State{}, of(Limit, "r", 0).resets(2*time.Minute), 0)
	end := s.Park.Until.Sub(noon)
	for _, jump := range []time.Duration{-time.Hour, 8 * time.Hour} {
		before, after := at(end-time.Second), at(end+time.Second)
		before.Wall, after.Wall = before.Wall.Add(jump), after.Wall.Add(jump)
		if a := s.Answer("x", before); a.Code != CodeParked || a.Left > time.Second+time.Millisecond {
			t.Errorf("%v, before its end: %+v", jump, a)
		}
		if a := s.Answer("x", after); a.Code != "" {
			t.Errorf("%v, after its end: %+v", jump, a)
		}
		before.Boot, after.Boot = "c", "c"
		if a := s.Answer("x", before); (a.Code == CodeParked) != (jump < 0) {
			t.Errorf("%v, in another boot: %+v", jump, a)
		}
	}
}

// TestNoSequenceLoopsOrStarves: whatever runs see, in whatever order, a park is
// never longer than max_park and never over at once, no more than three logins are
// tried, the same sight changes nothing the second time, and what ends by itself
// ends.
func TestNoSequenceLoopsOrStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := Rules{AutoResume: rapid.Bool().Draw(t, "auto"), MaxPark: rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 6 * time.Hour}).Draw(t, "most")}
		s, now, logins := State{}, time.Duration(0), 0
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "passes"))
			m := at(now)
			m.Wall = m.Wall.Add(time.Duration(rapid.Int64Range(-int64(9*time.Hour), int64(9*time.Hour)).Draw(t, "jump")))
			run := fmt.Sprint("r", i)
			a := s.Answer(run, m)
			if a.Code != "" && rapid.Bool().Draw(t, "obeys") {
				if a.Left == 0 {
					break
				}
				now += a.Left
				m.Wall, m.Since = m.Wall.Add(a.Left), m.Since+a.Left
				a = s.Answer(run, m)
				if a.Code != "" && a.Left > rules.MaxPark+15*time.Minute {
					t.Fatalf("it waits on: %+v", a)
				}
			}
			started := m.Since
			if a.Probe {
				s.Pause = probed(s.Pause, run, m)
			}
			if rapid.Bool().Draw(t, "old") {
				started = time.Duration(rapid.Int64Range(0, int64(m.Since)).Draw(t, "began"))
			}
			seen := Seen{What: rapid.SampledFrom([]What{Limit, Throttle, Login, Answered, Succeeded}).Draw(t, "what"), Run: run, Started: started}
			if rapid.Bool().Draw(t, "named") {
				seen.Reset = m.Wall.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(1000*time.Hour)).Draw(t, "reset")))
			}
			before := s
			after, changed := Decide(claude, s, seen, rules, m)
			if again, more := Decide(claude, after, seen, rules, m); again != after || len(more) > 0 {
				t.Fatalf("the same sight again changes %v: %+v, %+v", more, after, again)
			}
			if seen.What == Login && after.Pause.Quota.Count > before.Pause.Quota.Count {
				logins++
			}
			if after.Pause.Kind == "" {
				logins = 0
			}
			for _, o := range after.Orders() {
				if slices.Contains(changed, o.Kind) && !o.Until.IsZero() {
					if d := time.Duration(o.Quota.EndMS)*time.Millisecond - m.Since; d <= 0 && rules.MaxPark > time.Millisecond || o.Kind == hold.Park && d > rules.MaxPark+time.Millisecond {
						t.Fatalf("%s for %v, with max_park %v", o.Kind, d, rules.MaxPark)
					}
				}
				if o.OfAccount() == false || o.Scope != claude.Scope() {
					t.Fatalf("%+v", o)
				}
			}
			if logins > mostLogins {
				t.Fatalf("%d logins were tried", logins)
			}
			s = after
		}
	})
}

// TestOneThatWasLetThroughBeforeIsNoNews, though it started after: only the probe
// is, however soon it was (C124).
func TestOneThatWasLetThroughBeforeIsNoNews(t *testing.T) {
	s := play(State{}, of(Login, "r1", 0), time.Second)
	if after := play(s, of(Login, "r2", 999*time.Millisecond), 2*time.Second); after != s {
		t.Errorf("%+v", after.Pause.Quota)
	}
	s.Pause = probed(s.Pause, "p", at(2*time.Minute))
	if after := play(s, of(Login, "p", 2*time.Minute-time.Second), 2*time.Minute); after.Pause.Quota.Count != 2 {
		t.Errorf("the probe's failure: %+v", after.Pause.Quota)
	}
	if after := play(s, of(Succeeded, "p", 2*time.Minute-time.Second), 2*time.Minute); after.Pause.Kind != "" {
		t.Errorf("the probe's success: %+v", after.Pause)
	}
}
