package cli

import (
	"errors"
	"os"
)

var errNoDetach = errors.New("--detach is not available on this system")

func startAside([]string, *os.File, *os.File) (*os.Process, error) { return nil, errNoDetach }

func startBeside([]string, []string, *os.File, ...*os.File) (*os.Process, error) {
	return nil, errNoDetach
}

func lineOf(int) (*os.File, error) { return nil, errNoDetach }

func silence(*os.File) error { return errNoDetach }
