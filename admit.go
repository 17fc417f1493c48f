package handsel

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/quota"
	"github.com/handsel/handsel/internal/record"
)

// The pools every agent counts against, besides its engine's (S1).
const (
	poolAll   = "all"
	poolHeavy = "heavy"
)

// The workload classes (E3).
const (
	Heavy = "heavy"
	Light = "light"
)

// Start describes a start that asks for the right to run. Priority, Arrived
// and Pools are plain values, so that a program that keeps its own queue can
// ask on behalf of work that arrived earlier.
type Start struct {
	Engine   string        // canonical name, or empty
	Account  string        // of the engine; empty is its default
	Workload string        // Heavy or Light; empty is Heavy
	Pools    []string      // named pools besides those of an agent
	Only     bool          // count against Pools alone, as a gate does
	Wait     time.Duration // longest wait; 0 refuses at once, negative means the configured default
	Priority int           // −1000…1000, higher first; one step is worth a minute (C5)
	Arrived  time.Duration // CLOCK_BOOTTIME; 0 means now
	Run      string        // id of the run; empty makes one
	Argv0    string        // shown to people

	// Caps are variables HANDSEL_MAX_AGENTS* of whoever the start is asked for on
	// behalf of: they join the minimum like our own (S2). AllElse is the cap of
	// the pool `all` where none is set; 0 is none (L13a).
	Caps    map[string]string
	AllElse int
	Tie     string // orders starts with equal keys; empty: by chance
	// Keeps is of a start that has a place of its own to keep: what a check denies
	// it waits out, as somebody may change that.
	Keeps bool

	// OnWait is told when the wait begins and when its reason changes. It must
	// not block.
	OnWait func(Waiting)

	lane     string         // orders that hold this lane bind the start
	settings *inForce       // read a moment ago; nil: to be read
	about    *time.Duration // is told when it was let through, on CLOCK_BOOTTIME
	onNote   func(string)
}

// Lease is the right to run one agent. It must be released.
type Lease = lease.Lease

// Acquire takes a slot in every pool the start counts against, or none,
// waiting in line if it must (S10 to S16). The error is *Refused when the wait
// is over, *BadConfig when the configuration cannot be read: nothing starts
// uncounted.
func (h *Home) Acquire(ctx context.Context, s Start) (*Lease, error) {
	first := s.settings
	if first == nil {
		var err error
		if first, err = h.settings(); err != nil {
			return nil, err
		}
	}
	if s.Wait < 0 {
		s.Wait = first.Wait
	}
	if s.Run == "" {
		s.Run = record.NewID()
	}
	if err := s.check(first); err != nil {
		return nil, err
	}
	a := &asker{home: h, start: s, settings: first, fresh: true}
	a.ask = func(who quota.Account, conf config.QuotaConf) (*commandAnswer, error) { return h.ask(ctx, who, conf) }
	a.given = ctx.Err
	if err := a.begin(); err != nil {
		return nil, err
	}
	for began, arrived := time.Now(), machine.SinceBoot(); ; {
		l, err := lease.Acquire(ctx, h.places(first.Settings), lease.Want{
			Pools: a.pools, Check: a.check, Turns: a.turns(), Changed: a.changed,
			Engine: s.Engine, Workload: a.class(), Run: s.Run, Argv0: s.Argv0,
			Wait: max(s.Wait-time.Since(began), 0), Poll: first.Poll, Patience: first.Patience, Priority: s.Priority, Start: s.Arrived, ID: s.Tie, OnWait: s.OnWait,
		})
		if err != nil {
			return nil, err
		}
		ok, err := a.admitted(ctx)
		if ok && err == nil {
			a.letThrough()
			return l, nil
		}
		// Somebody else was let through at the same moment, and goes first: the next
		// look says what for.
		if err := errors.Join(err, l.Release()); err != nil {
			return nil, err
		}
		s.Arrived = cmp.Or(s.Arrived, arrived)
	}
}

// check puts the start into canonical form and refuses what has no meaning: a
// misspelled engine would count in a pool of its own.
func (s *Start) check(in *inForce) (err error) {
	if s.Engine != "" {
		if s.Engine, err = in.engineOf(s.Engine, nil); err != nil {
			return err
		}
	}
	switch s.Workload {
	case "":
		s.Workload = Heavy
	case Heavy, Light:
	default:
		return &BadOption{"workload", s.Workload, `it must be "heavy" or "light"`}
	}
	if s.Priority < -maxPriority || s.Priority > maxPriority {
		return &BadOption{"priority", strconv.Itoa(s.Priority), "it must be a whole number from -1000 to 1000"}
	}
	return checkPools(s.Pools)
}

// maxPriority is the range of priorities, either way (C5).
const maxPriority = 1000

func checkPools(names []string) error {
	for _, p := range names {
		if !engine.Valid(p) {
			return &BadOption{"pool", p, "a pool's name is a-z, 0-9, _ and -, at most 63, not beginning with a sign"}
		}
	}
	return nil
}

// asker answers, for one start, what it counts against now.
type asker struct {
	home     *Home
	start    Start
	settings *inForce
	fresh    bool // settings were read for the admission that comes next
	marks    []config.Mark
	noted    map[string]bool
	through  lease.Answer // by which pressure let the start through; zero: it had no need to
	orders   hold.Orders  // of the last look

	// ask asks the command of an engine's quota on behalf of this wait, and given
	// tells whether the wait was given up meanwhile.
	ask   func(quota.Account, config.QuotaConf) (*commandAnswer, error)
	given func() error
}

// begin makes what a capped admission needs, and checks it.
func (a *asker) begin() error {
	if err := a.settings.CheckPools(a.start.Pools); err != nil {
		return err
	}
	if !a.counted() {
		return a.home.trusted()
	}
	if err := a.home.dir.Ensure(); err != nil {
		return err
	}
	leases := a.home.places(a.settings.Settings).Leases
	if a.settings.LeasesDir != "" {
		if err := home.Local(leases); err != nil {
			return err
		}
	}
	return home.EnsureDir(leases)
}

// trusted refuses a home that is somebody else's, also where nothing is
// counted (C9). One that is not there yet is nobody's.
func (h *Home) trusted() error {
	if err := home.Trust(h.dir.Path, true); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (a *asker) class() string {
	if a.start.Only {
		return lease.GateWorkload
	}
	return a.start.Workload
}

// pools is asked at every admission; the settings are read again each time (S2).
func (a *asker) pools() ([]lease.Pool, error) {
	if !a.fresh {
		s, err := a.home.settings()
		if err != nil {
			return nil, err
		}
		a.settings = s
		if a.marks != nil {
			a.marks = s.Marks()
		}
	}
	a.fresh = false
	if !a.counted() {
		return nil, nil
	}
	shared := a.settings.LeasesDir != ""
	var pools []lease.Pool
	for _, name := range a.names() {
		n, from := a.capOf(name)
		if n == 0 && shared {
			continue // a pool that has no cap is not for others to count (S4)
		}
		pools = append(pools, lease.Pool{Name: name, Cap: n, CapFrom: from})
	}
	return pools, nil
}

// counted tells whether the start is counted: a cap is set, here or by whoever
// it is for, or slots are there (S4).
func (a *asker) counted() bool {
	return a.settings.counted || len(a.start.Caps) > 0 || a.start.AllElse > 0
}

// capOf is the cap of a pool for this start: the smallest that is set anywhere.
func (a *asker) capOf(name string) (n int, from string) {
	n, from = a.settings.Cap(name)
	variable := config.VarOf(name)
	if c, err := strconv.Atoi(strings.TrimSpace(a.start.Caps[variable])); err == nil && c > 0 && (n == 0 || c < n) {
		n, from = c, variable+" of the launcher"
	}
	if n == 0 && name == poolAll && a.start.AllElse > 0 {
		n, from = a.start.AllElse, "one for each processor, as none is set"
	}
	return n, from
}

// names are the pools the start counts against (S1).
func (a *asker) names() []string {
	names := slices.Clone(a.start.Pools)
	if !a.start.Only {
		names = append(names, poolAll)
		if a.start.Workload != Light {
			names = append(names, poolHeavy)
		}
		if a.start.Engine != "" {
			names = append(names, a.start.Engine)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// changed tells whether the settings may answer differently by now. The first
// time it can only note how the files look, and says so.
func (a *asker) changed() bool {
	if a.marks == nil {
		a.marks = a.settings.Marks()
		return true
	}
	return slices.ContainsFunc(a.marks, func(m config.Mark) bool { return m.Changed() })
}

// engineOf reads a declared engine, or recognises the command's; the user's own
// engines are known by the executables that the configuration names.
func (f *inForce) engineOf(declared string, argv []string) (string, error) {
	known := f.known()
	if declared != "" {
		name, ok := known.Canonical(declared)
		if !ok {
			return "", &BadOption{"engine", declared, "unknown engine"}
		}
		return name, nil
	}
	name, _ := known.Recognise(argv)
	return name, nil
}

// known are the engines of this configuration.
func (f *inForce) known() engine.Known {
	known := engine.Known{Binaries: map[string][]string{}, Own: map[string]engine.Own{}}
	for name, conf := range f.EngineOf {
		known.Binaries[name] = conf.Names
		known.Own[name] = engine.Own{
			Binary: conf.Binary, Args: conf.Args, Stdin: conf.Stdin, Stream: conf.Stream, Confines: conf.Confines, LightArgs: conf.LightArgs,
		}
	}
	return known
}

// engines are their names, in order.
func (f *inForce) engines() []string {
	all := engine.Names()
	for name := range f.EngineOf {
		if _, builtin := engine.Canonical(name); !builtin {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
