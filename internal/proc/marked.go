package proc

// Marked is a process whose environment, as it was started, carries a mark.
type Marked struct {
	Stat
	Value string
}
