//go:build !failpoint

package cli_test

// seams tells whether this build has the seams of C16.
const seams = false
