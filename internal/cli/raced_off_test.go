//go:build !race

package cli_test

import "testing"

// atOnce is how many scripts run at a time: as many as go test would.
const atOnce = ""

// theHandsel is nothing: the scripts start this test binary.
func theHandsel(*testing.T) string { return "" }
