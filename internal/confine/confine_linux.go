package confine

import (
	"errors"
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

const (
	// writing is every way to change what a file holds or a directory lists,
	// moves between directories included.
	writing landlock.AccessFSSet = ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSRefer |
		ll.AccessFSMakeReg | ll.AccessFSMakeDir | ll.AccessFSMakeSym | ll.AccessFSMakeFifo | ll.AccessFSMakeSock |
		ll.AccessFSMakeChar | ll.AccessFSMakeBlock | ll.AccessFSRemoveFile | ll.AccessFSRemoveDir
	// filling is what of it one file takes.
	filling landlock.AccessFSSet = ll.AccessFSWriteFile | ll.AccessFSTruncate
	// driving is what a terminal or a harmless device takes.
	driving landlock.AccessFSSet = ll.AccessFSWriteFile | ll.AccessFSIoctlDev
)

// devices may be written to by every confined process: nothing is kept in them.
// /dev/pts is a directory of terminals.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts"}

// askABI asks the kernel for the version of its interface. Tests replace it.
var askABI = ll.LandlockGetABIVersion

// Supported is the version of the kernel's interface. The error, an
// *Unsupported, says why this machine cannot confine.
func Supported() (abi int, err error) {
	abi, err = askABI()
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, &Unsupported{"Landlock is built in but not switched on (see lsm= on its command line)"}
	case err != nil || abi <= 0:
		return 0, &Unsupported{"it has no Landlock"}
	case abi < Oldest:
		return abi, &Unsupported{fmt.Sprintf("its Landlock is version %d, and %d (Linux 6.2) is the first that stops truncation", abi, Oldest)}
	}
	return abi, nil
}

// CanKeep tells whether this machine can keep rules with these ports; what it
// cannot is an *Unsupported.
func CanKeep(ports []uint16) error {
	abi, err := Supported()
	if err == nil && ports != nil && abi < PortsFrom {
		err = &Unsupported{fmt.Sprintf("its Landlock is version %d, and %d (Linux 6.7) is the first that narrows ports", abi, PortsFrom)}
	}
	return err
}

// Ruleset is rules as the kernel has them. It restricts nobody until Enter.
type Ruleset struct{ fd int }

// Ruleset gives the rules to the kernel. The paths must exist and are followed
// now; what they lead to later does not matter. Devices that are not here are
// passed over. An *Unsupported says that the kernel cannot keep them.
func (r Rules) Ruleset() (*Ruleset, error) {
	if err := CanKeep(r.Ports); err != nil {
		return nil, err
	}
	abi, err := Supported()
	if err != nil {
		return nil, err
	}
	fd, _, err := handled(abi, r.Ports != nil).NewRulesetFD(r.list(abi)...)
	if err != nil {
		return nil, fmt.Errorf("confine: %w", err)
	}
	return &Ruleset{fd}, nil
}

// handled is what the kernel judges at all. Nothing in it is optional but what
// a newer kernel stops beyond the promise.
func handled(abi int, ports bool) landlock.Config {
	c := landlock.Config{HandledAccessFS: writing}
	if abi >= ioctlFrom {
		c.HandledAccessFS |= ll.AccessFSIoctlDev
	}
	if abi >= ScopedFrom {
		c.Scoped = ll.ScopeSignal | ll.ScopeAbstractUnixSocket
	}
	if ports {
		c.HandledAccessNet = ll.AccessNetConnectTCP
	}
	return c
}

func (r Rules) list(abi int) []landlock.Rule {
	drive := driving
	if abi < ioctlFrom {
		drive &^= ll.AccessFSIoctlDev
	}
	rules := []landlock.Rule{landlock.PathAccess(drive, devices...).IgnoreIfMissing()}
	if len(r.Dirs) > 0 {
		rules = append(rules, landlock.PathAccess(writing, r.Dirs...))
	}
	if len(r.Files) > 0 {
		rules = append(rules, landlock.PathAccess(filling, r.Files...))
	}
	for _, port := range r.Ports {
		rules = append(rules, landlock.ConnectTCP(port))
	}
	return rules
}

// Enter restricts the calling thread, for good, and with it every process
// forked on it from now on. The caller has locked its goroutine to the thread
// and never unlocks it, so that nothing else ever runs there. From here on the
// thread and those processes gain no privileges by executing a file (sudo).
func (s *Ruleset) Enter() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("confine: give up new privileges: %w", err)
	}
	if err := ll.LandlockRestrictSelf(s.fd, 0); err != nil {
		if errors.Is(err, unix.E2BIG) {
			return errors.New("confine: sixteen confinements lie around each other already, and the kernel takes no more")
		}
		return fmt.Errorf("confine: %w", err)
	}
	return nil
}

// Close gives the kernel's object back; who has entered stays confined.
func (s *Ruleset) Close() error {
	if s == nil || s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}
