// Command bench measures what handsel costs, beside what the same work costs
// without it: bare system calls, flock(1), xargs and a shell loop as the floor;
// GNU sem and parallel, task-spooler, beanstalkd, and a Python program with the polling
// scheme of the source as neighbours.
//
// Every figure is a ratio inside one run. In each of five or more turns every
// way is measured, one after the other; of the samples of a turn the median (or
// the 95th percentile) counts, and of the turns the median. Absolute figures
// are printed with the machine and its load, and bind nobody.
//
// A goal that is missed is shown as missed and is no failure: the exit status
// is 1 only when something could not be measured, as when a neighbour is not
// installed. No test depends on it. docs/reference/benchmarks.md has a run of
// it.
package main
