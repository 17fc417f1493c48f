package stream

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// fold makes a summary of events that came a second apart.
func fold(events ...Event) *Summary {
	s := &Summary{Decoded: true, Counts: Counts{Bytes: 1}}
	for i, e := range events {
		s.add(e, noon.Add(time.Duration(i)*time.Second))
	}
	return s
}

// TestEndings is the table of E11: process and stream together, each kind, and
// each in both directions. C100, C103, C114, C124 to C126, C128, C130.
func TestEndings(t *testing.T) {
	reset := noon.Add(3 * time.Hour)
	var (
		said    = Event{Kind: Text, Text: "Error: 429, your limit is reached, please login, permission denied"}
		good    = Event{Kind: Result, Text: "done"}
		empty   = Event{Kind: Result}
		bad     = Event{Kind: Result, Text: "I could not", Failed: true}
		limit   = Event{Kind: Limit, Fault: ByLimit, Status: 429, Until: reset, Text: "used up"}
		login   = Event{Kind: Trouble, Fault: ByLogin, Status: 401, Text: "invalid key", Retry: &Retry{Attempt: 5, Of: 10}}
		trouble = Event{Kind: Trouble, Text: "stream disconnected"}
		over    = Event{Kind: Limit, Fault: ByThrottle, Status: 529, Text: "overloaded"}
		asks    = Event{Kind: Trouble, Fault: ByPermission, Text: "Bash is not allowed"}
	)
	failed := func(f Fault) Event {
		return Event{Kind: Result, Failed: true, Fault: f, Text: "it says so", Until: reset}
	}
	ok := Exit{Started: true}
	one := Exit{Started: true, Code: 1}
	killed := Exit{Started: true, Signal: 9}
	idle := Exit{Started: true, Signal: 15, Idle: time.Minute}
	stopped := Exit{Started: true, Signal: 15, Stopped: "cancelled"}
	lost := Exit{Started: true, Lost: true}
	for _, tt := range []struct {
		name    string
		events  []Event
		exit    Exit
		success bool
		kind    Fault
		message string // part of it
		until   time.Time
	}{
		{"a good result", []Event{said, good}, ok, true, "", "", time.Time{}},
		{"free text of a healthy answer is not matched", []Event{{Kind: Result, Text: said.Text}}, ok, true, "", "", time.Time{}},
		{"a result with its beginning only", []Event{{Kind: Result, Cut: 5}}, ok, true, "", "", time.Time{}},
		{"a limit that the engine got over", []Event{limit, said, good}, ok, true, "", "", time.Time{}},
		{"a limit in front of a good result", []Event{limit, good}, ok, true, "", "", time.Time{}},
		{"the second result counts", []Event{bad, good}, ok, true, "", "", time.Time{}},

		{"exit 1 after a good result", []Event{good}, one, false, ByAgent, "exit status 1", time.Time{}},
		{"a signal after a good result", []Event{good}, killed, false, ByAgent, "signal 9", time.Time{}},
		{"an error as result, exit 0", []Event{bad}, ok, false, ByAgent, "I could not", time.Time{}},
		{"an error as result, exit 1", []Event{bad}, one, false, ByAgent, "I could not", time.Time{}},
		{"an error without words", []Event{{Kind: Result, Failed: true}}, ok, false, ByAgent, "the engine reports an error", time.Time{}},
		{"an error whose words came before", []Event{trouble, {Kind: Result, Failed: true}}, one, false, ByAgent, "stream disconnected", time.Time{}},

		{"limit as result, exit 0", []Event{failed(ByLimit)}, ok, false, ByLimit, "it says so", reset},
		{"limit as result, exit 1", []Event{failed(ByLimit)}, one, false, ByLimit, "it says so", reset},
		{"throttle as result", []Event{failed(ByThrottle)}, ok, false, ByThrottle, "it says so", reset},
		{"login as result", []Event{failed(ByLogin)}, ok, false, ByLogin, "it says so", reset},
		{"permission as result", []Event{failed(ByPermission)}, ok, false, ByPermission, "it says so", reset},
		{"limit told before a result that gives no reason", []Event{limit, bad}, one, false, ByLimit, "I could not", reset},
		{"limit told, then got over, then another error", []Event{limit, said, bad}, one, false, ByAgent, "I could not", time.Time{}},

		{"login told, exit 1, no result", []Event{login}, one, false, ByLogin, "exit status 1, engine retrying: 401, attempt 5 of 10: invalid key", time.Time{}},
		{"limit told, exit 0, no result", []Event{limit}, ok, false, ByLimit, "engine limited until 2026-05-04T15:00:00Z: used up", reset},
		{"throttled, killed", []Event{over}, killed, false, ByThrottle, "signal 9, engine reports rate limiting: overloaded", time.Time{}},
		{"not allowed, exit 1", []Event{asks}, one, false, ByPermission, "a missing permission", time.Time{}},
		{"trouble, exit 1", []Event{trouble}, one, false, ByAgent, "exit status 1: stream disconnected", time.Time{}},

		{"no result, exit 0", []Event{said}, ok, false, NoResult, "exit status 0 and no result", time.Time{}},
		{"an empty result, exit 0", []Event{said, empty}, ok, false, NoResult, "an empty result", time.Time{}},
		{"no result, exit 1", []Event{said}, one, false, ByAgent, "exit status 1", time.Time{}},
		{"no result, killed", []Event{said}, killed, false, ByAgent, "signal 9", time.Time{}},
		{"no result, output lost", []Event{said}, lost, false, OutputLost, "could not be read", time.Time{}},
		{"a result, output lost after it", []Event{good}, lost, true, "", "", time.Time{}},

		{"silent", []Event{said}, idle, false, Stalled, "nothing new for 1m0s", time.Time{}},
		{"silent while it tries again", []Event{login}, idle, false, ByLogin, "nothing new for 1m0s, engine retrying: 401", time.Time{}},
		{"silent after an error as result", []Event{failed(ByLimit)}, idle, false, ByLimit, "it says so", reset},
		{"cancelled", []Event{said}, stopped, false, "", "cancelled", time.Time{}},
		{"cancelled while limited", []Event{limit}, stopped, false, ByLimit, "cancelled, engine limited until", reset},
		{"cancelled after an error as result", []Event{bad}, stopped, false, ByAgent, "I could not", time.Time{}},

		{"not started", nil, Exit{}, false, NotStarted, "did not start", time.Time{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := fold(tt.events...).End(tt.exit)
			if e.Succeeded != tt.success || e.Kind != tt.kind || !e.Until.Equal(tt.until) {
				t.Errorf("%+v", e)
			}
			if !strings.Contains(e.Message, tt.message) || tt.success != (e.Message == "") || strings.ContainsAny(e.Message, "\n\x1b") {
				t.Errorf("message %q, want %q in it", e.Message, tt.message)
			}
		})
	}
}

// TestEndingsOfWhatWasPrinted go from the bytes to the ending: C100, C101, C128.
func TestEndingsOfWhatWasPrinted(t *testing.T) {
	const result = `{"type":"result","result":"ok"}`
	for _, tt := range []struct {
		name, stdout, stderr string
		exit                 Exit
		success              bool
		kind                 Fault
		message              string
	}{
		{"a result", result + "\n", "", Exit{Started: true}, true, "", ""},
		{"a result without its newline", "\n" + result, "", Exit{Started: true}, true, "", ""},
		{"half a result", result[:20], "", Exit{Started: true}, false, NoResult, `its last line was not finished: "{\"type\":\"result\",\"r`},
		{"half a result, killed", result[:20], "", Exit{Started: true, Signal: 9}, false, ByAgent, "signal 9; its last line"},
		{"nothing", "", "", Exit{Started: true}, false, NoResult, "it printed nothing"},
		{"only newlines", "\n\n", "", Exit{Started: true}, false, NoResult, "no result"},
		{"noise", "null\n[]\n\x1b]0;t\a\n" + result + "\nbye\n", "", Exit{Started: true}, true, "", ""},
		{"a question", "Trust this folder? ", "", Exit{Started: true, Idle: time.Minute}, false, Stalled, `"Trust this folder?"`},
		{"words on stderr", "", "\x1b[31mError:\x1b[0m no such model\n\n", Exit{Started: true, Code: 1}, false, ByAgent, "exit status 1: Error: no such model"},
		{"a limit on stderr", "", "429 slow down\n", Exit{Started: true, Code: 1}, false, ByThrottle, "slow down"},
		{"a line that cannot be shortened", `{"a":[` + strings.Repeat("1,", 2000) + "1]}\n", "", Exit{Started: true}, false, OutputLost, "could not be read"},
	} {
		r := NewReader(&plainDecoder{}, Options{Bound: 1000})
		_, _ = r.Write([]byte(tt.stdout))
		_, _ = r.Stderr().Write([]byte(tt.stderr))
		_ = r.Close()
		s := r.Summary()
		e := s.End(tt.exit)
		if e.Succeeded != tt.success || e.Kind != tt.kind || !strings.Contains(e.Message, tt.message) {
			t.Errorf("%s: %+v", tt.name, e)
		}
	}
}

// TestEndingWithoutDecoder: an engine without a stream is judged by its process.
func TestEndingWithoutDecoder(t *testing.T) {
	for _, tt := range []struct {
		exit Exit
		kind Fault
	}{
		{Exit{Started: true}, ""},
		{Exit{Started: true, Lost: true}, ""},
		{Exit{Started: true, Code: 75}, ByAgent},
		{Exit{Started: true, Signal: 11}, ByAgent},
		{Exit{Started: true, Idle: time.Second}, Stalled},
		{Exit{}, NotStarted},
	} {
		r := NewReader(nil, Options{Bound: 100})
		_, _ = r.Write([]byte(strings.Repeat("{", 500) + "\n" + `{"type":"result","is_error":true}` + "\n"))
		_, _ = r.Stderr().Write([]byte("429 \n"))
		_ = r.Close()
		s := r.Summary()
		if e := s.End(tt.exit); e.Succeeded != (tt.kind == "") || e.Kind != tt.kind {
			t.Errorf("%+v: %+v", tt.exit, e)
		}
		if s.Progress.IsZero() || s.Counts.Lines != 2 {
			t.Errorf("progress %v, %+v", s.Progress, s.Counts)
		}
	}
}

// TestStateSaysWhatHoldsTheEngineUp, and only while it does.
func TestStateSaysWhatHoldsTheEngineUp(t *testing.T) {
	retry := Event{Kind: Trouble, Fault: ByLogin, Status: 401, Retry: &Retry{Attempt: 5, Of: 10}}
	for _, tt := range []struct {
		name   string
		events []Event
		state  string
		fault  Fault
	}{
		{"nothing", []Event{{Kind: Session, Session: "s"}}, "", ""},
		{"a retry", []Event{retry}, "engine retrying: 401, attempt 5 of 10", ByLogin},
		{"a retry of unknown end", []Event{{Kind: Trouble, Fault: ByThrottle, Retry: &Retry{Attempt: 2}}}, "engine retrying: throttle, attempt 2", ByThrottle},
		{"a retry for no reason", []Event{{Kind: Trouble, Retry: &Retry{}}}, "engine retrying: no reason given", ""},
		{"it worked", []Event{retry, {Kind: Text, Text: "hello"}}, "", ByLogin},
		{"it gave up", []Event{retry, {Kind: Result, Failed: true, Fault: ByLogin}}, "", ByLogin},
		{"it is done", []Event{retry, {Kind: Result, Text: "ok"}}, "", ByLogin},
		{"rate limiting", []Event{{Kind: Limit, Fault: ByThrottle, Status: 429}}, "engine reports rate limiting", ByThrottle},
		{"a limit with its reset", []Event{{Kind: Limit, Fault: ByLimit, Until: noon}}, "engine limited until 2026-05-04T12:00:00Z", ByLimit},
		{"a limit without", []Event{{Kind: Limit, Fault: ByLimit}}, "engine reports a used-up limit", ByLimit},
	} {
		s := fold(tt.events...)
		if got := s.State(); got != tt.state {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.state)
		}
		if (s.Fault == nil) != (tt.fault == "") || s.Fault != nil && s.Fault.Fault != tt.fault {
			t.Errorf("%s: fault %+v", tt.name, s.Fault)
		}
	}
}

// TestSummaryKeepsWhatWasToldLast of session and usage, and forgets nothing that a
// later event does not tell.
func TestSummaryKeepsWhatWasToldLast(t *testing.T) {
	s := fold(
		Event{Kind: Session, Session: "a", Model: "m", Version: "1"},
		Event{Kind: Spent, Usage: &Usage{Input: 10, Cached: 5, Output: 1, Turns: 1}},
		Event{Kind: Result, Session: "b", Text: "ok", Usage: &Usage{Input: 30, Output: 4, Cost: 0.5}},
	)
	if s.Session != "b" || s.Model != "m" || s.Version != "1" || *s.Usage != (Usage{Input: 30, Cached: 5, Output: 4, Cost: 0.5, Turns: 1}) {
		t.Errorf("%+v, %+v", s, s.Usage)
	}
	if !s.Last.Equal(noon.Add(2 * time.Second)) {
		t.Errorf("last event at %v", s.Last)
	}
}
