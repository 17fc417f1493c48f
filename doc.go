// Package handsel decides when a command-line agent may start on a machine and
// ends all of it when its time is over.
//
// A Home is where one user's starts are counted. Run admits an agent under the
// caps in force, supervises it, and returns how it ended; Gate does the same
// for a heavy command; Acquire takes only the right to run, for programs that
// start their agents themselves. Every process that shares a home is counted,
// whether it came through this library or the handsel command, by kernel locks
// that need no daemon (see ARCHITECTURE.md).
//
// Where a dispatcher runs (package host, or handsel dispatch), Enqueue takes a
// lane, a named seat of work, and hands it over with the work in it: when it
// returns without an error the work is kept, and this process may leave. Claim,
// for drivers that a dispatcher starts, makes an admitted lane one's own; Run of
// what it returns runs the work, and closes the lane last. Queue, Why, WaitWork
// and the rest look and act as the verbs of the command do.
//
// Errors a caller can act on are *Refused (nothing ran, the same call may work
// later), *LaneOwned (somebody has the lane), *NoDispatcher and *SilentDispatcher
// (nobody answers), *Declined (the dispatcher says no, and why), *Unknown (no
// answer came, so it may be accepted), *Inside (an agent may not start another),
// *StartError (the command could not be started), and *BadConfig, *Untrusted and *NetworkFS (nothing
// starts until somebody changes something). An agent that ran and failed is
// not an error: Outcome says how it ended.
//
// The package links no database. What a wait leaves open is closed in the
// background within milliseconds; no other goroutine outlives a call.
package handsel
