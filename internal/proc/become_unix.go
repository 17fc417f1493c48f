//go:build unix

package proc

import "syscall"

// Become makes this process the program at path: the same process, with another
// image. It returns only with a *StartError.
func Become(path string, argv, env []string) error {
	return explain(syscall.Exec(path, argv, env), path, "")
}
