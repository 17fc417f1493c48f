//go:build unix

package slot

import (
	"os"

	"github.com/handsel/handsel/internal/machine"
	"golang.org/x/sys/unix"
)

// holderGone tells whether the process that wrote a locked slot's record has
// ended. Its lock then is on its way out, or was handed over and will get a
// new record; either way the look must be repeated. One kill(2) with signal 0
// is the cheapest look there is; it proves nothing about who has the pid now.
func (s *Seen) holderGone() bool {
	boot := ""
	if s.odd != nil {
		boot = s.odd.BootID
	} else {
		boot = s.said.bootID(s.text)
	}
	if boot != "" && (s.said.ns != machine.PidNS() || boot != machine.BootID()) {
		return false
	}
	return s.said.holder > 0 && s.said.holder != pid && unix.Kill(s.said.holder, 0) == unix.ESRCH
}

var pid = os.Getpid()
