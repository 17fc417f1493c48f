package cli

import (
	"errors"
	"io/fs"
	"os"
)

// ownPath is this executable, also when its file was replaced meanwhile.
func ownPath() string {
	path, err := os.Executable()
	if err == nil {
		_, err = os.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "/proc/self/exe"
	}
	return path
}
