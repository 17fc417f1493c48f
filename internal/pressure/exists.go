package pressure

import (
	"os"
	"path/filepath"
)

// existing is the nearest directory at or above p that is there: a home that is
// not made yet will be on that disk.
func existing(p string) string {
	for at := p; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			return at
		}
	}
}
