//go:build !linux

package attempt

// renameNew renames a file where nothing has the new name; fs.ErrExist otherwise.
func renameNew(from, to string) error { return linkNew(from, to) }
