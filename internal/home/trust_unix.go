//go:build unix

package home

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// owner says whose a file may be.
type owner int

const (
	ownOnly   owner = iota // the user's we run as
	ownOrRoot              // or root's, who could change anything anyway
	rootOnly
)

// self is the user we act as. Tests that are root put another user here to see
// their own files as foreign ones.
var self = os.Geteuid

// Trust judges a path without opening it: it must be a directory, or a regular
// file with one name, of ours and not writable by others; files may be root's.
// *Untrusted says what is wrong, with owner and mode; a missing path is
// fs.ErrNotExist.
func Trust(path string, wantDir bool) error {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Lstat(path, &st) }); err != nil {
		return missingOr(path, err)
	}
	who := ownOrRoot
	if wantDir {
		who = ownOnly
	}
	return judge(path, &st, wantDir, who)
}

// TrustParent judges the directory that holds path: somebody else who can write
// it can replace the file, whatever the file's own mode says. A sticky
// directory protects its files, and the directory may be root's.
func TrustParent(path string) error {
	dir := filepath.Dir(path)
	var st unix.Stat_t
	if err := retry(func() error { return unix.Stat(dir, &st) }); err != nil {
		return missingOr(dir, err)
	}
	if uid := int(st.Uid); uid != self() && uid != 0 {
		return &Untrusted{Path: dir, Why: "it belongs to somebody else: " + ownerAndMode(&st)}
	}
	if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return &Untrusted{Path: dir, Why: "others can write it: " + ownerAndMode(&st)}
	}
	return nil
}

func judge(path string, st *unix.Stat_t, wantDir bool, who owner) error {
	no := func(why string) error { return &Untrusted{Path: path, Why: why} }
	kind := uint32(st.Mode) & unix.S_IFMT
	switch {
	case kind == unix.S_IFLNK:
		return no("it is a symbolic link")
	case wantDir && kind != unix.S_IFDIR:
		return no("it is " + kindName(kind) + ", not a directory")
	case !wantDir && kind != unix.S_IFREG:
		return no("it is " + kindName(kind) + ", not a regular file")
	}
	uid := int(st.Uid)
	switch {
	case who == rootOnly && uid != 0:
		return no("it must be root's: " + ownerAndMode(st))
	case who == ownOnly && uid != self(), who == ownOrRoot && uid != self() && uid != 0:
		return no("it belongs to somebody else: " + ownerAndMode(st))
	case st.Mode&0o022 != 0:
		return no("others can write it: " + ownerAndMode(st))
	case !wantDir && st.Nlink > 1: // none: WriteFile replaced it since it was opened, and its content still stands
		return no(fmt.Sprintf("it has %d names (hard links): %s", st.Nlink, ownerAndMode(st)))
	}
	return nil
}

func kindName(kind uint32) string {
	switch kind {
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFREG:
		return "a regular file"
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

// ownerAndMode is what a person needs to repair it.
func ownerAndMode(st *unix.Stat_t) string {
	who := "uid " + strconv.Itoa(int(st.Uid))
	if name := userName(int(st.Uid)); name != "" {
		who = name + " (" + who + ")"
	}
	return fmt.Sprintf("owner %s, mode %04o", who, uint32(st.Mode)&0o7777)
}

// failed turns an errno into the error that tells what to do about it. open(2)
// says only ELOOP, ENOTDIR or ENXIO when a link, file or socket is in the
// place, so the place is looked at once more.
func failed(at int, name, path string, errno error) error {
	switch errno {
	case unix.ENOENT:
		return notExist(path)
	case unix.ELOOP, unix.ENOTDIR, unix.EISDIR, unix.ENXIO, unix.EACCES, unix.EPERM, unix.EOPNOTSUPP:
	default:
		return &Unusable{Path: path, Err: errno}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return missingOr(path, errno)
	}
	kind := uint32(st.Mode) & unix.S_IFMT
	switch {
	case kind == unix.S_IFLNK:
		return &Untrusted{Path: path, Why: "it is a symbolic link"}
	case errno == unix.ENOTDIR, errno == unix.EISDIR, kind != unix.S_IFREG && kind != unix.S_IFDIR:
		return &Untrusted{Path: path, Why: "it is " + kindName(kind)}
	case int(st.Uid) != self():
		return &Untrusted{Path: path, Why: "it belongs to somebody else: " + ownerAndMode(&st)}
	}
	return &Unusable{Path: path, Err: fmt.Errorf("%w (%s)", errno, ownerAndMode(&st))}
}

// missingOr tells absence from trouble. A component that is a file means that
// nothing can be below it.
func missingOr(path string, err error) error {
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return notExist(path)
	}
	return &Unusable{Path: path, Err: err}
}

// repairMode gives a directory that was just created the rights the umask took
// from its owner.
func repairMode(path string) error { return repairModeAt(cwd, path, path) }

func repairModeAt(at int, name, path string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &Unusable{Path: path, Err: err}
	}
	if uint32(st.Mode)&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o777 == 0o700 || int(st.Uid) != self() {
		return nil // as it should be, or not what we made: the judge that follows says so
	}
	if err := unix.Fchmodat(at, name, 0o700, 0); err != nil {
		return &Unusable{Path: path, Err: err}
	}
	return nil
}
