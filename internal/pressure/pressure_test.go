package pressure

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func freeOf(bytes, floor float64) Measure {
	return Measure{Code: Memory, Key: "min_free_memory", Value: bytes, Limit: floor, Floor: true, Of: "of memory is free"}
}

func load1(v, most float64) Measure {
	return Measure{Code: Load, Key: "max_load_per_core", Value: v, Limit: most, Of: "is the load"}
}

func busy() bool { return false }
func idle() bool { return true }

const mib = 1 << 20

// A limit is kept by its own value, and by better than that for whoever was
// held back by it (P2).
func TestLimitsAndTheirMargin(t *testing.T) {
	t.Parallel()
	s := Settings{MaxHold: time.Hour, Margin: 10}
	for _, tt := range []struct {
		name  string
		m     Measure
		held  []string
		short bool
	}{
		{"at the floor", freeOf(100*mib, 100*mib), nil, false},
		{"below it", freeOf(100*mib-1, 100*mib), nil, true},
		{"at the floor, held by it", freeOf(100*mib, 100*mib), []string{Memory}, true},
		{"at floor and margin, held by it", freeOf(110*mib, 100*mib), []string{Memory}, false},
		{"at the floor, held by another", freeOf(100*mib, 100*mib), []string{Load}, false},
		{"the margin of a large floor is bounded", freeOf(100<<30+256*mib, 100<<30), []string{Memory}, false},
		{"and no smaller", freeOf(100<<30+256*mib-1, 100<<30), []string{Memory}, true},
		{"at the ceiling", load1(2, 2), nil, false},
		{"above it", load1(2.01, 2), nil, true},
		{"at the ceiling, held by it", load1(2, 2), []string{Load}, true},
		{"at ceiling less margin, held by it", load1(1.8, 2), []string{Load}, false},
	} {
		a, next := Decide(s, []Measure{tt.m}, Told{Held: tt.held}, time.Second, busy)
		if got := a.Code() != ""; got != tt.short {
			t.Errorf("%s: held back is %v", tt.name, got)
		}
		if tt.short != (len(next.Held) > 0) {
			t.Errorf("%s: next time it is judged as %v", tt.name, next)
		}
	}
}

// What gives no answer is decided by fail, and is shown either way.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	for name, blind := range map[string]Measure{
		"an error": {Code: Memory, Key: "min_free_memory", Of: "/proc/meminfo", Limit: 1, Floor: true, Err: errors.New("gone")},
		"nan":      {Code: Load, Key: "max_load_per_core", Of: "/proc/loadavg", Limit: 1, Value: math.NaN()},
	} {
		a, next := Decide(Settings{}, []Measure{blind}, Told{}, 1, busy)
		if a.Code() != "" || len(a.Blind) != 1 || len(next.Held) != 0 || !strings.Contains(a.Blind[0].Say(), "no answer") {
			t.Errorf("%s, open: %+v, then %+v", name, a, next)
		}
		a, _ = Decide(Settings{FailClosed: true, MaxHold: time.Hour}, []Measure{blind}, Told{}, 1, busy)
		if a.Code() != NoAnswer || !strings.Contains(a.String(), blind.Of) || !strings.Contains(a.String(), blind.Key) {
			t.Errorf("%s, closed: %q: %s", name, a.Code(), a)
		}
		a, _ = Decide(Settings{FailClosed: true}, []Measure{blind, load1(3, 2)}, Told{}, 1, busy)
		if a.Code() != Load {
			t.Errorf("%s, closed, beside what is known: %q", name, a.Code())
		}
	}
}

// On an idle host the wait for pressure alone ends; on another it does not.
func TestIdleHostIsNotDenied(t *testing.T) {
	t.Parallel()
	s := Settings{MaxHold: time.Minute}
	short := []Measure{freeOf(1, 2)}
	at := 10 * time.Hour
	a, told := Decide(s, short, Told{}, at, busy)
	if a.Over || a.Idle || told.Idle != 0 {
		t.Fatalf("on a busy host: %+v, %+v", a, told)
	}
	// The time something ran does not count: what it leaves free may be enough.
	a, told = Decide(s, short, told, at+time.Hour, idle)
	if a.Over || a.Left != time.Minute {
		t.Fatalf("just idle: %+v", a)
	}
	a, told = Decide(s, short, told, at+time.Hour+59*time.Second, idle)
	if a.Over || a.Left != time.Second {
		t.Fatalf("a second before: %+v", a)
	}
	if a, _ := Decide(s, short, told, at+time.Hour+time.Minute, idle); !a.Over {
		t.Fatalf("then: %+v", a)
	}
	if a, told = Decide(s, short, told, at+2*time.Hour, busy); a.Over || told.Idle != 0 {
		t.Fatalf("somebody else was let through: %+v, %+v", a, told)
	}
	if a, _ = Decide(Settings{}, short, Told{}, at, idle); !a.Over {
		t.Fatal("max_hold = 0 holds an idle host")
	}
}

// Whatever is measured and was told: the answer is one of the codes, nothing
// good holds anybody back, worse is never better, an idle host is let through
// after MaxHold and a busy one never, and held starts go on at the margin.
func TestDecisionsHoldTogether(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 7))
	value := func() float64 {
		return []float64{0, 1, 2, 50, 99.99, 100, 110, 1 << 30, math.NaN(), math.Inf(1)}[r.IntN(10)] * (0.5 + r.Float64())
	}
	for i := range 20000 {
		s := Settings{MaxHold: time.Duration(r.IntN(100)) * time.Second, FailClosed: r.IntN(2) == 0, Margin: float64(r.IntN(51))}
		var all []Measure
		var told Told
		for _, code := range Codes[:len(Codes)-1] {
			m := Measure{Code: code, Key: "key_" + code, Of: "of " + code, Value: value(), Limit: 1 + 100*r.Float64(), Floor: code == Memory || code == Disk}
			if r.IntN(8) == 0 {
				m.Err = errors.New("unreadable")
			}
			if r.IntN(3) > 0 {
				all = append(all, m)
			}
			if r.IntN(2) == 0 {
				told.Held = append(told.Held, code)
			}
		}
		now := time.Duration(1+r.IntN(1000)) * time.Second
		if r.IntN(2) == 0 {
			told.Idle = time.Duration(r.IntN(1000)) * time.Second
		}
		nothing := r.IntN(2) == 0
		asked := false
		a, next := Decide(s, all, told, now, func() bool { asked = true; return nothing })
		where := fmt.Sprintf("round %d: %+v, %+v, told %+v at %v: %+v", i, s, all, told, now, a)
		code := a.Code()
		switch {
		case code == "" && (len(a.Short) > 0 || asked || len(next.Held) > 0 || a.Over):
			t.Fatal("go, and not: ", where)
		case code != "" && (!slices.Contains(Codes, code) || a.String() == "" || !asked):
			t.Fatal("held for nothing: ", where)
		case code != "" && nothing && a.Over != (told.Idle != 0 && told.Idle <= now && now-told.Idle >= s.MaxHold || s.MaxHold == 0):
			t.Fatal("an idle host: ", where)
		case !nothing && a.Over:
			t.Fatal("let through a busy host: ", where)
		}
		for _, m := range a.Short {
			if !m.blind() && (m.Floor && m.Value >= m.Limit+min(m.Limit*s.Margin/100, 256*mib) || !m.Floor && m.Value <= m.Limit*(1-s.Margin/100)) {
				t.Fatal("held though better than limit and margin: ", where)
			}
			if m.blind() && !s.FailClosed {
				t.Fatal("held by no answer, with fail open: ", where)
			}
		}
		for j, m := range all { // worse
			if m.blind() {
				continue
			}
			worse := slices.Clone(all)
			if worse[j].Value *= 2; m.Floor {
				worse[j].Value = m.Value / 2
			}
			if b, _ := Decide(s, worse, told, now, busy); code != "" && b.Code() == "" {
				t.Fatal("worse is better: ", where)
			}
		}
	}
}

// Off means that nothing is looked at.
func TestOffMeasuresNothing(t *testing.T) {
	t.Parallel()
	if s := (Settings{MaxHold: 1, FailClosed: true, Margin: 10, DiskPaths: []string{"/nowhere"}}); s.On() || len(Look(s, "/")) != 0 {
		t.Error("without a limit something is measured")
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{-1: "0 B", 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 100 << 20: "100.0 MiB", 3 << 29: "1.50 GiB", 1 << 40: "1.00 TiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d is %q, not %q", n, got, want)
		}
	}
}
