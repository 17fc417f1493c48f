package handsel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/quota"
)

// Order holds starts back until it is removed or its time has come (C10).
type Order = hold.Order

// The kinds of order that people give.
const (
	KindHold  = hold.Hold
	KindDrain = hold.Drain
)

// CodeInside is the reason code of what an agent may not decide (C15).
const CodeInside = "inside_agent"

// Decides refuses, from inside an agent, a verb that decides what starts, what is
// good enough, or what goes out (C15).
// It is final from where it was asked.
type Decides struct {
	Verb   string
	Inside *nest.Inside
}

func (e *Decides) Error() string {
	what := "starts"
	switch e.Verb {
	case "accept", "reject":
		what = "is good enough"
	case "release":
		what = "goes out"
	}
	return fmt.Sprintf("%s: an agent may not decide what %s (code %s; found by process %d, %s)", e.Verb, what, CodeInside, e.Inside.Pid, e.Inside.How)
}

// Code is the reason code of the refusal.
func (e *Decides) Code() string { return CodeInside }

// Reason is the refusal in the words of C13.
func (e *Decides) Reason() *Reason {
	return &Reason{Class: "ownership", Code: CodeInside, Message: e.Error()}
}

func (e *Decides) Unwrap() error { return e.Inside }

// mayDecide tells whether this process may: anywhere but inside an agent.
func mayDecide(verb string) error {
	if inside, ok := errors.AsType[*nest.Inside](nest.Check()); ok {
		return &Decides{verb, inside}
	}
	return nil
}

// Ordered is what became of an order.
type Ordered struct {
	Order   Order
	Already bool   // one of this kind and scope was there, and was replaced
	Running int    // runs that go on: an order ends none
	Silent  string // why the dispatcher does not know yet; empty: it does, or there is none
}

// Hold gives an order that keeps new starts of x back: "all", or a lane, an
// engine or a pool by its name or with lane:, engine: or pool: (C4). It binds
// direct runs and rows alike, needs no dispatcher, and outlives every process
// (L22). Giving it again replaces reason and end. A zero until is until Resume.
func (h *Home) Hold(ctx context.Context, x, reason string, until time.Time) (*Ordered, error) {
	if err := mayDecide("hold"); err != nil {
		return nil, err
	}
	scope, err := h.scope(x)
	if err != nil {
		return nil, err
	}
	return h.order(ctx, Order{Scope: scope, Kind: hold.Hold, Reason: reason, Until: until})
}

// Drain admits nothing new, until Resume.
func (h *Home) Drain(ctx context.Context, reason string) (*Ordered, error) {
	if err := mayDecide("drain"); err != nil {
		return nil, err
	}
	return h.order(ctx, Order{Scope: scopeAll, Kind: hold.Drain, Reason: reason})
}

const scopeAll = "all"

func (h *Home) order(ctx context.Context, o Order) (*Ordered, error) {
	o.V, o.Code, o.By, o.Since = 1, string(o.Kind), orderedBy(), machine.Now()
	out := &Ordered{Order: o}
	before, err := hold.List(h.dir.Holds())
	if err != nil {
		return nil, err
	}
	out.Already = slices.ContainsFunc(before.All, func(b Order) bool { return b.Kind == o.Kind && b.Scope == o.Scope })
	if err := hold.Put(h.dir, o); err != nil {
		return nil, err
	}
	h.ordered(o.Since, map[hold.Kind]string{hold.Hold: journal.Held, hold.Drain: journal.Drained}[o.Kind], o)
	out.Running, out.Silent = h.Going(), h.wake(ctx)
	return out, nil
}

// orderedBy names who gives an order, for people to ask.
func orderedBy() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

// Going is how many runs go on, by the slots that are held and by the records,
// whichever knows of more. What cannot be read is not counted.
func (h *Home) Going() int {
	taken, _ := h.agents()
	list, err := h.Runs(RunFilter{})
	if err != nil {
		return taken
	}
	return max(taken, list.Totals.Running)
}

// agents is how many runs hold a slot.
func (h *Home) agents() (int, error) {
	s, _ := config.LoadLenient(h.configEnv())
	taken, err := lease.Taken(h.places(s).Leases)
	seen := map[string]bool{}
	for _, t := range taken {
		seen[cmp.Or(t.Run, t.Slot)] = true
	}
	return len(seen), err
}

// wake tells the dispatcher, if there is one, that an order changed. It looks by
// itself as well, so this only makes it sooner; the text says why it was not told.
func (h *Home) wake(ctx context.Context) string {
	c, err := api.Dial(h.dir)
	if err == nil {
		defer c.Close()
		err = c.Wake(ctx)
	}
	switch {
	case err == nil, errors.As(err, new(*api.NotRunning)):
		return ""
	}
	return err.Error()
}

// Resume takes back the holds of x, and what paused it: of an engine or an account
// all that is known of its quota, as ClearQuota does. Without x it ends a
// drain and a hold of everything. What is not held is no error: it returns what
// was taken back, which may be nothing.
func (h *Home) Resume(ctx context.Context, x string) ([]Order, string, error) {
	if err := mayDecide("resume"); err != nil {
		return nil, "", err
	}
	scope, err := h.scope(cmp.Or(x, scopeAll))
	if none, ok := errors.AsType[*NotFound](err); ok {
		scope, err = h.heldAs(none.Name) // what it held may be gone
	}
	if err != nil {
		return nil, "", err
	}
	orders, err := hold.List(h.dir.Holds())
	if err != nil {
		return nil, "", err
	}
	now := machine.Now()
	var gone []Order
	if a, ok := quota.OfScope(scope); ok {
		done, err := h.clearQuota(a)
		for _, c := range done {
			gone = append(gone, c.Order)
		}
		if err != nil {
			return gone, "", err
		}
	}
	for _, o := range orders.All {
		if o.Scope != scope || o.OfAccount() {
			continue
		}
		if err := hold.Remove(h.dir, o.Kind, o.Scope); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return gone, "", err
		}
		gone = append(gone, o)
	}
	if len(gone) == 0 {
		return nil, "", nil
	}
	h.ordered(now, journal.Resumed, gone...)
	return gone, h.wake(ctx), nil
}

// heldAs is the scope of an order that is in force under a bare name.
func (h *Home) heldAs(name string) (string, error) {
	orders, err := hold.List(h.dir.Holds())
	if err != nil {
		return "", err
	}
	var fits []string
	for _, o := range orders.All {
		if _, of, ok := strings.Cut(o.Scope, ":"); ok && of == name && !slices.Contains(fits, o.Scope) {
			fits = append(fits, o.Scope)
		}
	}
	return oneOf(name, fits)
}

// Orders lists the orders in force, the oldest first, and what could not be
// read.
func (h *Home) Orders() ([]Order, []string, error) {
	orders, err := hold.List(h.dir.Holds())
	if err != nil {
		return nil, nil, err
	}
	var problems []string
	for _, p := range orders.Problems {
		problems = append(problems, p.Error())
	}
	return orders.All, problems, nil
}

// scope reads X as what an order can be about.
func (h *Home) scope(x string) (string, error) {
	if x == scopeAll {
		return scopeAll, nil
	}
	kind, name, ok := strings.Cut(x, ":")
	if !ok {
		kind, name = "", x
	}
	switch kind {
	case "lane":
		if err := home.ValidLane(name); err != nil {
			return "", err
		}
		return x, nil
	case "engine":
		name, err := h.EngineName(name)
		return "engine:" + name, err
	case "account":
		return h.accountScope(name)
	case "pool":
		if !engine.Valid(name) {
			return "", &BadOption{"pool", name, "a pool's name is a-z, 0-9, _ and -, at most 63, not beginning with a sign"}
		}
		return x, nil
	case "run", "label":
		return "", &BadScope{x}
	}
	return oneOf(x, h.scopesOf(x))
}

// BadScope refuses an order about something that no order can be about.
type BadScope struct{ Name string }

func (e *BadScope) Error() string {
	return strconv.Quote(e.Name) + ": starts are held by lane, engine, account or pool, or all of them"
}

func oneOf(name string, fits []string) (string, error) {
	switch len(fits) {
	case 0:
		return "", fmt.Errorf("%w (lane:%s means a lane that is not there yet)", &NotFound{Name: name}, name)
	case 1:
		return fits[0], nil
	}
	return "", &Ambiguous{Name: name, Fits: fits}
}

// scopesOf lists what a bare name fits. An engine and its pool are one thing.
func (h *Home) scopesOf(name string) (fits []string) {
	if canonical, err := h.EngineName(name); err == nil {
		fits = append(fits, "engine:"+canonical)
	} else if slices.Contains(h.poolNames(), name) {
		fits = append(fits, "pool:"+name)
	}
	if h.laneKnown(name) {
		fits = append(fits, "lane:"+name)
	}
	return fits
}

// poolNames are the pools that have a cap or a directory.
func (h *Home) poolNames() []string {
	s, _ := config.LoadLenient(h.configEnv())
	names, _ := lease.PoolNames(h.places(s).Leases) // what cannot be read has no name here
	names = append(names, poolAll, poolHeavy)
	for name := range s.Caps {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// engineNames are the engines there are, the configuration's own included.
func (h *Home) engineNames() []string {
	s, _ := config.LoadLenient(h.configEnv())
	names := slices.Clone(engine.Names())
	for name := range s.EngineOf {
		names = append(names, name)
	}
	return names
}

// laneKnown tells whether a lane was ever taken or is waiting.
func (h *Home) laneKnown(name string) bool {
	if home.ValidLane(name) != nil {
		return false
	}
	seen, err := lane.Look(h.dir, name)
	if err == nil && (seen.State != lane.Free || seen.Record != nil) {
		return true
	}
	_, err = h.entry(name)
	return err == nil
}
