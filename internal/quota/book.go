package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/home"
)

// Dir is the directory beside holds/ for what two processes must agree on and
// nobody has to know: when starts were, what a command answered last.
const Dir = "quota"

// patience bounds the wait for the lock of an engine. It is held for some small
// files, so one that stays held belongs to a stopped process. Tests shorten it.
var patience = 5 * time.Second

// Stuck reports a lock that did not come free.
type Stuck struct {
	Name string // ENGINE, or what is remembered
	Pid  int    // who has it; 0: not known
}

func (e *Stuck) Error() string {
	text := "the lock of the quota of " + e.Name + " does not come free"
	if e.Pid != 0 {
		text += fmt.Sprintf("; it is held by pid %d", e.Pid)
	}
	return text
}

// Book keeps what is known of engine accounts in a home.
type Book struct{ Home home.Dir }

// Transfer is what became of an account: an order that was given or taken back.
type Transfer struct {
	What    string // parked, paused, paced, probed, cleared
	Account Account
	Order   hold.Order // as it is now; for cleared, as it was
}

// done are the words for what an order of a kind does.
var done = map[hold.Kind]string{hold.Park: "parked", hold.Pause: "paused", hold.Pace: "paced"}

// lock keeps other processes away from the accounts of an engine. Where the
// platform has no such lock, nothing is counted either.
func (b Book) lock(ctx context.Context, engine string) (unlock func(), err error) {
	return b.lockFor(ctx, engine, patience)
}

func (b Book) lockFor(ctx context.Context, name string, patience time.Duration) (unlock func(), err error) {
	folder, err := b.Home.Make(Dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	dir, err := flock.OpenDir(folder.Path())
	if errors.Is(err, flock.ErrUnsupported) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := dir.Pass(ctx, fileName(name)+".lock", patience)
	if err != nil {
		stuck := &Stuck{Name: name}
		if f != nil {
			if pids := f.Owners(); len(pids) > 0 {
				stuck.Pid = pids[0]
			}
			f.Close()
		}
		dir.Close()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, stuck
		}
		return nil, fmt.Errorf("lock the quota of %s: %w", name, err)
	}
	return func() { f.Close(); dir.Close() }, nil
}

// fileName spells an account: of all that may be in its name only the slash is not
// fit for a file's.
func fileName(key string) string { return strings.ReplaceAll(key, "/", "=2f") }

// Observe takes in what a run saw. It costs one look at holds/ where there is
// nothing to change. The transfers are those that took place, also beside an error.
func (b Book) Observe(a Account, seen Seen, r Rules) ([]Transfer, error) {
	if seen.What == Answered || seen.What == Succeeded {
		orders, err := hold.List(b.Home.Holds())
		if err != nil || len(StateOf(orders, a).Orders()) == 0 {
			return nil, err
		}
	}
	unlock, err := b.lock(context.Background(), a.Engine)
	if err != nil {
		return nil, err
	}
	defer unlock()
	orders, err := hold.List(b.Home.Holds())
	if err != nil {
		return nil, err
	}
	before := StateOf(orders, a)
	after, changed := Decide(a, before, seen, r, Now())
	return b.write(a, before, after, changed)
}

// write makes the files say what after does.
func (b Book) write(a Account, before, after State, changed []hold.Kind) (all []Transfer, err error) {
	for _, kind := range changed {
		was, now := before.of(kind), after.of(kind)
		t := Transfer{What: done[kind], Account: a, Order: now}
		if now.Kind == "" {
			t.What, t.Order = "cleared", was
			err = unlessGone(hold.Remove(b.Home, kind, a.Scope()))
		} else {
			if now.Quota.Probe != "" && now.Quota.Probe != was.Quota.Probe {
				t.What = "probed"
			}
			err = hold.Put(b.Home, now)
		}
		if err != nil {
			return all, err
		}
		all = append(all, t)
	}
	return all, nil
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s State) of(kind hold.Kind) hold.Order {
	switch kind {
	case hold.Park:
		return s.Park
	case hold.Pause:
		return s.Pause
	case hold.Pace:
		return s.Pace
	}
	return hold.Order{}
}

// Set gives a person's order. *fs.PathError and the like are of the home.
func (b Book) Set(a Account, reason, by string, until time.Time) (Transfer, error) {
	unlock, err := b.lock(context.Background(), a.Engine)
	if err != nil {
		return Transfer{}, err
	}
	defer unlock()
	o := Set(a, reason, by, until, Now())
	return Transfer{done[hold.Park], a, o}, hold.Put(b.Home, o)
}

// Clear takes back all that is known of an account, which may be nothing.
func (b Book) Clear(a Account) ([]Transfer, error) {
	orders, err := hold.List(b.Home.Holds())
	if err != nil || len(orders.Account(a.Scope())) == 0 {
		return nil, err
	}
	unlock, err := b.lock(context.Background(), a.Engine)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if orders, err = hold.List(b.Home.Holds()); err != nil {
		return nil, err
	}
	before := StateOf(orders, a)
	var kinds []hold.Kind
	for _, o := range before.Orders() {
		kinds = append(kinds, o.Kind)
	}
	return b.write(a, before, State{}, kinds)
}

// Space is a spacing of starts: those of Key are Gap apart, and the first is as far
// from After, on CLOCK_BOOTTIME; 0: from nothing.
type Space struct {
	Key   string
	Gap   time.Duration
	After time.Duration
}

// starts is when the last start of a key was, on CLOCK_BOOTTIME.
type starts struct {
	V        int    `json:"v"`
	Boot     string `json:"boot"`
	Admitted int64  `json:"admitted_ns"` // a start was let through
	Started  int64  `json:"started_ns"`  // a process was started, or is to be then
}

const maxStarts = 4 << 10

func startsFile(key string) string { return "starts." + fileName(key) + ".json" }

func (b Book) starts(key, boot string) (s starts, err error) {
	folder, err := b.Home.Open(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return starts{}, nil
	}
	if err != nil {
		return s, err
	}
	defer folder.Close()
	data, err := folder.ReadFile(startsFile(key), maxStarts)
	if errors.Is(err, fs.ErrNotExist) {
		return starts{}, nil
	}
	// One that cannot be read as such says nothing of this boot.
	if err == nil && (json.Unmarshal(data, &s) != nil || s.Boot != boot) {
		s = starts{}
	}
	return s, err
}

func (b Book) putStarts(key string, s starts) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	folder, err := b.Home.Make(Dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.WriteFile(startsFile(key), append(data, '\n'))
}

// Wait is how long a start must wait for those before it, and the space that says
// so; 0: it may go.
func (b Book) Wait(spaces []Space, now Moment) (least time.Duration, why Space, err error) {
	for _, sp := range spaces {
		if sp.Gap <= 0 {
			continue
		}
		last, err := b.starts(sp.Key, now.Boot)
		if err != nil {
			return 0, sp, err
		}
		before := max(time.Duration(last.Admitted), time.Duration(last.Started), sp.After)
		if d := before + sp.Gap - now.Since; before != 0 && d > least {
			least, why = d, sp
		}
	}
	return least, why, nil
}

// Admit is asked for a start that was let through: one of several that saw the same
// free moment goes, the others wait again. It claims the probe of a login that is
// to be tried, for this run. spaces tells what spaces the account's starts in a
// state.
func (b Book) Admit(ctx context.Context, a Account, run string, spaces func(State, Moment) []Space) (ok bool, claimed []Transfer, err error) {
	orders, err := hold.List(b.Home.Holds())
	if err != nil {
		return false, nil, err
	}
	now := Now()
	s := StateOf(orders, a)
	if answer := s.Answer(run, now); answer.Code == "" && !answer.Probe && !spaced(spaces(s, now)) {
		return true, nil, nil
	}
	unlock, err := b.lock(ctx, a.Engine)
	if err != nil {
		return false, nil, err
	}
	defer unlock()
	if orders, err = hold.List(b.Home.Holds()); err != nil {
		return false, nil, err
	}
	now, s = Now(), StateOf(orders, a)
	answer, all := s.Answer(run, now), spaces(s, now)
	wait, _, err := b.Wait(all, now)
	if err != nil || answer.Code != "" || wait > 0 {
		return false, nil, err
	}
	for _, sp := range all {
		if sp.Gap <= 0 {
			continue
		}
		last, err := b.starts(sp.Key, now.Boot)
		if err == nil {
			last.V, last.Boot, last.Admitted = 1, now.Boot, int64(now.Since)
			err = b.putStarts(sp.Key, last)
		}
		if err != nil {
			return false, nil, err
		}
	}
	if answer.Probe {
		after := s
		after.Pause = probed(s.Pause, run, now)
		// What a later version wrote it counts itself; that is nobody's reason to fail.
		if claimed, err = b.write(a, s, after, []hold.Kind{hold.Pause}); err != nil && !errors.Is(err, hold.ErrNewer) {
			return false, nil, err
		}
	}
	return true, claimed, nil
}

func spaced(spaces []Space) bool {
	return slices.ContainsFunc(spaces, func(sp Space) bool { return sp.Gap > 0 })
}

// Start reserves the moment of a process's start, and waits for it: never less than
// the gap after the one before, whoever starts that. What was admitted with the gap
// between may be slow or quick to get here, so being admitted is not enough.
func (b Book) Start(ctx context.Context, a Account, spaces []Space) error {
	if !spaced(spaces) {
		return nil
	}
	at, err := b.reserve(ctx, a, spaces)
	if err != nil {
		return err
	}
	for {
		d := at - Now().Since
		if d <= 0 {
			return nil
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

func (b Book) reserve(ctx context.Context, a Account, spaces []Space) (at time.Duration, err error) {
	unlock, err := b.lock(ctx, a.Engine)
	if err != nil {
		return 0, err
	}
	defer unlock()
	now := Now()
	at = now.Since
	for _, sp := range spaces {
		last, err := b.starts(sp.Key, now.Boot)
		if err != nil {
			return 0, err
		}
		if sp.Gap > 0 && last.Started != 0 {
			at = max(at, time.Duration(last.Started)+sp.Gap)
		}
	}
	for _, sp := range spaces {
		last, err := b.starts(sp.Key, now.Boot)
		if err == nil && sp.Gap > 0 {
			last.V, last.Boot, last.Started = 1, now.Boot, int64(at)
			err = b.putStarts(sp.Key, last)
		}
		if err != nil {
			return 0, err
		}
	}
	return at, nil
}

// maxMemory bounds what is remembered under one name.
const maxMemory = 16 << 10

// Remember asks good whether what is kept under a name will do, and where it will
// not, has it made anew and keeps it. Others wait meanwhile, patience at most, and
// find it. good is told nil where nothing is kept.
func (b Book) Remember(ctx context.Context, name string, patience time.Duration, good func([]byte) bool, anew func() ([]byte, error)) error {
	if have, err := b.Recall(name); err != nil || good(have) {
		return err
	}
	unlock, err := b.lockFor(ctx, name, patience)
	if err != nil {
		return err
	}
	defer unlock()
	if have, err := b.Recall(name); err != nil || good(have) {
		return err
	}
	data, err := anew()
	if err != nil {
		return err
	}
	folder, err := b.Home.Make(Dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.WriteFile(fileName(name)+".json", append(data, '\n'))
}

// Recall is what is kept under a name; nil is nothing.
func (b Book) Recall(name string) ([]byte, error) {
	folder, err := b.Home.Open(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	data, err := folder.ReadFile(fileName(name)+".json", maxMemory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}
