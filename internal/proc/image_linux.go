package proc

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Images lists the processes that execute a file, and counts those of which it
// cannot be seen which. Kernel threads and zombies execute none.
func Images() (list []Image, unreadable int, err error) {
	all, err := pids()
	if err != nil {
		return nil, 0, err
	}
	for _, pid := range all {
		one, err := image(pid)
		switch {
		case errors.Is(err, ErrGone), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		case err != nil:
			unreadable++
		case one.Exe != "":
			list = append(list, one)
		}
	}
	return list, unreadable, nil
}

// image looks at one process. What belongs to another that got its number
// meanwhile is not mixed in.
func image(pid int) (Image, error) {
	st, err := ReadStat(pid)
	if err != nil {
		return Image{}, err
	}
	dir := "/proc/" + strconv.Itoa(pid)
	one := Image{Stat: st}
	text, err := readSmall(dir+"/cmdline", make([]byte, 4096))
	if err != nil || len(text) == 0 {
		return Image{}, err // a kernel thread, or a zombie
	}
	one.Argv = strings.Split(strings.TrimRight(string(text), "\x00"), "\x00") // a title of its own is padded with zeros
	if one.Exe, err = os.Readlink(dir + "/exe"); err != nil {
		return Image{}, err
	}
	one.Exe = strings.TrimSuffix(one.Exe, " (deleted)")
	one.Dir, _ = os.Readlink(dir + "/cwd")
	one.Run, _, _ = Env(pid, runMarker)
	info, err := os.Stat(dir)
	if err != nil {
		return Image{}, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		one.UID = int(owner.Uid)
	}
	if now, err := ReadStat(pid); err != nil || now.Ticks != st.Ticks {
		return Image{}, ErrGone
	}
	return one, nil
}
