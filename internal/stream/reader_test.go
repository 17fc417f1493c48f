package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// plainDecoder makes of each object the event that it spells out.
type plainDecoder struct {
	lines []Line
	atEnd []Event
}

func (d *plainDecoder) Line(l Line) []Event {
	l.Data, l.Type = bytes.Clone(l.Data), bytes.Clone(l.Type)
	d.lines = append(d.lines, l)
	var e struct {
		Type, Text, Result string
		IsError            bool `json:"is_error"`
		Fault              Fault
		Attempt            int
	}
	if err := json.Unmarshal(l.Data, &e); err != nil {
		panic(fmt.Sprintf("%.200q was handed over: %v", l.Data, err))
	}
	switch Kind(e.Type) {
	case Text, Tool, Session:
		return []Event{{Kind: Kind(e.Type), Text: e.Text}}
	case Limit, Trouble:
		ev := Event{Kind: Kind(e.Type), Text: e.Text, Fault: e.Fault}
		if e.Attempt > 0 {
			ev.Retry = &Retry{Attempt: e.Attempt}
		}
		return []Event{ev}
	case Result:
		return []Event{{Kind: Result, Text: e.Result, Failed: e.IsError, Fault: e.Fault}}
	}
	return nil
}

func (d *plainDecoder) Stderr(text []byte) []Event {
	if rest, ok := bytes.CutPrefix(text, []byte("429 ")); ok {
		return []Event{{Kind: Limit, Fault: ByThrottle, Status: 429, Text: string(rest)}}
	}
	return nil
}

func (d *plainDecoder) End() []Event { return d.atEnd }

// read gives a Reader the whole input, in one write or byte by byte.
func read(input []byte, bound int, bytewise bool) (Summary, []Event, *plainDecoder) {
	var events []Event
	d := &plainDecoder{}
	r := NewReader(d, Options{Bound: bound, Emit: func(e Event) { events = append(events, e) }})
	if bytewise {
		for i := range input {
			_, _ = r.Write(input[i : i+1])
		}
	} else {
		_, _ = r.Write(input)
	}
	_ = r.Close()
	return r.Summary(), events, d
}

// TestNothingEndsTheReading: C098 to C101. What stands between two good lines is
// counted by its sort, both lines arrive, and those that can be recovered too.
func TestNothingEndsTheReading(t *testing.T) {
	noise := make([]byte, 4096)
	random := rand.New(rand.NewSource(1))
	for i := range noise {
		if noise[i] = byte(random.Intn(256)); noise[i] == '\n' {
			noise[i] = 0xff
		}
	}
	const (
		first  = `{"type":"text","text":"中文🎉é"}`
		middle = `{"type":"text","text":"middle"}`
		result = `{"type":"result","result":"ok"}`
	)
	for _, tt := range []struct {
		name  string
		input string
		texts string // of the text events between the first and the result
		count Counts // besides Bytes, Lines, Objects and Events
	}{
		{"nothing", "", "", Counts{}},
		{"CR", "\r\n" + middle + "\r\n", "middle", Counts{Empty: 1}},
		{"empty lines", "\n\n  \n", "", Counts{Empty: 3}},
		{"a byte order mark", "\ufeff" + middle + "\n", "middle", Counts{BOMs: 1}},
		{"NUL", "a\x00b\n\x00\x00" + middle + "\n", "middle", Counts{Text: 1, NULs: 2}},
		{"NUL in a string", "{\"type\":\"text\",\"text\":\"a\x00b\"}\n", "", Counts{Broken: 1, NULs: 1}},
		{"raw ESC in a string", "{\"type\":\"text\",\"text\":\"a\x1bb\"}\n", "", Counts{Broken: 1}},
		{"not UTF-8", "{\"type\":\"text\",\"text\":\"a\xffb\"}\n", "a\ufffdb", Counts{NotUTF8: 1}},
		{"overlong form", "{\"type\":\"text\",\"text\":\"\xc0\xaf\"}\n", "\ufffd\ufffd", Counts{NotUTF8: 1}},
		{"half a pair", `{"type":"text","text":"a\ud800b"}` + "\n", "a\ufffdb", Counts{}},
		{"random bytes", string(noise) + "\n", "", Counts{Text: 1, NULs: 1, NotUTF8: 1}},
		{"a title, BEL", "\x1b]0;title\a" + middle + "\n", "middle", Counts{Titles: 1}},
		{"a title, ST", "\x1b]0;{\"type\":\"text\"}\x1b\\" + middle + "\n", "middle", Counts{Titles: 1}},
		{"a title that does not end", "\x1b]0;title" + middle + "\n", "", Counts{Text: 1}},
		{"colours", "\x1b[2K\x1b[1;31m\x1b(B\x1b7" + middle + "\n", "middle", Counts{Titles: 1}},
		{"only a title", "\x1b]0;title\a\n", "", Counts{Empty: 1}},
		{"text", "npm notice: a new version\n", "", Counts{Text: 1}},
		{"text in front", "warning: " + middle + "\n", "", Counts{Text: 1}},
		{"values", "null\n[]\n[" + middle + "]\n42\n\"x\"\ntrue\n", "", Counts{Values: 6}},
		{"two objects", middle + middle + "\n", "middle middle", Counts{Joined: 1}},
		{"two and a title", middle + " \t\x1b]0;t\a" + middle + "\n", "middle middle", Counts{Joined: 1, Titles: 1}},
		{"text behind", middle + "tail\n", "middle", Counts{Text: 1}},
		{"three lines", "{\"type\":\n\"text\",\"text\":\n\"x\"}\n", "", Counts{Broken: 1, Text: 2}},
		{"an event inside a broken one", `{"type":"x","message":` + middle + "\n", "", Counts{Broken: 1}},
		{"brackets that do not match", `{"a":[1}]}` + middle + "\n", "", Counts{Broken: 1}},
		{"too deep", `{"a":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + "}\n", "", Counts{Broken: 1}},
		{"deep", `{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}\n", "", Counts{}},
		{"beyond the bound", `{"type":"text","text":"` + strings.Repeat("x", 20000) + `"}` + "\n", strings.Repeat("x", 5000), Counts{Cut: 1}},
		{"beyond the bound, CR", `{"type":"text","text":"` + strings.Repeat("x", 20000) + "\"}\r\n", strings.Repeat("x", 5000), Counts{Cut: 1}},
		{"behind a long one", `{"type":"text","text":"` + strings.Repeat("x", 20000) + `"}` + middle + "\n", strings.Repeat("x", 5000) + " middle", Counts{Cut: 1, Joined: 1}},
		{"a long one behind", middle + "\x1b]0;t\a" + `{"type":"text","text":"` + strings.Repeat("x", 20000) + `"}` + "\n", "middle " + strings.Repeat("x", 5000), Counts{Cut: 1, Joined: 1, Titles: 1}},
		{"long text", strings.Repeat("x", 20000) + middle + "\n", "", Counts{Text: 1}},
		{"long and broken", `{"type":"text","text":"` + strings.Repeat("x", 20000) + `",}` + "\n", "", Counts{Broken: 1}},
		{"long and not closed", `{"type":"text","text":"` + strings.Repeat("x", 20000) + "\n", "", Counts{Broken: 1}},
		{"too long", `{"type":"text","list":[` + strings.Repeat("1,", 20000) + `1]}` + middle + "\n", "", Counts{TooLong: 1}},
	} {
		for _, bytewise := range []bool{false, true} {
			input := first + "\n" + tt.input + result + "\n"
			sum, events, d := read([]byte(input), 10000, bytewise)
			var texts []string
			for _, e := range events {
				if e.Kind == Text {
					texts = append(texts, e.Text)
				}
			}
			if want := strings.TrimSuffix("中文🎉é "+tt.texts, " "); strings.Join(texts, " ") != want {
				t.Errorf("%s: texts %.300q, want %.300q", tt.name, strings.Join(texts, " "), want)
			}
			got := sum.Counts
			if got.Bytes != int64(len(input)) || got.Lines != int64(strings.Count(input, "\n")) || got.Events != int64(len(events)) || got.Objects != int64(len(d.lines)) {
				t.Errorf("%s: %+v of %d bytes", tt.name, got, len(input))
			}
			got.Bytes, got.Lines, got.Objects, got.Events, got.Repeated = 0, 0, 0, 0, 0
			if got != tt.count {
				t.Errorf("%s, bytewise %v: counted %+v, want %+v", tt.name, bytewise, got, tt.count)
			}
			if sum.Result == nil || sum.Result.Text != "ok" {
				t.Errorf("%s: the result is %+v", tt.name, sum.Result)
			}
			for _, l := range d.lines {
				if there := input[l.Offset : l.Offset+l.Len]; there[0] != '{' || there[len(there)-1] != '}' || l.Cut == 0 && there != string(l.Data) {
					t.Errorf("%s: at %d, %d bytes: %.80q, handed over as %.80q", tt.name, l.Offset, l.Len, there, l.Data)
				}
			}
		}
	}
}

// TestLastLineNeedsNoNewline: C100, C128.
func TestLastLineNeedsNoNewline(t *testing.T) {
	for _, tt := range []struct {
		input  string
		result bool
		tail   string
		n      int64
	}{
		{`{"type":"result","result":"ok"}`, true, "", 0},
		{`{"type":"result","result":"` + strings.Repeat("x", 500) + `"}`, true, "", 0},
		{`{"type":"result","result":"o`, false, `{"type":"result","result":"o`, 28},
		{`{"type":"result","result":"` + strings.Repeat("x", 500), false, `{"type":"result","result":"` + strings.Repeat("x", leastHead), 527},
		{`{"type":"result","result":"ok"}{"ty`, true, `{"ty`, 4},
		{"Do you trust \x1b[1mthis\x1b[0m folder? [y/n] ", false, "Do you trust this folder? [y/n]", 40},
		{"", false, "", 0},
		{"\n\n\n", false, "", 0},
		{`{"type":"result",}`, false, "", 0},
	} {
		for _, bytewise := range []bool{false, true} {
			sum, _, _ := read([]byte(tt.input), 128, bytewise)
			if (sum.Result != nil) != tt.result || sum.Tail != tt.tail || sum.Counts.Partial != tt.n {
				t.Errorf("%.60q: result %v, tail %q, %d bytes; want %v, %q, %d", tt.input, sum.Result, sum.Tail, sum.Counts.Partial, tt.result, tt.tail, tt.n)
			}
		}
	}
}

// someLine draws a line, good or damaged.
func someLine(t *rapid.T) string {
	value := func(n int) string {
		text, err := json.Marshal(strings.Repeat(rapid.SampledFrom([]string{"x", "é", "🎉", "\\", "\"", "\x01"}).Draw(t, "letter"), n))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	object := `{"type":"text","text":` + value(rapid.IntRange(0, 900).Draw(t, "length")) + `,"n":[1,{"b":null}]}`
	switch rapid.IntRange(0, 7).Draw(t, "sort") {
	case 0:
		return string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"))
	case 1:
		return object[:rapid.IntRange(0, len(object)).Draw(t, "cut")]
	case 2:
		return "\x1b]0;t\a" + object + "\r"
	case 3:
		return object + object
	case 4:
		return strings.Repeat(`{"type":"text","text":"a"} `, rapid.IntRange(0, 30).Draw(t, "times"))
	case 5:
		return `{"type":"text","a":[` + strings.Repeat(`"\ud83d\ude00`+value(3)[1:]+",", rapid.IntRange(0, 200).Draw(t, "times")) + `1]}`
	}
	return object
}

func shown(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%d+%d-%d %s %q\n", l.Offset, l.Len, l.Cut, l.Type, l.Data)
	}
	return b.String()
}

// TestWritesMayBeCutAnywhere: C098. The same bytes make the same events, at the
// same places, however they arrive.
func TestWritesMayBeCutAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var input []byte
		for range rapid.IntRange(0, 6).Draw(t, "lines") {
			input = append(input, someLine(t)...)
			input = append(input, '\n')
		}
		input = append(input, someLine(t)...)
		const bound = 512
		want, events, lines := read(input, bound, false)
		var got []Event
		d := &plainDecoder{}
		r := NewReader(d, Options{Bound: bound, Emit: func(e Event) { got = append(got, e) }})
		for rest := input; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "write")
			_, _ = r.Write(rest[:n])
			rest = rest[n:]
		}
		_ = r.Close()
		if fmt.Sprint(got) != fmt.Sprint(events) || shown(d.lines) != shown(lines.lines) {
			t.Errorf("got %s, want %s", shown(d.lines), shown(lines.lines))
		}
		a, b := r.Summary().Counts, want.Counts
		if a != b {
			t.Errorf("counted %+v, want %+v", a, b)
		}
	})
}

// TestDamageHurtsNoOtherLine: C099. Whatever stands in a line, the lines before
// and after it arrive.
func TestDamageHurtsNoOtherLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		damage := bytes.ReplaceAll(rapid.SliceOf(rapid.Byte()).Draw(t, "damage"), []byte("\n"), nil)
		if rapid.Bool().Draw(t, "object") {
			damage = append([]byte(`{"type":"text","text":"`), damage...)
		}
		input := append([]byte(`{"type":"session"}`+"\n"), damage...)
		input = append(input, "\n"+`{"type":"result","result":"ok"}`+"\n"...)
		_, events, _ := read(input, 64, rapid.Bool().Draw(t, "bytewise"))
		if len(events) < 2 || events[0].Kind != Session || events[len(events)-1].Kind != Result {
			t.Errorf("events %+v", events)
		}
	})
}

// FuzzReader looks for input that ends the reading, or whose events depend on how
// it arrives. What is handed over must be proper JSON: the decoder panics if not.
func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"type":"text","text":"a"}`+"\n"), uint8(3), uint8(20))
	f.Add([]byte("\x1b]0;t\a{\"type\":\"text\"}{\n\xff\x00\n[]"), uint8(1), uint8(0))
	f.Add([]byte(`{"a":["`+strings.Repeat(`\ud83d\ude00é`, 60)+`",-1.5e3]} {"type":"result"}`), uint8(7), uint8(90))
	f.Fuzz(func(t *testing.T, input []byte, step, bound uint8) {
		most := int(bound) + 32
		want, events, _ := read(input, most, false)
		var got []Event
		r := NewReader(&plainDecoder{}, Options{Bound: most, Emit: func(e Event) { got = append(got, e) }})
		for rest := input; len(rest) > 0; {
			n := min(int(step)+1, len(rest))
			_, _ = r.Write(rest[:n])
			rest = rest[n:]
		}
		_ = r.Close()
		if fmt.Sprint(got) != fmt.Sprint(events) || r.Summary().Counts != want.Counts {
			t.Errorf("in steps of %d: %v, %+v; at once: %v, %+v", int(step)+1, got, r.Summary().Counts, events, want.Counts)
		}
	})
}

// TestScanAgreesWithTheStandardLibrary about what an object is.
func TestScanAgreesWithTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte("{" + rapid.StringOfN(rapid.SampledFrom([]rune(`"\u0aef{}[]:,-+.1e tnruls/`+"\t\x01é")), 0, 24, -1).Draw(t, "rest"))
		agree(t, b)
	})
	for _, s := range []string{`{}`, `{"a":-0.5e+7}`, `{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":tru}`, `{"a":"\u12g4"}`, `{"a":"\x"}`, `{,}`, `{"a":1,}`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a" 1}`, `{a:1}`, `{"a":1e}`, `{"a":{}}`, `{"a":[]}`, `{"type":"x","b":{"type":"y"}}`} {
		agree(t, []byte(s))
	}
}

func agree(t interface{ Errorf(string, ...any) }, b []byte) {
	n, kind, f := object(b)
	var top map[string]json.RawMessage
	err := json.Unmarshal(b, &top)
	if ok := f == whole && len(bytes.TrimSpace(b[n:])) == 0; ok != (err == nil) {
		t.Errorf("%q: %d, %v; the standard library says %v", b, n, f, err)
	}
	if err == nil && kind != nil && top["type"] == nil {
		t.Errorf("%q: type %q", b, kind)
	}
	// The beginning of an object is not broken.
	for i := 1; err == nil && i < n; i++ {
		if _, _, f := object(b[:i]); f != unfinished {
			t.Errorf("%q: %v", b[:i], f)
		}
	}
}

// TestTypeIsTheOneAtTheTop: the first string under "type" is told.
func TestTypeIsTheOneAtTheTop(t *testing.T) {
	for input, want := range map[string]string{
		`{"type":"result","a":1}`:                      "result",
		`{"a":{"type":"inner"},"type":"outer"}`:        "outer",
		`{"a":[{"type":"inner"}]}`:                     "",
		`{"type":{"type":"inner"},"b":"type","c":"d"}`: "",
		`{"b":"type","c":"d"}`:                         "",
		`{"type":7}`:                                   "",
	} {
		if _, kind, f := object([]byte(input)); string(kind) != want || f != whole {
			t.Errorf("%s: %q, %v", input, kind, f)
		}
	}
}

// TestProgressIsWhatIsNew: E12, C048, C126.
func TestProgressIsWhatIsNew(t *testing.T) {
	for _, tt := range []struct {
		name     string
		stdout   func(i int) string
		stderr   func(i int) string
		progress bool // all the time, or only at the first
	}{
		{"events", func(i int) string { return fmt.Sprintf(`{"type":"text","text":"%d"}`+"\n", i) }, nil, true},
		{"unknown objects", func(i int) string { return fmt.Sprintf(`{"n":%d}`+"\n", i) }, nil, true},
		{"text", func(i int) string { return fmt.Sprintf("step %d\n", i) }, nil, true},
		{"retries that count", func(i int) string { return fmt.Sprintf(`{"type":"error","text":"401","attempt":%d}`+"\n", i+1) }, nil, true},
		{"a line that grows", func(i int) string { return strings.Repeat("x", 64<<10) }, nil, true},
		{"stderr that tells something new", nil, func(i int) string { return fmt.Sprintf("429 %d\n", i) }, true},
		{"empty lines", func(int) string { return "\n" }, nil, false},
		{"blank lines", func(i int) string { return strings.Repeat(" ", i) + "\r\n" }, nil, false},
		{"the same event", func(int) string { return `{"type":"text","text":"a"}` + "\n" }, nil, false},
		{"the same trace", func(int) string { return "Error: 429\n  at a\n  at b\n\n" }, nil, false},
		{"the same error in other lines", func(i int) string { return fmt.Sprintf(`{"type":"error","text":"429","id":%d}`+"\n", i) }, nil, false},
		{"a spinner", func(i int) string { return "." }, nil, false},
		{"text on stderr", nil, func(i int) string { return fmt.Sprintf("step %d\n", i) }, false},
		{"the same on stderr", nil, func(i int) string { return "429 Too Many Requests\n" }, false},
		{"nothing", nil, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewReader(&plainDecoder{}, Options{})
				for i := range 20 {
					if tt.stdout != nil {
						fmt.Fprint(r, tt.stdout(i))
					}
					if tt.stderr != nil {
						fmt.Fprint(r.Stderr(), tt.stderr(i))
					}
					time.Sleep(time.Second)
				}
				since := time.Since(r.Progress())
				if tt.progress != (since == time.Second) || !tt.progress && since < 20*time.Second {
					t.Errorf("the last progress was %v ago", since)
				}
			})
		})
	}
}

// TestResultIsTold once, while the process goes on, and with it when nothing has
// happened since.
func TestResultIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(&plainDecoder{}, Options{})
		write := func(s string) { fmt.Fprintln(r, s) }
		write(`{"type":"text"}`)
		select {
		case <-r.Result():
			t.Error("a result before there is one")
		default:
		}
		if !r.Settled().IsZero() {
			t.Error("settled before the result")
		}
		write(`{"type":"result","result":"1"}`)
		<-r.Result()
		time.Sleep(time.Second)
		write("noise") // no event
		if time.Since(r.Settled()) != time.Second {
			t.Errorf("settled for %v", time.Since(r.Settled()))
		}
		write(`{"type":"text","text":"more"}`)
		write(`{"type":"result","result":"2"}`)
		if time.Since(r.Settled()) != 0 || r.Summary().Result.Text != "2" {
			t.Errorf("settled for %v, %+v", time.Since(r.Settled()), r.Summary().Result)
		}
	})
}

// TestFlushComesOnceForMany: after the events of one write, and only if there were
// any.
func TestFlushComesOnceForMany(t *testing.T) {
	var log []string
	d := &plainDecoder{atEnd: []Event{{Kind: Result}}}
	r := NewReader(d, Options{
		Emit:  func(e Event) { log = append(log, string(e.Kind)) },
		Flush: func() { log = append(log, "flush") },
	})
	fmt.Fprint(r, "{\"type\":\"text\"}\n{\"type\":\"tool\"}\n{\"ty")
	fmt.Fprint(r, "pe\":")
	fmt.Fprint(r.Stderr(), "429 a\nnoise\n")
	_ = r.Close()
	_ = r.Close()
	if got, want := strings.Join(log, " "), "text tool flush limit flush result flush"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// TestBothOutputsAtOnce: E9, C102. Each keeps its order, and the decoder has one
// caller at a time.
func TestBothOutputsAtOnce(t *testing.T) {
	d := &plainDecoder{} // not safe for two: the race detector looks
	var texts, limits []string
	r := NewReader(d, Options{Emit: func(e Event) {
		if e.Kind == Limit {
			limits = append(limits, e.Text)
		} else {
			texts = append(texts, e.Text)
		}
	}})
	const n = 500
	var both sync.WaitGroup
	both.Go(func() {
		for i := range n {
			fmt.Fprintf(r, `{"type":"text","text":"%d"}`+"\n", i)
		}
	})
	both.Go(func() {
		for i := range n {
			fmt.Fprintf(r.Stderr(), "429 %d\nnoise %d\n", i, i)
		}
	})
	both.Wait()
	_ = r.Close()
	for i := range n {
		if want := fmt.Sprint(i); len(texts) != n || len(limits) != n || texts[i] != want || limits[i] != want {
			t.Fatalf("%d and %d events; the %dth are %q and %q", len(texts), len(limits), i, texts[i], limits[i])
		}
	}
	if s := r.Summary(); s.Counts.Stderr != 2*n || len(s.Said) != mostSaid || s.Said[4] != "noise 499" {
		t.Errorf("%+v, said %q", s.Counts, s.Said)
	}
}

// TestStderrIsBounded: a line without end takes 64 KiB, and what follows arrives.
func TestStderrIsBounded(t *testing.T) {
	d := &plainDecoder{}
	r := NewReader(d, Options{})
	for range 1000 {
		fmt.Fprint(r.Stderr(), strings.Repeat("x", 10000))
	}
	if n := len(r.stderr.line); n != mostText {
		t.Errorf("%d bytes are kept", n)
	}
	fmt.Fprint(r.Stderr(), "\n429 wait\r\nlast")
	_ = r.Close()
	s := r.Summary()
	if s.Fault == nil || s.Fault.Text != "wait" || s.Said[len(s.Said)-1] != "last" || len(s.Said[0]) != mostShown {
		t.Errorf("%+v, said %q", s.Fault, s.Said)
	}
}

// TestHundredMegabytesInALine: E9. The line yields its event, what comes after it
// arrives, and the memory stays within what Reader states.
func TestHundredMegabytesInALine(t *testing.T) {
	if testing.Short() {
		t.Skip("100 MiB")
	}
	var events []Event
	r := NewReader(&plainDecoder{}, Options{Emit: func(e Event) { events = append(events, e) }})
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const size = 100 << 20
	head, tail := `{"type":"result","result":"`, `","is_error":true,"fault":"limit"}`
	part := bytes.Repeat([]byte("0123456789abcde\\n"), 2048)
	most := uint64(0)
	fmt.Fprint(r, head)
	for n := 0; n < size; n += len(part) {
		_, _ = r.Write(part)
		if n%(1<<20) < len(part) {
			runtime.GC() // what is in use, not what was
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc-min(before.HeapAlloc, now.HeapAlloc))
		}
	}
	fmt.Fprint(r, tail+"\n"+`{"type":"text","text":"after"}`+"\n")
	if most > 12<<20 {
		t.Errorf("%d bytes were in use", most)
	}
	if len(events) != 2 || !events[0].Failed || events[0].Fault != ByLimit || events[1].Text != "after" {
		t.Fatalf("%d events", len(events))
	}
	e := events[0]
	if e.Offset != 0 || e.Len < size || e.Cut < size-mostKept || len(e.Text) < mostKept/4 || !strings.HasPrefix(e.Text, "0123456789abcde\n0123") || !utf8.ValidString(e.Text) {
		t.Errorf("at %d, %d bytes, %d cut, %d kept", e.Offset, e.Len, e.Cut, len(e.Text))
	}
	runtime.GC()
	runtime.ReadMemStats(&now)
	e, events = Event{}, nil
	if cap(r.buf) > mostSpare || r.long != nil {
		t.Errorf("a buffer of %d bytes is kept", cap(r.buf))
	}
}

func BenchmarkReader(b *testing.B) {
	line := `{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_01","type":"tool_result","content":"` + strings.Repeat(`a line of a file\n`, 40) + `"}]},"session_id":"0c4a","uuid":"6f6e"}` + "\n"
	chunk := []byte(strings.Repeat(line, 32<<10/len(line)))
	r := NewReader(nullDecoder{}, Options{})
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = r.Write(chunk)
	}
}

type nullDecoder struct{}

func (nullDecoder) Line(Line) []Event     { return nil }
func (nullDecoder) Stderr([]byte) []Event { return nil }
func (nullDecoder) End() []Event          { return nil }
