package lane

import (
	"strings"
	"testing"
)

// What is read of a waiting lane at a glance is what its whole record says; any
// other record is not read so.
func TestGlanceSaysWhatTheRecordSays(t *testing.T) {
	name := "a/lane 1"
	full := func(change func(*Record)) Record {
		rec := Mine(RoleDispatcher)
		rec.V, rec.Lane, rec.Attempt = version, name, "01a22d7d-cbd1-7ce7-be5b-d1d6f74bee91"
		change(&rec)
		return rec
	}
	for what, tt := range map[string]struct {
		rec  Record
		name string
		want bool
	}{
		"dispatcher":       {full(func(*Record) {}), name, true},
		"launcher":         {full(func(r *Record) { r.Role = RoleLauncher }), name, true},
		"with a fence":     {full(func(r *Record) { r.Fence = 1<<64 - 1 }), name, true},
		"driver":           {full(func(r *Record) { r.Role = RoleDriver }), name, false},
		"free":             {Record{V: version, Lane: name, Fence: 3}, name, false},
		"with an agent":    {full(func(r *Record) { r.Child = &Process{1, 2} }), name, false},
		"with a run":       {full(func(r *Record) { r.Run = r.Attempt }), name, false},
		"of another lane":  {full(func(*Record) {}), "b", false},
		"newer":            {full(func(r *Record) { r.V = version + 1 }), name, false},
		"escaped":          {full(func(r *Record) { r.Lane = "\"q\"" }), "\"q\"", false},
		"telling a child":  {full(func(r *Record) { r.Argv0 = `"child":` }), name, true},
		"the longest name": {full(func(r *Record) { r.Lane = strings.Repeat("n", 200) }), strings.Repeat("n", 200), true},
	} {
		text, err := tt.rec.encode()
		if err != nil {
			t.Fatal(err)
		}
		fence, ok := waits(text, tt.name)
		if ok != tt.want || ok && fence != tt.rec.Fence {
			t.Errorf("%s: waits = %d, %v", what, fence, ok)
		}
		if whole := Parse(text); ok && (whole == nil || whole.Fence != fence || whole.Lane != tt.name) {
			t.Errorf("%s: the whole record says %+v", what, whole)
		}
	}
	if _, ok := waits([]byte(`{"v":1,"lane":"a","fence":x,"role":"dispatcher",`), "a"); ok {
		t.Error("a fence that is no number was read")
	}
}
