package slot

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func someRecord(t *rapid.T) Record {
	word := rapid.StringMatching(`[ -~]{0,20}|[a-zé<>&"\\\x00-\x1f]{0,8}`)
	r := Record{
		Cap: rapid.IntRange(0, 1<<31-1).Draw(t, "cap"), Engine: word.Draw(t, "engine"), Workload: word.Draw(t, "workload"),
		HolderPid: rapid.IntRange(0, 1<<22).Draw(t, "holder"), Since: float64(rapid.Int64Range(0, 1<<42).Draw(t, "since")) / 1000,
		ChildTicks: rapid.Uint64Range(0, 1<<49).Draw(t, "ticks"), BootID: word.Draw(t, "boot"), PidNS: rapid.Uint64Range(0, 1<<40).Draw(t, "ns"),
		HolderTicks: rapid.Uint64Range(0, 1<<49).Draw(t, "holder ticks"), Run: word.Draw(t, "run"),
	}
	if rapid.Bool().Draw(t, "has child") {
		pid, started := rapid.IntRange(1, 1<<22).Draw(t, "child"), float64(rapid.Int64Range(0, 1<<40).Draw(t, "started"))/100
		r.ChildPid, r.ChildStarted = &pid, &started
	}
	return r
}

// S6: what is written is what encoding/json would write, is padded to its size,
// and is read back as it was.
func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := someRecord(t)
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.appendTo(nil)); got != string(want) {
			t.Fatalf("written:\n%s\nencoding/json:\n%s", got, want)
		}
		text, err := r.encode()
		if err != nil {
			t.Skip("does not fit, which is refused")
		}
		if len(text) != RecordSize || text[RecordSize-1] != '\n' {
			t.Fatalf("%d bytes, ending in %q", len(text), text[len(text)-1])
		}
		if got := Parse(text); !reflect.DeepEqual(got, &r) {
			t.Fatalf("read back %+v, wrote %+v", got, r)
		}
	})
}

// S6: what only people read is cut short where a record would not fit; what
// counts never is.
func TestLongArgv0IsCut(t *testing.T) {
	r := Record{Cap: 3, Engine: "codex", Workload: "heavy", HolderPid: 7, Argv0: strings.Repeat("x", 2000)}
	text, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	got := Parse(text)
	if got == nil || got.Cap != 3 || got.HolderPid != 7 || !strings.HasPrefix(r.Argv0, got.Argv0) || len(got.Argv0) < 100 {
		t.Errorf("read back %+v", got)
	}
	r.Argv0, r.Run = "", strings.Repeat("x", 2000)
	if _, err := r.encode(); err == nil {
		t.Error("a record was written that does not fit")
	}
}

// S6: records of another implementation, with the seven fields alone and in
// its own spelling.
func TestSevenFieldRecord(t *testing.T) {
	text := `{"cap": 4, "child_pid": 48211, "child_started": 1792345678.21, "engine": "codex", "holder_pid": 48190, "since": 1792345677.95, "workload": "light"}`
	r := Parse([]byte(text))
	if r == nil || r.Cap != 4 || *r.ChildPid != 48211 || *r.ChildStarted != 1792345678.21 || r.HolderPid != 48190 || r.Workload != "light" {
		t.Fatalf("read %+v", r)
	}
	child, named := r.Child()
	if !named || child.Pid != 48211 || child.Ticks != 0 || child.Boot != "" || child.Started != 1792345678.21 {
		t.Errorf("child %+v, %v", child, named)
	}
}

// S7: what is no JSON object is no record, however it was meant.
func TestUnreadableTextIsNoRecord(t *testing.T) {
	good := `{"cap":2,"holder_pid":5}`
	for what, text := range map[string]string{
		"empty": "", "blank": "   \n", "array": "[]", "null": "null", "number": "3", "word": `"cap"`, "torn": good[:10],
		"two": good + good, "rest of a longer one": good + `1}`, "nested 10,000 deep": `{"a":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + "}",
		"over 64 KiB": good + strings.Repeat(" ", 64<<10), "zeros": string(make([]byte, 512)), "no UTF-8": "\xff\xfe{}",
	} {
		if r := Parse([]byte(text)); r != nil {
			t.Errorf("%s: read as %+v", what, r)
		}
	}
	for what, text := range map[string]string{
		"as it is": good, "64 KiB": good + strings.Repeat(" ", 64<<10-len(good)), "unknown fields": `{"cap":2,"holder_pid":5,"x":{"y":[1]}}`,
		"blanks": " {\t\"cap\" : 2 , \"holder_pid\":\r\n5 } ", "last one counts": `{"cap":9,"cap":2,"holder_pid":5}`,
		"odd numbers": `{"cap":2.0e0,"holder_pid":5}`, "wrong types": `{"cap":2,"holder_pid":5,"engine":7,"child_pid":"x"}`,
	} {
		r := Parse([]byte(text))
		if r == nil || r.Cap != 2 || r.HolderPid != 5 {
			t.Errorf("%s: read as %+v", what, r)
		}
	}
}

// The quick reader never says anything but what encoding/json says.
func FuzzRecord(f *testing.F) {
	pid, started := 48211, 1792345678.21
	full := Record{Cap: 4, ChildPid: &pid, ChildStarted: &started, Engine: "codex", HolderPid: 48190, Since: 1792345677.95, Workload: "light",
		ChildTicks: 12, BootID: "a-b", PidNS: 4026531836, HolderTicks: 9, Run: "r", Argv0: "codex"}
	text, err := full.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, s := range []string{
		`{"cap": 4, "child_pid": null, "child_started": null, "engine": "codex", "holder_pid": 48190, "since": 1792345677.95, "workload": "light"}`,
		`{}`, `[]`, `{"cap":}`, `{"cap":01}`, `{"cap":1.}`, `{"cap":-1}`, `{"cap":1e3}`, `{"cap":1,}`, `{"a":1}`, `{"CAP":3}`, `{"cap":"3"}`,
		`{"engine":"\u0041"}`, `{"engine":"é"}`, `{"since":99999999999999999999999999999999999999999}`, `{"child_pid":1,"child_pid":null}`,
		`{"child_started":0.5,"child_started":null}`, `{"cap":2147483648}`, `{"child_ticks":1234567890123456}`, `{"cap":null}`, ` { "cap" : 1 } `,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fast, ok := scan(text)
		if !ok {
			return
		}
		slow := parseAny(text)
		if got := fast.record(text); !reflect.DeepEqual(got, slow) {
			t.Fatalf("%q:\nquick %+v\nslow  %+v", text, got, slow)
		}
		seen := Seen{text: text}
		seen.read(nil)
		if !reflect.DeepEqual(seen.Record(), Parse(text)) {
			t.Fatalf("%q: seen as %+v, read as %+v", text, seen.Record(), Parse(text))
		}
	})
}
