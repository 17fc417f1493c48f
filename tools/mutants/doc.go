// Command mutants plants faults in the ownership core, one at a time, and asks
// the tests to notice (L27). `make mutants` runs it; docs/mutants.md explains.
//
// Faults come from two places: faults.txt, written by hand, at least one for
// each clause it names; and the automatic pass, which turns each condition of
// the rooms in rooms.txt into its opposite. What no test can notice is explained
// in explained.txt. A fault, or an explanation, that no longer fits the source
// is a failure like one that nobody noticed.
//
// Faults are applied to a copy of the tree, made once, through the compiler's
// overlay; the copy itself never changes. Tests run in a pid namespace and with
// the copy mounted read-only, because a program whose way of ending processes
// is broken may end any. The package needs nothing but the standard library.
//
// What it does not do: judge whether a fault that was caught was caught for the
// right reason. The name of the test that failed is printed for a person.
package main
