package record

import (
	"context"
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// watchGrowth tells of each change in a directory until ctx ends. It is false
// at once when the kernel cannot watch it, or it is not there.
func watchGrowth(ctx context.Context, path string, grown chan<- struct{}) bool {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return false
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	const mask = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	if _, err := unix.InotifyAddWatch(fd, path, mask); err != nil {
		return false
	}
	defer context.AfterFunc(ctx, func() { events.Close() })()
	tellGrowth(grown) // what came before the watch
	var buf [4096]byte
	for {
		n, err := events.Read(buf[:])
		if err != nil || n < unix.SizeofInotifyEvent {
			return ctx.Err() != nil
		}
		tellGrowth(grown)
		if gone(buf[:n]) {
			return false
		}
	}
}

// gone tells whether the directory itself was removed.
func gone(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		// struct inotify_event: wd, mask, cookie, len, name.
		mask, size := binary.NativeEndian.Uint32(events[4:]), binary.NativeEndian.Uint32(events[12:])
		if mask&(unix.IN_DELETE_SELF|unix.IN_IGNORED) != 0 {
			return true
		}
		events = events[min(len(events), unix.SizeofInotifyEvent+int(size)):]
	}
	return false
}
