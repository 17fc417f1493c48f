package line

import "golang.org/x/sys/unix"

func (l *Line) mkfifo(name string) error { return unix.Mkfifoat(l.dir.Fd(), name, 0o600) }
