package home

import "os"

// RenameNew renames a file where nothing has the new name; fs.ErrExist otherwise,
// and then the old name stays. Nobody sees the file under both names, and no crash
// leaves it under both, but on a file system that can only link: see linkNew.
func RenameNew(from, to string) error { return renameNew(from, to) }

// linkNew is RenameNew in two steps, between which the file has two names and a
// reader is told that it is not ours to trust: it reads again.
func linkNew(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}
