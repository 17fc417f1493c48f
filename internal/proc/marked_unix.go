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
