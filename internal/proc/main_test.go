//go:build unix

package proc

import (
	"os"
	"testing"
)

// stubs are what this test binary can be started as, by HANDSEL_TEST_STUB.
var stubs = map[string]func(){}

func TestMain(m *testing.M) {
	if stub := stubs[os.Getenv("HANDSEL_TEST_STUB")]; stub != nil {
		stub()
		os.Exit(0)
	}
	// As our executable does, whatever the caller of the test left open.
	if err := CloseOnExecFrom(3); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
