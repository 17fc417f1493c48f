// Package acceptance drives the handsel executable from outside, as users and
// their scripts do, and judges it by what the kernel says.
//
// It has tests only. They start real processes, on real terminals, in homes of
// their own; proof is the log that stand-in agents write themselves, the locks
// in /proc/locks, the process table and exit statuses, never what the code
// under test believes. Each test runs as root and as an ordinary user; what
// needs root (mounts, other owners) has its other half for the user beside it.
//
// The executable is HANDSEL_BIN, else one built from this tree. A build with
// the tag failpoint runs only the tests named TestSeam: those that need the
// test seams (clause C16). HANDSEL_SOAK makes the storms long; TESTED_IN_FULL
// makes their rounds fewer, where they only run once more as another user.
package acceptance
