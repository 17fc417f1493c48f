package handsel

import "syscall"

// passedOn are signals that mean something to the command only.
var passedOn []syscall.Signal
