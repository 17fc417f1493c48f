package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
)

// home judges the place where everything is kept.
func (w World) home() []Finding {
	path := w.Home.Path
	err := w.Home.Check()
	if errors.Is(err, fs.ErrNotExist) {
		return []Finding{finding(OK, "home", "%q (from %s) does not exist yet: nothing was ever counted or recorded", path, w.Home.From)}
	}
	if err != nil {
		return []Finding{finding(Bad, "home", "%v", err).help("nothing starts under a cap until this is changed")}
	}
	out := []Finding{finding(OK, "home", "%q (from %s), %s, on %s", path, w.Home.From, ownership(path), kindOf(path))}
	if unknown := w.Home.Unknown(); unknown != "" {
		out = append(out, finding(Warn, "home_fs", "%s", unknown).help("set %s to a directory on a local disk", home.Variable))
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		out = append(out, finding(Warn, "home_mode", "others may look into the home: mode %04o", info.Mode().Perm()).help("chmod 0700 %s", path))
	}
	if w.Leases != w.Home.Leases() {
		out = append(out, w.foreignLeases()...)
	}
	return append(out, w.below()...)
}

func (w World) foreignLeases() []Finding {
	if err := home.Local(w.Leases); err != nil {
		return []Finding{finding(Bad, "leases_dir", "leases_dir: %v", err)}
	}
	return []Finding{finding(Note, "leases_dir", "slots are counted in %q, as leases_dir says", w.Leases)}
}

// below judges the directories of the home that are there.
func (w World) below() (out []Finding) {
	for _, dir := range []string{w.Leases, w.Waiting, w.Home.Runs(), w.Home.Holds()} {
		if err := home.Trust(dir, true); err != nil && !errors.Is(err, fs.ErrNotExist) {
			out = append(out, finding(Bad, "home_below", "%v", err).help("remove it, or give it back to its user with mode 0700"))
		}
	}
	return out
}

func kindOf(path string) string {
	kind, err := machine.Kind(path)
	if err != nil {
		return "a file system that cannot be asked for"
	}
	return kind.Name
}

// otherHome says what moving the home means (C6).
func (w World) otherHome() []Finding {
	if w.Home.From != home.Variable {
		return nil
	}
	usual, err := home.Locate(func(string) string { return "" })
	if err != nil || usual.Path == w.Home.Path {
		return nil
	}
	return []Finding{finding(Note, "other_home", "%s moves the home from %q: agents started with and without the variable are not counted together", home.Variable, usual.Path)}
}

// configuration names the files and what is wrong in them.
func (w World) configuration() (out []Finding) {
	for _, f := range w.Settings.Files {
		level := OK
		if f.State == "refused" {
			level = Note // why is said below
		}
		out = append(out, finding(level, "config_file", "%s file %q: %s", f.Role, f.Path, f.State))
	}
	for _, err := range w.Problems {
		out = append(out, finding(Bad, "config", "%v", err).help("nothing starts until this is changed; handsel config check says where"))
	}
	for _, text := range w.Settings.Warnings {
		out = append(out, finding(Warn, "config", "%s", text))
	}
	return out
}

// caps lists what is in force and who says so.
func (w World) caps() (out []Finding) {
	for _, pool := range slices.Sorted(maps.Keys(w.Settings.Caps)) {
		if n, from := w.Settings.Cap(pool); n > 0 {
			out = append(out, finding(OK, "cap", "pool %q: at most %d (%s)", pool, n, from))
		}
	}
	if len(out) == 0 {
		out = append(out, finding(Note, "no_cap", "no cap is set anywhere: agents are not limited").help("handsel config set pools.all 4"))
	}
	return out
}

// slots names what holds a place without a supervisor, once for each agent.
func (w World) slots() (out []Finding) {
	taken, err := lease.Taken(w.Leases)
	if err != nil {
		out = append(out, finding(Bad, "slots", "%v", err))
	}
	kept := map[string][]string{} // the slots of each orphaned run
	for _, h := range taken {
		if h.State == "orphaned" {
			kept[agentOf(h)] = append(kept[agentOf(h)], h.Slot)
		}
	}
	for _, h := range taken {
		switch {
		case h.State == "unverifiable":
			out = append(out, finding(Warn, "unverifiable", "slot %s: its agent (pid %d) cannot be looked at from here, so the slot stays taken", h.Slot, h.Child).
				help("handsel gc --slot %s frees it, once you know that the agent is gone", h.Slot))
		case kept[agentOf(h)] != nil:
			f := finding(Warn, "orphaned", "%s is orphaned: its agent (pid %d) lives and keeps %s, its supervisor (pid %d) is gone",
				agentOf(h), h.Child, strings.Join(kept[agentOf(h)], ", "), h.Pid)
			if h.Run != "" {
				f = f.help("handsel cancel run:%s ends it", h.Run)
			}
			out = append(out, f)
			delete(kept, agentOf(h))
		}
	}
	return out
}

// agentOf names the agent of a slot: by its run, or by its process where
// another implementation recorded none.
func agentOf(h lease.Holder) string {
	if h.Run == "" {
		return fmt.Sprintf("the agent of slot %s", h.Slot)
	}
	return "run " + h.Run
}

func (w World) strays() (out []Finding) {
	if w.Strays == nil {
		return nil
	}
	for _, s := range w.Strays() {
		out = append(out, finding(Warn, "stray", "%s", s.Text).help("handsel cancel run:%s ends it", s.ID))
	}
	return out
}

// leftovers turns what can be cleared away into findings.
func (w World) leftovers() (out []Finding) {
	left, problems := w.stale()
	for _, err := range problems {
		out = append(out, finding(Bad, "unreadable", "%v", err))
	}
	for _, item := range left {
		f := finding(Warn, item.Kind, "%s: %s", item.what(), item.Why).help("handsel doctor --fix or handsel gc --yes %s", item.verb())
		f.do, f.Can = item.do, true
		out = append(out, f)
	}
	return out
}

func (i Item) what() string {
	if i.ID != "" {
		return "run " + i.ID
	}
	return fmt.Sprintf("%q", strings.TrimSpace(i.Path))
}
