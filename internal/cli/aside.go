package cli

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
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

// asideEnv is our environment without the mark of the run we may be part of.
func asideEnv() (env []string, marked bool) {
	env = os.Environ()
	rest := slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "HANDSEL_RUN=") })
	return rest, len(rest) != len(env)
}
