package attempt

import "os"

// linkNew is renameNew in two steps, between which the file has two names and a
// reader is told that it is not ours to trust: it reads again.
func linkNew(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}
