package engine

import (
	"fmt"
	"strconv"

	"github.com/handsel/handsel/internal/stream"
)

// Unconfined refuses a light agent that nothing would confine (E5, E6a).
type Unconfined struct {
	Engine string // empty: none was recognised
}

func (e *Unconfined) Error() string {
	if e.Engine == "" {
		return "workload light needs an engine that confines itself, and none is recognised in this command: it must be heavy, or be confined by the system"
	}
	return fmt.Sprintf("workload light does not go with engine %s, which cannot confine itself: it must be heavy, or be confined by the system", e.Engine)
}

// dialectOf is what is known of an engine. binary, where it is known, tells agy
// from gemini.
func (k Known) dialectOf(name, binary string) (dialect, bool) {
	name = canonical(name)
	if name == "gemini" && isAgy(binary) {
		return agy, true
	}
	if d, ok := dialects[name]; ok {
		return d, true
	}
	own, ok := k.Own[name]
	if !ok {
		return dialect{}, false
	}
	d := dialect{
		build:   func(a Ask) (Command, error) { return own.build(name, a) },
		decoder: dialects[own.Stream].decoder,
		streams: own.streams,
	}
	if own.Confines != "" {
		d.light = func(args []string, _ string) (Confinement, error) { return Confinement{Args: own.light(args)}, nil }
	}
	return d, true
}

// Headless makes the command line by which an engine is asked something (E2).
// The error is *TooLong or *BadOwn, and nothing was started.
func (k Known) Headless(name string, a Ask) (Command, error) {
	if a.Binary == "" {
		a.Binary = k.binary(name)
	}
	d, ok := k.dialectOf(name, a.Binary)
	if !ok {
		return Command{}, &BadOwn{name, "args", "it is not set, so no command line can be built"}
	}
	return d.build(a)
}

// binary is the executable of an engine. The other one of gemini's is asked for
// by its name.
func (k Known) binary(name string) string {
	if name == "agy" || name == "antigravity" {
		return "agy"
	}
	name = canonical(name)
	if own := k.Own[name].Binary; own != "" {
		return own
	}
	if _, built := dialects[name]; !built {
		for _, one := range k.Binaries[name] {
			return one
		}
	}
	return name
}

// Light confines a command line for work in dir (E5): argv is what it becomes,
// and the Confinement what else has to be done; its Args are the last words of
// argv. files is where its files are going to be: a directory that is there as
// long as the agent, which nobody else may read. Both are absolute. The error is
// *Lifted for what does not go with it, *Unconfined for an engine that cannot
// confine itself.
func (k Known) Light(name string, argv []string, dir, files string) ([]string, Confinement, error) {
	if name == "" {
		return nil, Confinement{}, &Unconfined{}
	}
	found, at, ok := k.Locate(argv)
	binary := ""
	if ok {
		binary = k.base(argv[at-1])
	}
	d, known := k.dialectOf(name, binary)
	if !known || d.light == nil {
		return nil, Confinement{}, &Unconfined{Engine: canonical(name)}
	}
	if !ok || found != canonical(name) {
		return nil, Confinement{}, &Lifted{canonical(name), strconv.QuoteToASCII(argv[0]), "where the arguments of " + canonical(name) + " begin in this command cannot be told"}
	}
	c, err := d.light(argv[at:], dir)
	if err == nil {
		err = c.place(files)
	}
	if err != nil {
		return nil, Confinement{}, err
	}
	return append(argv[:at:at], c.Args...), c, nil
}

// Decoder reads what an engine prints; nil: nothing of it is known.
func (k Known) Decoder(name string) stream.Decoder {
	d, ok := k.dialectOf(name, "")
	if !ok || d.decoder == nil {
		return nil
	}
	return d.decoder()
}

// Streams tells whether argv makes an engine print what its Decoder reads.
func (k Known) Streams(name string, argv []string) bool {
	found, at, ok := k.Locate(argv)
	if !ok || found != canonical(name) {
		return false
	}
	d, known := k.dialectOf(name, k.base(argv[at-1]))
	return known && d.streams != nil && d.streams(argv[at:])
}

func (k Known) base(path string) string { return k.search().base(path) }

// Locate finds an engine in a command line and the index of the first word after
// the engine's own. It is not ok where those words are not words of argv: in the
// text of sh -c, or behind a runner that would take further ones for its own.
func (k Known) Locate(argv []string) (name string, at int, ok bool) {
	s := k.search()
	if name, ok = s.command(argv); !ok || s.takes || len(s.found) == 0 {
		return name, 0, false
	}
	if &s.found[len(s.found)-1] != &argv[len(argv)-1] {
		return name, 0, false // they were split from a text
	}
	return name, len(argv) - len(s.found) + 1, true
}
