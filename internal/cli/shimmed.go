package cli

import (
	"context"
	"os"
	"strings"

	"github.com/handsel/handsel"
)

// shimCall tells whether a shim started us: the kernel, or the shell of one with a
// long path, gives the word that the shim has for us, the shim's path, and the
// words of the call.
func shimCall(args []string) (handsel.ShimCall, bool) {
	if len(args) < 2 {
		return handsel.ShimCall{}, false
	}
	name, ok := strings.CutPrefix(args[0], handsel.ShimFlag)
	return handsel.ShimCall{Name: name, Args: args[2:]}, ok && name != ""
}

// shimmed is a call of a shim (W6). It is the way of every start of an engine, so
// nothing that it does not need is made before it.
func (a *app) shimmed(c handsel.ShimCall) error {
	path, err := c.Behind()
	if err == nil && c.Brief() {
		return c.PassOn(path)
	}
	f := &startFlags{outcome: os.Getenv("HANDSEL_OUTCOME")}
	out := handsel.NothingRan()
	if err == nil {
		wait := newWaitLine(a)
		out, err = a.admitShimmed(f, c, path, wait)
		wait.done()
	}
	return a.finish(f, out, c.Refused(err))
}

// admitShimmed starts what stands behind the shim as run does. The outcome is
// never nil; it does not come back where the call passes inside an agent.
func (a *app) admitShimmed(f *startFlags, c handsel.ShimCall, path string, wait *waitLine) (*handsel.Outcome, error) {
	h, err := a.open()
	if err != nil {
		return handsel.NothingRan(), err
	}
	passes, err := h.ShimPasses(c)
	switch {
	case err != nil:
	case passes:
		err = c.PassOn(path)
	default:
		err = f.closeInherited(c.Args)
	}
	if err != nil {
		return handsel.NothingRan(), err
	}
	a.supervise(f, wait)
	f.opts.Stdin, f.opts.Stdout, f.opts.Stderr = a.In, a.Out, a.Err
	return h.Run(context.Background(), append([]string{path}, c.Args...), f.opts)
}
