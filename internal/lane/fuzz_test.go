package lane

import (
	"strings"
	"testing"
)

// S7: whatever stands in a lane's file, reading it ends, and what is read can be
// written again and says the same.
func FuzzParse(f *testing.F) {
	rec := Record{V: 1, Lane: "l", Fence: 3, Role: RoleRun, Run: "r", Holder: &Process{1, 2}, Child: &Process{3, 4}, BootID: "b", PidNS: 5, Since: "2026-01-02T03:04:05.000Z"}
	text, err := rec.encode()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(text), "", "[]", "{", `{"v":1,"lane":"l","holder":null}`, `{"v":"1"}`, strings.Repeat("[", 100)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := Parse(text)
		if r == nil {
			return
		}
		if r.V < 1 || r.Lane == "" {
			t.Fatalf("Parse took a record without version or lane: %+v", r)
		}
		_ = (Seen{Name: r.Lane, State: Owned, Record: r}).Owner()
		b, err := r.encode()
		if err != nil {
			return // longer than a record of ours
		}
		again := Parse(b)
		if again == nil || again.Lane != r.Lane || again.Fence != r.Fence || (again.Child == nil) != (r.Child == nil) || again.Child != nil && *again.Child != *r.Child {
			t.Fatalf("%+v was read back as %+v", r, again)
		}
	})
}
