//go:build unix

package runs

import (
	"errors"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/record"
)

func keepEnded(t testing.TB, d home.Dir, fill func(*record.Run)) string {
	t.Helper()
	r := &record.Run{ID: record.NewID(), Verb: "run", State: record.Ended, Outcome: record.Exited, Argv0: "agent", Confinement: "none"}
	fill(r)
	if _, err := record.Create(d, r); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func TestNameMeansOneThingOrIsRefused(t *testing.T) { // C4
	p := newPlace(t)
	a := keepEnded(t, p.Home, func(r *record.Run) { r.Engine, r.Labels = "claude", map[string]string{"ticket": "12", "team": "x"} })
	b := keepEnded(t, p.Home, func(r *record.Run) {
		r.Engine, r.Labels = "codex", map[string]string{"ticket": "13"}
		r.Pools = []record.Pool{{Name: "codex"}, {Name: "gradle"}}
	})
	twin := "01a22d87-0000-7000-8000-00000" + a[len(a)-7:]
	keepEnded(t, p.Home, func(r *record.Run) { r.ID = twin })
	for _, tt := range []struct {
		x    string
		want string // the run's id, or what is wrong
	}{
		{b, b}, {"run:" + b, b}, {b[len(b)-12:], b}, {a, a}, {strings.ReplaceAll(a, "-", ""), a},
		{a[len(a)-7:], "ambiguous"}, {"run:" + a[len(a)-6:], "ambiguous"},
		{a[len(a)-5:], "not found"}, {"run:xyzxyz", "not found"}, {"lane:api", "not found"}, {"engine:pi", "not found"},
		{"engine:claude", a}, {"claude", a}, {"codex", b}, {"pool:gradle", b}, {"gradle", b},
		{"label:ticket=12", a}, {"ticket=13", b}, {"label:team", a}, {"team", "not found"}, {"label:ticket=14", "not found"},
		{"", "bad"}, {"run:", "bad"}, {"a\x00b", "bad"}, {"x:y", "not found"}, {"../" + a, "not found"},
	} {
		found, err := p.Find(tt.x, true)
		if got := outcomeOf(found, err); got != tt.want {
			t.Errorf("Find(%q) = %s, want %s", tt.x, got, tt.want)
		}
	}
	if found, err := p.Find("label:ticket", true); err != nil || len(found) != 2 {
		t.Errorf("a label of two runs means %d, %v", len(found), err)
	}
	if _, err := p.Find("claude", false); outcomeOf(nil, err) != "not found" {
		t.Errorf("an engine whose runs have ended: %v", err)
	}
}

func outcomeOf(found []Run, err error) string {
	switch {
	case err == nil && len(found) == 1:
		return found[0].ID
	case err == nil:
		return "several"
	case errors.As(err, new(*NotFound)):
		return "not found"
	case errors.As(err, new(*Ambiguous)):
		return "ambiguous"
	case errors.As(err, new(*BadName)):
		return "bad"
	}
	return err.Error()
}

func FuzzFind(f *testing.F) {
	t := f
	dir := t.TempDir() + "/home"
	d := home.Dir{Path: dir, From: home.Variable}
	if err := d.Ensure(); err != nil {
		t.Fatal(err)
	}
	p := Place{Home: d, Leases: d.Leases(), Waiting: d.Waiting()}
	id := keepEnded(t, d, func(r *record.Run) { r.Engine, r.Labels = "codex", map[string]string{"k": "v", "": ""} })
	for _, seed := range []string{id, id[30:], "run:" + id, "engine:codex", "label:k=v", "label:=", "pool:", "lane:x", "", ":", "run:run:", "\xff\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, x string) {
		for _, all := range []bool{true, false} {
			found, err := p.Find(x, all)
			switch got := outcomeOf(found, err); got {
			case "not found", "ambiguous", "bad", id:
			default:
				t.Errorf("Find(%q, %v) = %s", x, all, got)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\n\x1b\x00") {
				t.Errorf("Find(%q): the error is not one clean line: %q", x, err)
			}
		}
	})
}
