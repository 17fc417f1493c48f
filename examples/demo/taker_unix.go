//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
)

// lock takes the lock of the file at path if nobody has it. The file is nil
// when somebody does, and the error fs.ErrNotExist when there is no such file.
func lock(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return nil, nil
	}
	return nil, err
}
