package cli

import "golang.org/x/sys/unix"

// redirect makes fd mean what to means.
func redirect(fd, to int) error { return unix.Dup3(to, fd, 0) }
