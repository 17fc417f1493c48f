package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/handsel/handsel/internal/record"
)

// The kinds of name (C4).
const (
	kindLane   = "lane"
	kindRun    = "run"
	kindEngine = "engine"
	kindPool   = "pool"
	kindLabel  = "label"
)

// MinSuffix is how many characters of a run's id name it at least (C4).
const MinSuffix = record.MinSuffix

// NotFound reports that nothing goes by a name.
type NotFound struct {
	Name string
	Why  string // "" = nothing more to say
}

func (e *NotFound) Error() string {
	text := strconv.QuoteToASCII(e.Name) + ": nothing goes by that name"
	if e.Why != "" {
		text += " (" + e.Why + ")"
	}
	return text
}

// Ambiguous reports a name that means several things.
type Ambiguous struct {
	Name string
	Fits []string
}

func (e *Ambiguous) Error() string {
	return fmt.Sprintf("%s means more than one thing: %s", strconv.QuoteToASCII(e.Name), strings.Join(e.Fits, ", "))
}

// BadName reports a text that cannot name anything: the command line has the
// wrong shape.
type BadName struct{ Name string }

func (e *BadName) Error() string {
	return strconv.QuoteToASCII(e.Name) + " names nothing: a run's id or the end of it, or lane:, run:, engine:, pool: or label: and a name"
}

// name is a parsed X. An empty kind is a bare name.
type name struct{ kind, text string }

// parseName reads X. A prefix that is no kind is part of a bare name.
func parseName(x string) (name, error) {
	kind, text, ok := strings.Cut(x, ":")
	if !ok || !slices.Contains([]string{kindLane, kindRun, kindEngine, kindPool, kindLabel}, kind) {
		kind, text = "", x
	}
	if text == "" || strings.ContainsRune(text, 0) {
		return name{}, &BadName{x}
	}
	return name{kind, text}, nil
}

// Find resolves X. A run may be named by any unique end of its id of at least
// MinSuffix characters, ended or not. A lane, an engine, a pool or a label (K=V,
// or K with any value) means every run of it that has not ended; with all, every
// run. A bare name that fits one thing means it; as a lane's, the run that has it
// now. The error is *NotFound, *Ambiguous
// or *BadName.
func (p Place) Find(x string, all bool) ([]Run, error) {
	n, err := parseName(x)
	if err != nil {
		return nil, err
	}
	_, whole := timeOf(x) // a whole id can mean nothing else
	switch {
	case n.kind == kindRun, whole:
		return p.oneRun(x, n.text)
	case n.kind == "":
		return p.bare(x, all)
	}
	list, err := p.List(Filter{})
	if err != nil {
		return nil, err
	}
	found := group(list.Runs, n, all)
	if len(found) == 0 {
		return nil, &NotFound{Name: x}
	}
	return found, nil
}

// oneRun is the run whose id ends in text.
func (p Place) oneRun(x, text string) ([]Run, error) {
	now := p.look()
	ids, err := now.endingIn(text)
	if err != nil {
		return nil, renamed(err, x)
	}
	return now.only(x, ids)
}

// only is the one run that ids names.
func (n *now) only(x string, ids []string) ([]Run, error) {
	if len(ids) > 1 {
		return nil, &Ambiguous{x, prefixed(ids)}
	}
	if r, ok := n.get(ids[0]); ok {
		return []Run{r}, nil
	}
	if n.processes()[ids[0]] != nil {
		return []Run{n.ofProcess(ids[0])}, nil
	}
	if rec, err := record.Load(n.at.Home, ids[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err // its record is there, and cannot be read
	} else if err == nil {
		return []Run{n.judge(rec)}, nil
	}
	return nil, &NotFound{Name: x}
}

func prefixed(ids []string) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = kindRun + ":" + id
	}
	return out
}

func renamed(err error, x string) error {
	if none, ok := errors.AsType[*NotFound](err); ok {
		return &NotFound{x, none.Why}
	}
	return err
}

// endingIn lists the runs, of any source, whose id ends in text.
func (n *now) endingIn(text string) ([]string, error) {
	hex, why := suffix(text)
	if why != "" {
		return nil, &NotFound{text, why}
	}
	var ids []string
	id, err := record.Find(n.at.Home, text)
	switch several, ok := errors.AsType[*record.Ambiguous](err); {
	case err == nil:
		ids = append(ids, id)
	case ok:
		ids = append(ids, several.IDs...)
	case errors.Is(err, fs.ErrNotExist):
	default:
		if _, ok := errors.AsType[*record.NotFound](err); !ok {
			n.problem(err) // a home that cannot be read still has slots and tickets
		}
	}
	ids = append(ids, ending(n.ids(), hex)...)
	if len(ids) == 0 {
		for marked := range n.processes() {
			ids = append(ids, ending([]string{marked}, hex)...)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return nil, &NotFound{Name: text}
	}
	return ids, nil
}

func ending(ids []string, hex string) (found []string) {
	for _, id := range ids {
		if strings.HasSuffix(bare(id), hex) {
			found = append(found, id)
		}
	}
	return found
}

func bare(text string) string { return strings.ReplaceAll(strings.ToLower(text), "-", "") }

// suffix is text as the end of an id, or why it is none.
func suffix(text string) (hex, why string) {
	hex = bare(text)
	switch {
	case strings.Trim(hex, "0123456789abcdef") != "" || len(hex) > 32:
		return "", "a run's id has 32 hex digits"
	case len(hex) < MinSuffix:
		return "", fmt.Sprintf("at least %d characters of the end of a run's id are needed", MinSuffix)
	}
	return hex, ""
}

// bare resolves a name without a kind: whatever one thing it fits.
func (p Place) bare(x string, all bool) ([]Run, error) {
	now := p.look()
	ids, idErr := now.endingIn(x)
	list, err := p.List(Filter{})
	if err != nil {
		if idErr == nil {
			return now.only(x, ids)
		}
		return nil, err
	}
	fits := prefixed(ids)
	var groups [][]Run
	for _, kind := range []string{kindLane, kindEngine, kindPool, kindLabel} {
		if kind == kindLabel && !strings.Contains(x, "=") {
			continue // a bare label is given with its value
		}
		// An engine's pool has its name and its runs: they are one thing.
		if kind == kindPool && slices.Contains(fits, kindEngine+":"+x) {
			continue
		}
		if found := group(list.Runs, name{kind, x}, all && kind != kindLane); len(found) > 0 {
			groups = append(groups, found)
			fits = append(fits, kind+":"+x)
		}
	}
	switch {
	case len(fits) > 1:
		return nil, &Ambiguous{x, fits}
	case len(groups) == 1:
		return groups[0], nil
	case len(ids) == 1:
		return now.only(x, ids)
	}
	return nil, idErr
}

// group picks the runs that a name of several means.
func group(list []Run, n name, all bool) (found []Run) {
	for _, r := range list {
		if (all || !r.Ended()) && n.fits(&r) {
			found = append(found, r)
		}
	}
	return found
}

func (n name) fits(r *Run) bool {
	switch n.kind {
	case kindLane:
		return r.Lane == n.text
	case kindEngine:
		return r.Engine == n.text
	case kindPool:
		return slices.Contains(r.poolNames(), n.text)
	case kindLabel:
		key, value, withValue := strings.Cut(n.text, "=")
		got, ok := r.Labels[key]
		return ok && (!withValue || got == value)
	}
	return false
}

// poolNames are the pools a run counts, or will count, against.
func (r *Run) poolNames() (names []string) {
	for _, p := range r.Pools {
		names = append(names, p.Name)
	}
	if r.ticket != nil {
		for _, p := range r.ticket.pools {
			names = append(names, p.Name)
		}
	}
	return names
}
