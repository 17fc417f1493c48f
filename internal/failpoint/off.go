//go:build !failpoint

// Package failpoint marks the named steps at which a test may stop, crash or
// delay a process (design/style.md 12).
//
// Without the build tag of the same name, Hit is empty and is inlined away;
// release builds contain no failpoints (C16).
package failpoint

// Hit marks the step called name.
func Hit(string) {}

// Variables names what a process must be given for its failpoints to work.
func Variables() []string { return nil }
