package line

import "golang.org/x/sys/unix"

func (l *Line) mkfifo(name string) error { return unix.Mkfifo(l.dir.Path()+"/"+name, 0o600) }
