//go:build unix

package dispatch

import "runtime/debug"

// restAfter is how many ticks nothing came or went before memory is given back:
// long enough that what is read meanwhile, and the connection to the database
// that it was read by, is forgotten.
const restAfter = 4

// rest gives memory back, once after each time that rows came or went: a
// dispatcher waits for most of its life, and what recovery or many enqueues
// needed is twice what their rows do (G9). It belongs to the loop.
func (d *Dispatcher) rest() {
	if d.stirred {
		d.stirred, d.calm = false, 0
	}
	if d.calm++; d.calm == restAfter {
		d.aside(debug.FreeOSMemory)
	}
}
