package proc

import "errors"

// Become cannot be done on Windows.
func Become(path string, _, _ []string) error {
	return &StartError{Kind: BadSpec, Path: path, Detail: "no process becomes another program here", Err: errors.ErrUnsupported}
}
