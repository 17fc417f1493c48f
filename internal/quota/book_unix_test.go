//go:build unix

package quota

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/home"
)

func newBook(t *testing.T) Book {
	t.Helper()
	return Book{home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b Book) state(t *testing.T) State {
	t.Helper()
	orders, err := hold.List(b.Home.Holds())
	must(t, err)
	return StateOf(orders, claude)
}

func nothingSpaces(State, Moment) []Space { return nil }

// seenNow is what a run that began just now saw.
func seenNow(what What, run string) Seen {
	return Seen{What: what, Run: run, Started: Now().Since}
}

func TestNothingKnownLeavesNothing(t *testing.T) { // S4
	b := newBook(t)
	for _, what := range []What{Answered, Succeeded} {
		if done, err := b.Observe(claude, seenNow(what, "r"), usual); err != nil || len(done) > 0 {
			t.Errorf("%+v, %v", done, err)
		}
	}
	ok, claimed, err := b.Admit(t.Context(), claude, "r", nothingSpaces)
	if !ok || len(claimed) > 0 || err != nil {
		t.Errorf("Admit = %v, %v, %v", ok, claimed, err)
	}
	must(t, b.Start(t.Context(), claude, []Space{{Key: "claude"}}))
	if gone, err := b.Clear(claude); err != nil || len(gone) > 0 {
		t.Errorf("Clear = %v, %v", gone, err)
	}
	if _, err := os.Lstat(b.Home.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the home was made")
	}
}

func TestWhatIsSeenIsKeptAndTakenBack(t *testing.T) { // P3, P11
	b := newBook(t)
	done, err := b.Observe(claude, seenNow(Limit, "r1"), usual)
	must(t, err)
	if len(done) != 1 || done[0].What != "parked" || b.state(t).Park != done[0].Order {
		t.Errorf("%+v, %+v", done, b.state(t))
	}
	done, err = b.Observe(claude, seenNow(Limit, "r1"), usual)
	if err != nil || len(done) > 0 {
		t.Errorf("the same again: %+v, %v", done, err)
	}
	must(t, hold.Put(b.Home, hold.Order{Scope: claude.Scope(), Kind: hold.Hold}))
	if ok, _, err := b.Admit(t.Context(), claude, "r2", nothingSpaces); ok || err != nil {
		t.Errorf("Admit = %v, %v", ok, err)
	}
	done, err = b.Observe(claude, seenNow(Login, "r3"), usual)
	if err != nil || len(done) != 1 || done[0].What != "paused" {
		t.Errorf("%+v, %v", done, err)
	}
	gone, err := b.Clear(claude)
	if err != nil || len(gone) != 2 || gone[0].What != "cleared" {
		t.Errorf("%+v, %v", gone, err)
	}
	orders, err := hold.List(b.Home.Holds())
	if err != nil || len(orders.All) != 1 || orders.All[0].Kind != hold.Hold {
		t.Errorf("a person's hold: %+v, %v", orders, err)
	}
}

// TestOneOfManyIsTheProbe: C124. All saw that the pause was over.
func TestOneOfManyIsTheProbe(t *testing.T) {
	b := newBook(t)
	for round := range 2 {
		o := paused(claude, hold.Order{}, seenNow(Login, "r"), usual, Now())
		must(t, hold.Put(b.Home, lasts(o, time.Nanosecond, Now())))
		var let atomic.Int32
		var who atomic.Value
		var all sync.WaitGroup
		for i := range 30 {
			run := fmt.Sprintf("r%d-%d", round, i)
			all.Go(func() {
				ok, claimed, err := b.Admit(context.Background(), claude, run, nothingSpaces)
				if err != nil {
					t.Error(err)
				}
				if ok {
					let.Add(1)
					who.Store(run)
				}
				if ok != (len(claimed) == 1 && claimed[0].What == "probed") {
					t.Errorf("let through %v, claimed %v", ok, claimed)
				}
			})
		}
		all.Wait()
		if let.Load() != 1 || b.state(t).Pause.Quota.Probe != who.Load() {
			t.Fatalf("%d were let through, and the probe is %q", let.Load(), b.state(t).Pause.Quota.Probe)
		}
		if ok, _, err := b.Admit(t.Context(), claude, who.Load().(string), nothingSpaces); !ok || err != nil {
			t.Errorf("the probe, asking again: %v, %v", ok, err)
		}
	}
}

// TestStartsAreApart: P4. However many come at once, and however they got there.
func TestStartsAreApart(t *testing.T) {
	b := newBook(t)
	const gap = 30 * time.Millisecond
	spaces := []Space{{Key: "claude", Gap: gap}, {Key: "off"}}
	var mu sync.Mutex
	var at []time.Duration
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			reserved, err := b.reserve(context.Background(), claude, spaces)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			at = append(at, reserved)
			mu.Unlock()
		})
	}
	all.Wait()
	slices.Sort(at)
	for i := range at[1:] {
		if d := at[i+1] - at[i]; d < gap {
			t.Errorf("two starts are %v apart", d)
		}
	}
	last := at[len(at)-1]
	must(t, b.Start(t.Context(), claude, spaces))
	if now := Now().Since; now < last+gap {
		t.Errorf("a start came %v after the one before", now-last)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := b.Start(ctx, claude, []Space{{Key: "claude", Gap: time.Hour}}); !errors.Is(err, context.Canceled) {
		t.Errorf("Start = %v", err)
	}
}

// TestOneOfThoseWhoSawRoomIsAdmitted: the others wait, and hold no slot meanwhile.
func TestOneOfThoseWhoSawRoomIsAdmitted(t *testing.T) { // P4
	b := newBook(t)
	spaces := func(State, Moment) []Space { return []Space{{Key: "claude", Gap: time.Hour}} }
	var let atomic.Int32
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			ok, _, err := b.Admit(context.Background(), claude, fmt.Sprint(i), spaces)
			if err != nil {
				t.Error(err)
			}
			if ok {
				let.Add(1)
			}
		})
	}
	all.Wait()
	if let.Load() != 1 {
		t.Errorf("%d were let through within the gap", let.Load())
	}
	wait, why, err := b.Wait(spaces(State{}, Now()), Now())
	if err != nil || wait <= 0 || wait > time.Hour || why.Key != "claude" {
		t.Errorf("Wait = %v, %+v, %v", wait, why, err)
	}
	other := Now()
	other.Boot = "another"
	if wait, _, _ := b.Wait(spaces(State{}, other), other); wait != 0 {
		t.Errorf("in another boot it waits for %v", wait)
	}
	must(t, os.WriteFile(filepath.Join(b.Home.Path, Dir, startsFile("claude")), []byte("{torn"), 0o600))
	if wait, _, err := b.Wait(spaces(State{}, Now()), Now()); wait != 0 || err != nil {
		t.Errorf("a torn file: %v, %v", wait, err)
	}
}

// TestStuckLockIsNamed: a stopped process keeps nobody for ever, and is named.
func TestStuckLockIsNamed(t *testing.T) {
	was := patience
	patience = 20 * time.Millisecond
	defer func() { patience = was }()
	b := newBook(t)
	unlock, err := b.lock(t.Context(), "claude")
	must(t, err)
	gap := func(State, Moment) []Space { return []Space{{Key: "claude", Gap: time.Hour}} }
	_, _, err = b.Admit(t.Context(), claude, "r", gap)
	if stuck, ok := errors.AsType[*Stuck](err); !ok || stuck.Name != "claude" || runtime.GOOS == "linux" && stuck.Pid != os.Getpid() {
		t.Errorf("Admit = %v", err)
	}
	if _, err := b.Observe(claude, seenNow(Limit, "r"), usual); !errors.As(err, new(*Stuck)) {
		t.Errorf("Observe = %v", err)
	}
	unlock()
	if ok, _, err := b.Admit(t.Context(), claude, "r", gap); !ok || err != nil {
		t.Errorf("Admit = %v, %v", ok, err)
	}
}

func TestOneOfManyAsks(t *testing.T) { // P3
	b := newBook(t)
	var asked atomic.Int32
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			var got []byte
			err := b.Remember(context.Background(), "command.claude/work", time.Minute, func(have []byte) bool {
				got = have
				return have != nil
			}, func() ([]byte, error) {
				asked.Add(1)
				got = []byte("yes\n")
				return []byte("yes"), nil
			})
			if err != nil || !bytes.Equal(got, []byte("yes\n")) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
	if asked.Load() != 1 {
		t.Errorf("it was asked %d times", asked.Load())
	}
	never := errors.New("no answer")
	if err := b.Remember(t.Context(), "other", time.Minute, func([]byte) bool { return false }, func() ([]byte, error) { return nil, never }); !errors.Is(err, never) {
		t.Errorf("Remember = %v", err)
	}
	if have, err := b.Recall("other"); have != nil || err != nil {
		t.Errorf("Recall = %q, %v", have, err)
	}
}

// What a later version wrote binds and is not rewritten (C12): what it knows besides
// would be lost.
func TestOrderOfALaterVersionStaysAsItIs(t *testing.T) {
	b := newBook(t)
	_, err := b.Observe(claude, seenNow(Login, "r1"), usual)
	must(t, err)
	files, err := filepath.Glob(filepath.Join(b.Home.Holds(), "pause.*"))
	must(t, err)
	text, err := os.ReadFile(files[0])
	must(t, err)
	later := bytes.Replace(text, []byte(`{"v":1,`), []byte(`{"v":2,"tenant":"x",`), 1)
	must(t, os.WriteFile(files[0], later, 0o600))
	if done, err := b.Observe(claude, seenNow(Login, "r2"), usual); !errors.Is(err, hold.ErrNewer) || len(done) > 0 {
		t.Errorf("Observe = %v, %v", done, err)
	}
	if now, err := os.ReadFile(files[0]); !bytes.Equal(now, later) || err != nil {
		t.Errorf("it became %s, %v", now, err)
	}
	if a := b.state(t).Answer("r3", Now()); a.Code != CodeLogin {
		t.Errorf("it says %+v", a)
	}
	over := regexp.MustCompile(`"until":"[^"]*"|"boot":"[^"]*"`).ReplaceAllFunc(later, func(field []byte) []byte {
		if bytes.HasPrefix(field, []byte(`"until"`)) {
			return []byte(`"until":"2020-01-01T00:00:00.000Z"`)
		}
		return []byte(`"boot":"another"`)
	})
	must(t, os.WriteFile(files[0], over, 0o600))
	if ok, claimed, err := b.Admit(t.Context(), claude, "r4", nothingSpaces); !ok || len(claimed) > 0 || err != nil {
		t.Errorf("Admit = %v, %v, %v", ok, claimed, err)
	}
	if now, err := os.ReadFile(files[0]); !bytes.Equal(now, over) || err != nil {
		t.Errorf("it became %s, %v", now, err)
	}
	if done, err := b.Clear(claude); len(done) != 1 || err != nil {
		t.Errorf("Clear = %v, %v", done, err)
	}
}
