//go:build unix

package proc

// FindMarked lists the processes whose environment carries the variable name,
// as far as it can be read: other users' processes are passed over.
func FindMarked(name string) ([]Marked, error) {
	list, err := pids()
	if err != nil {
		return nil, err
	}
	var found []Marked
	for _, pid := range list {
		value, ok, err := Env(pid, name)
		if err != nil || !ok {
			continue
		}
		if st, err := ReadStat(pid); err == nil && !st.Zombie() {
			found = append(found, Marked{Stat: st, Value: value})
		}
	}
	return found, nil
}

// FindRun looks for the oldest living process whose environment names run. A
// process that is just being executed shows no environment yet: while one that
// is no older than since (start ticks) looks like that, unsure is true.
func FindRun(run string, since uint64) (id ID, found, unsure bool) {
	list, err := pids()
	if err != nil {
		return ID{}, false, false
	}
	for _, pid := range list {
		text, err := environ(pid)
		if err != nil {
			continue
		}
		if len(text) == 0 && executed(pid) { // it has an environment by now, or none at all
			if text, err = environ(pid); err != nil || len(text) == 0 {
				continue
			}
		}
		value, marked := LookEnv(text, runMarker)
		if len(text) > 0 && (!marked || value != run) {
			continue
		}
		st, err := ReadStat(pid)
		switch {
		case err != nil || st.Zombie():
		case marked:
			if !found || st.Ticks < id.Ticks {
				id, found = st.ID(), true
			}
		case st.Ticks >= since && st.PPid > 0 && st.Pgrp > 0 && !st.Exiting: // who is on his way out shows none any more
			unsure = true
		}
	}
	return id, found, unsure
}
