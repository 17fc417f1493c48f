//go:build failpoint && windows

package failpoint

import "os"

func signalSelf(verb string) {
	if verb == "kill" {
		os.Exit(199)
	}
}
