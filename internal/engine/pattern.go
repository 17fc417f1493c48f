package engine

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled when it is first asked for.
// Few starts of handsel read a stream, and to compile all of them would cost each
// start more than all else it does before main (C1).
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
