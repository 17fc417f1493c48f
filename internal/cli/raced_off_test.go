//go:build !race

package cli_test

import "testing"

// theHandsel is nothing: the scripts start this test binary.
func theHandsel(*testing.T) string { return "" }
