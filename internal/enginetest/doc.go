// Package enginetest runs the real agent CLIs (claude, codex, gemini, pi, at
// the versions pinned in testdata/engines) under handsel, against a model stub,
// in a network namespace that has nothing but loopback.
//
// It has tests only, behind the build tag engines, because they need the four
// CLIs installed: `make engines` does that and runs them. Proof is the stub's
// request log, files on disk, locks and the process table; never what an
// engine says. Every engine runs every scenario; what one cannot do is listed
// with its reason in cannot.txt, and a test fails when that list is wrong.
package enginetest
