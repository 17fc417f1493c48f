package proc

// FindMarked cannot look on Windows.
func FindMarked(string) ([]Marked, error) { return nil, errNoTable }

// FindRun cannot look on Windows.
func FindRun(string, uint64) (id ID, found, unsure bool) { return ID{}, false, false }
