// Package hook puts a gate in front of heavy commands that an agent's tool runs
// (W8): it reads the call a client is about to make, says through which pools it
// goes, and puts itself into the client's settings and out of them again.
//
// It guarantees that a line which is rewritten is the old one, byte for byte, but
// for gates put in front of commands; that no command is gated twice, and no line
// changed that names handsel itself; that anything it does not understand is left
// to the client as it was; and that of a settings file nothing changes but the
// entry it puts in or takes out.
//
// It is no guard. A command that hides behind a script, an alias, a variable or
// eval is not seen, and the agent could take the hook out. Lines are read by the
// rules of sh(1) and bash(1), as far as it takes to find where commands begin.
//
// Why the shell is read by hand is said in docs/decisions/0025.
package hook
