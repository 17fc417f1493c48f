//go:build !linux

package home

import (
	"errors"
	"os/user"
	"path/filepath"
	"strconv"
)

// ErrNoEntry reports that the user has no passwd entry. It is certain; a user
// directory that does not answer is another error.
var ErrNoEntry = errors.New("the user has no passwd entry")

// UserHome is the home directory the system has on record for the user we run
// as, never $HOME. Errors: *BadPath, *Unusable.
func UserHome() (string, error) {
	me, err := user.Current()
	if err != nil {
		return "", &Unusable{Path: "user record", Err: err}
	}
	if !filepath.IsAbs(me.HomeDir) {
		return "", &BadPath{Var: "the user record", Value: me.HomeDir,
			Why: "its home directory must be an absolute path; set " + Variable}
	}
	return filepath.Clean(me.HomeDir), nil
}

// userName is the name of a uid for messages, empty when there is none.
func userName(uid int) string {
	who, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return who.Username
}
