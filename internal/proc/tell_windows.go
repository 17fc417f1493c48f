package proc

import "syscall"

// Tell cannot prove anything on Windows.
func Tell(Claim, syscall.Signal) error { return ErrUnverifiable }
