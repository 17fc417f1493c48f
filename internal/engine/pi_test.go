package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

func TestPiIsAskedOnItsStdin(t *testing.T) { // E2, C108, C109, C137
	long := strings.Repeat("x", 3<<20)
	for _, tt := range []struct {
		name  string
		ask   Ask
		argv  []string
		stdin string
		files map[string][]byte
	}{
		{"plain", Ask{Prompt: []byte("do it")}, words("pi -p --mode json"), "do it", nil},
		{"what looks like a flag", Ask{Prompt: []byte("-x @file do it")}, words("pi -p --mode json"), "-x @file do it", nil},
		{"a long one", Ask{Prompt: []byte(long)}, words("pi -p --mode json"), long, nil},
		{"all of it", Ask{Prompt: []byte("go on"), Model: "stub/m", Resume: "id-1", Binary: "/opt/pi", Args: words("--thinking high"), System: "Be brief.", Files: "/files"},
			words("/opt/pi -p --mode json --model stub/m --session id-1 --append-system-prompt /files/instructions --thinking high"), "go on",
			map[string][]byte{"/files/instructions": []byte("Be brief.")}},
		{"no place for files", Ask{Prompt: []byte("go on"), System: "Be brief."}, words("pi -p --mode json"), "Be brief.\n\ngo on", nil},
	} {
		c, err := piBuild(tt.ask)
		if err != nil || !slices.Equal(c.Argv, tt.argv) || string(c.Stdin) != tt.stdin || len(c.Files) != len(tt.files) {
			t.Errorf("%s: %q, %v, files %q, want %q", tt.name, c.Argv, err, c.Files, tt.argv)
		}
		for path, data := range tt.files {
			if string(c.Files[path]) != string(data) {
				t.Errorf("%s: %s holds %q", tt.name, path, c.Files[path])
			}
		}
		if !piStreams(c.Argv[1:]) {
			t.Errorf("%s: what was built is not read", tt.name)
		}
	}
}

func TestPiStreamsAreKnown(t *testing.T) {
	for args, want := range map[string]bool{
		"-p --mode json x": true, "--mode json": true, "--mode text --mode json": true, "--mode json --mode other": true,
		"--mode json --mode rpc": false, "-p x": false, "": false, "--mode": false, "--model --mode json": false, "-t --mode json": false, "--mode=json": false,
	} {
		if got := piStreams(words(args)); got != want {
			t.Errorf("%q: %v, want %v", args, got, want)
		}
	}
}

// TestPiIsNeverLightByItself: the refusal says what it must be (E5).
func TestPiIsNeverLightByItself(t *testing.T) {
	for _, argv := range []string{"pi -p x", "npx @mariozechner/pi-coding-agent -p x", "pi --no-tools -p x"} {
		_, _, err := Known{Resolve: noDisk(t)}.Light("pi", words(argv), "/w", "/files")
		if unconfined, ok := errors.AsType[*Unconfined](err); !ok || unconfined.Engine != "pi" || !strings.Contains(err.Error(), "must be heavy") {
			t.Errorf("%s: %v", argv, err)
		}
	}
}

// TestPiEndings are recorded runs of pi 0.73.1 against the model stub; all of
// them ended with status 0, but for the one that could not begin.
func TestPiEndings(t *testing.T) { // E10, E11
	soon := noon.Add(3200 * time.Millisecond)
	for _, tt := range []ending{
		{"plain", 0, "session usage text result", "", time.Time{}, "Hello there."},
		{"tool", 0, "session usage text tool usage text result", "", time.Time{}, "Done."},
		{"resumed", 0, "session usage text result", "", time.Time{}, "Hello there."},
		{"retried", 0, "session limit usage text result", "", time.Time{}, "Then it went on."},
		{"long", 0, "session usage text result", "", time.Time{}, "9e3779b97f4a7c15"},
		{"throttle", 0, "session limit result", stream.ByThrottle, soon, "Rate limit reached"},
		{"anthropic-throttle", 0, "session limit result", stream.ByThrottle, soon, "Rate limit reached"},
		{"login", 0, "session error result", stream.ByLogin, time.Time{}, "API key not valid"},
		{"anthropic-login", 0, "session error result", stream.ByLogin, time.Time{}, "API key not valid"},
		{"no-key", 1, "error session", stream.ByLogin, time.Time{}, "No API key found for anthropic"},
		{"overloaded", 0, "session limit result", stream.ByThrottle, time.Time{}, "529 Overloaded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.check(t, replay(t, &piDecoder{now: func() time.Time { return noon }}, "pi/"+tt.name))
		})
	}
}

// TestPiIsNotDoneBeforeItIs: a result is followed by an event where pi goes on by
// itself, so that its process is not taken for one that stays.
func TestPiIsNotDoneBeforeItIs(t *testing.T) {
	d := newPiDecoder()
	line := func(text string) []stream.Event {
		kind, _, _ := strings.Cut(strings.TrimPrefix(text, `{"type":"`), `"`)
		return d.Line(stream.Line{Data: []byte(text), Type: []byte(kind)})
	}
	said := func(text string) string {
		return `{"type":"message_end","message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"` + text + `"}],"stopReason":"stop"}}`
	}
	line(`{"type":"session","id":"s-1"}`)
	if got := line(`{"type":"agent_start"}`); got != nil {
		t.Errorf("at the beginning: %+v", got)
	}
	line(said("one"))
	if got := line(`{"type":"agent_end","messages":[]}`); len(got) != 1 || got[0].Kind != stream.Result || got[0].Text != "one" {
		t.Errorf("the first: %+v", got)
	}
	for _, on := range []string{`{"type":"compaction_start","reason":"threshold"}`, `{"type":"agent_start"}`} {
		got := line(on)
		if want := on[9] == 'c'; want != (len(got) == 1) || want && (got[0].Kind != stream.Session || got[0].Session != "s-1") {
			t.Errorf("%s after the result: %+v", on, got)
		}
	}
	line(said("two"))
	if got := line(`{"type":"agent_end","messages":[]}`); len(got) != 1 || got[0].Text != "two" {
		t.Errorf("the second: %+v", got)
	}
	if got := d.End(); got != nil {
		t.Errorf("at the end: %+v", got)
	}
}

// TestPiCountsWhatItTook: the usage of all messages, cached tokens among those
// that came in.
func TestPiCountsWhatItTook(t *testing.T) {
	d := newPiDecoder()
	var last stream.Event
	for range 2 {
		for _, e := range d.Line(stream.Line{Type: []byte("message_end"), Data: []byte(
			`{"message":{"role":"assistant","stopReason":"stop","content":[],"usage":{"input":10,"output":5,"cacheRead":100,"cacheWrite":7,"cost":{"total":0.25}}}}`)}) {
			last = e
		}
	}
	if want := (stream.Usage{Input: 234, Cached: 200, Output: 10, Cost: 0.5, Turns: 2}); last.Usage == nil || *last.Usage != want {
		t.Errorf("%+v, want %+v", last.Usage, want)
	}
}

func FuzzPiStream(f *testing.F) { fuzzDecoder(f, "pi", newPiDecoder) }
