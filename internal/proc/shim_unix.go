//go:build unix

package proc

import (
	"errors"

	"golang.org/x/sys/unix"
)

// shimHead is how far a file is read to tell whether it is a shim.
const shimHead = 1 << 10

// ShimOf tells whether a file is a shim of ours, and the name it stands for. What
// it says of itself counts, not where it lies or what it is called: a copy in
// another directory, or one found through a link, leads back to us all the same.
func ShimOf(path string) (name string, ok bool) {
	fd, err := ignoreEINTR(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // it may be a FIFO
	})
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	head := make([]byte, shimHead)
	n, err := ignoreEINTR(func() (int, error) { return unix.Read(fd, head) })
	if err != nil {
		return "", false
	}
	return ShimIn(string(head[:n]))
}

func ignoreEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
