//go:build unix

package slot

import (
	"github.com/handsel/handsel/internal/machine"
	"golang.org/x/sys/unix"
)

// holderGone tells whether the process that wrote a locked slot's record has
// ended. Its lock then is on its way out, or was handed over and will get a
// new record; either way the look must be repeated. One kill(2) with signal 0
// is the cheapest look there is; it proves nothing about who has the pid now.
func holderGone(b brief) bool {
	if len(b.boot) > 0 && (b.ns != machine.PidNS() || string(b.boot) != machine.BootID()) {
		return false
	}
	return unix.Kill(b.holder, 0) == unix.ESRCH
}
