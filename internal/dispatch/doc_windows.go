// Package dispatch has nothing for this platform, which cannot hand descriptors
// over.
package dispatch
