package review

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// ended is a run on disk that is to be reviewed.
func ended(t *testing.T) (home.Dir, *record.Run) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "home")
	d, err := home.Locate(func(string) string { return path })
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Ensure(); err != nil {
		t.Fatal(err)
	}
	r := &record.Run{ID: record.NewID(), State: record.Ended, Review: Pending}
	w, err := record.Create(d, r)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return d, r
}

func load(t *testing.T, d home.Dir, r *record.Run) *History {
	t.Helper()
	h, err := Load(d, r)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestStateIsThatOfTheLastVerdict(t *testing.T) {
	d, r := ended(t)
	if s := Of(d, r); s != Pending {
		t.Errorf("state %s", s)
	}
	for i, word := range []string{Accepted, Rejected, Accepted} {
		v := &Verdict{Verdict: word, Attempt: r.ID}
		if err := AddVerdict(d, load(t, d, r), v); err != nil {
			t.Fatal(err)
		}
		if v.N != i+1 || Of(d, r) != word {
			t.Errorf("verdict %d is %s, want %d and %s", v.N, Of(d, r), i+1, word)
		}
	}
	if n := len(load(t, d, r).Verdicts); n != 3 {
		t.Errorf("%d verdicts are kept", n)
	}
}

func TestOneOfTwoVerdictsWins(t *testing.T) {
	d, r := ended(t)
	past := load(t, d, r)
	errs := make([]error, 16)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			word := []string{Accepted, Rejected}[i%2]
			errs[i] = AddVerdict(d, past, &Verdict{Verdict: word, Attempt: r.ID, Note: strings.Repeat(word, 100)})
		})
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ErrTaken):
			t.Error(err)
		}
	}
	if now := load(t, d, r); won != 1 || len(now.Verdicts) != 1 {
		t.Errorf("%d won, %d verdicts", won, len(now.Verdicts))
	}
	left, err := filepath.Glob(filepath.Join(record.Dir(d, r.ID), ".verdict*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestReleaseWithoutAnEndIsToldByItsProcess(t *testing.T) {
	d, r := ended(t)
	me := proc.Self()
	m := &Mark{Attempt: r.ID, Handsel: record.Identity{Pid: me.Pid, Ticks: me.Ticks, BootID: me.Boot, PidNS: me.NS}}
	if err := AddMark(d, load(t, d, r), m); err != nil {
		t.Fatal(err)
	}
	if s := load(t, d, r).LastRelease().State(); s != Going {
		t.Errorf("while its process lives it is %s", s)
	}
	gone := &Mark{Attempt: r.ID, Handsel: record.Identity{Pid: me.Pid, Ticks: me.Ticks + 1, BootID: me.Boot, PidNS: me.NS}}
	if err := AddMark(d, load(t, d, r), gone); err != nil {
		t.Fatal(err)
	}
	if s := load(t, d, r).LastRelease().State(); s != Unknown || Of(d, r) == Released {
		t.Errorf("once its process is gone it is %s", s)
	}
	if far := (&Release{Mark: Mark{Handsel: record.Identity{Pid: me.Pid, Ticks: me.Ticks, BootID: me.Boot, PidNS: me.NS + 1}}}); me.NS != 0 && far.State() != Unknown {
		t.Errorf("of a process that cannot be looked at it is %s", far.State())
	}
	zero, seven := 0, 7
	if err := AddEnd(d, m, &End{Outcome: record.Exited, ExitCode: &seven}); err != nil {
		t.Fatal(err)
	}
	if s := load(t, d, r).Releases[0].State(); s != Failed {
		t.Errorf("with status 7 it is %s", s)
	}
	if err := AddEnd(d, gone, &End{Outcome: record.Exited, ExitCode: &zero}); err != nil {
		t.Fatal(err)
	}
	if s := Of(d, r); s != Released {
		t.Errorf("with status 0 the run is %s", s)
	}
	if err := AddEnd(d, gone, &End{Outcome: record.Exited, ExitCode: &seven}); !errors.Is(err, ErrTaken) {
		t.Errorf("an end was written twice: %v", err)
	}
}

func TestDamagedHistoryIsNoHistory(t *testing.T) {
	d, r := ended(t)
	if err := AddVerdict(d, load(t, d, r), &Verdict{Verdict: Accepted, Attempt: r.ID}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"v":1,"n":2}`, `{"v":0,"n":1}`, `[]`} {
		if err := os.WriteFile(filepath.Join(record.Dir(d, r.ID), "verdict.1.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if h, err := Load(d, r); err == nil {
			t.Errorf("%q reads as %+v", text, h)
		}
		if s := Of(d, r); s != Pending {
			t.Errorf("%q: a list says %s, which may permit something", text, s)
		}
	}
}

func TestPolicyIsNamedByWhatItAsks(t *testing.T) {
	a := Policy{Checks: [][]string{{"make", "test"}}, Require: true}
	for _, b := range []Policy{
		{}, {Checks: [][]string{{"make test"}}, Require: true}, {Checks: [][]string{{"make", "test"}}},
		{Checks: a.Checks, Require: true, Verify: []string{"v"}},
	} {
		if a.Sum() == b.Sum() {
			t.Errorf("%+v and %+v have one name", a, b)
		}
	}
	if (Policy{Require: true}).Sum() != (Policy{}).Sum() {
		t.Error("what is required of no checks is nothing")
	}
}

// The matcher agrees with one that tries everything.
func TestPatterns(t *testing.T) {
	var naive func(p, s string) bool
	naive = func(p, s string) bool {
		switch {
		case p == "":
			return s == ""
		case p[0] == '*':
			return naive(p[1:], s) || s != "" && naive(p, s[1:])
		case s == "":
			return false
		}
		return (p[0] == '?' || p[0] == s[0]) && naive(p[1:], s[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		p, s := rapid.StringMatching(`[ab*?/]{0,6}`).Draw(t, "pattern"), rapid.StringMatching(`[ab/]{1,7}`).Draw(t, "name")
		if got := Match([]string{"never", p}, s); got != naive(p, s) {
			t.Fatalf("%q fits %q: %v", s, p, got)
		}
	})
	if Match([]string{"*"}, "") {
		t.Error("no lane fits no pattern")
	}
}

// Whoever reads while somebody decides sees what was decided or not, never a file
// that cannot be believed; and a writer that is killed leaves none for ever.
func TestHistoryIsReadWhileItIsWritten(t *testing.T) {
	d, r := ended(t)
	done := make(chan error, 1)
	go func() {
		for range 100 {
			past, err := Load(d, r)
			if err == nil {
				err = AddVerdict(d, past, &Verdict{Verdict: Accepted, Attempt: r.ID})
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for looks := 0; ; looks++ {
		if _, err := Load(d, r); err != nil {
			t.Fatalf("look %d: %v", looks, err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// A verdict is on one run, and a signature on it is good for no other: a file that
// was copied over is damage.
func TestVerdictOfAnotherRunIsNone(t *testing.T) {
	for _, kind := range []string{checksFile, verdictFile, releaseFile} {
		d, r := ended(t)
		other := record.NewID()
		text := `{"v":1,"n":1,"attempt":"` + other + `","verdict":"accepted","outcome":"exited"}`
		if err := os.WriteFile(filepath.Join(record.Dir(d, r.ID), fileName(kind, 1)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if h, err := Load(d, r); err == nil {
			t.Errorf("%s of another run reads as %+v", kind, h)
		}
	}
}

func TestVerdictIsAcceptedOrRejected(t *testing.T) {
	d, r := ended(t)
	for _, word := range []string{"", Released, "ACCEPTED"} {
		text := `{"v":1,"n":1,"attempt":"` + r.ID + `","verdict":"` + word + `"}`
		if err := os.WriteFile(filepath.Join(record.Dir(d, r.ID), "verdict.1.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if h, err := Load(d, r); err == nil {
			t.Errorf("%q reads as %s", word, h.State())
		}
	}
}

// What could not be read again would keep everybody from deciding, for ever.
func TestWhatCannotBeReadAgainIsNotWritten(t *testing.T) {
	d, r := ended(t)
	v := &Verdict{Verdict: Accepted, Attempt: r.ID}
	for range MaxEvidence {
		v.Evidence = append(v.Evidence, strings.Repeat("<", MaxText)) // six bytes each
	}
	v.Signature = strings.Repeat("<", MaxSignature)
	if err := AddVerdict(d, load(t, d, r), v); err != nil {
		t.Errorf("the most that a verdict may say: %v", err)
	}
	v.Checks = []Check{{Argv: []string{strings.Repeat("<", maxFile/6)}}}
	if err := AddVerdict(d, load(t, d, r), v); err == nil {
		t.Error("more was written")
	}
	if n := len(load(t, d, r).Verdicts); n != 1 {
		t.Errorf("%d verdicts", n)
	}
}
