package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/handsel/handsel"
)

// fewFiles is the limit of open files in G13.
const fewFiles = 256

// atLimit measures G13: a dispatcher that may open few files takes what it can
// hold, refuses the rest for that very reason, and goes on answering.
func (b *bench) atLimit(ctx context.Context) error {
	k, err := b.keep(1)
	if err != nil {
		return err
	}
	k.files = fewFiles
	if err := k.start(ctx); err != nil {
		return err
	}
	defer k.kill()
	held, err := occupy(ctx, k.home)
	if err != nil {
		return err
	}
	defer held.Release() //nolint:errcheck // the home is of no use any more

	accepted, other := 0, 0
	refused := map[string]int{}
	for i := range 2 * fewFiles {
		err := k.enqueue(ctx, laneName(i), "true")
		no, is := errors.AsType[*handsel.Declined](err)
		switch {
		case err == nil:
			accepted++
		case is:
			refused[no.Reason.Code]++
		default:
			other++
			b.report.note("G13: enqueue %d: %v.", i, err)
		}
	}
	for code, n := range refused {
		if code != "descriptor_limit" {
			other += n
		}
	}
	what := fmt.Sprintf("ulimit -n %d, %d of %d enqueues accepted: not refused as descriptor_limit", fewFiles, accepted, 2*fewFiles)
	b.report.none("G13", what, other, "")
	lost, silent := b.stillThere(ctx, k, accepted)
	b.report.none("G13", "… status not answered", silent, "")
	b.report.none("G13", "… rows lost", lost, "")
	k.kill()
	if err := k.start(ctx); err != nil {
		return fmt.Errorf("after a kill at the limit: %w", err)
	}
	lost, silent = b.stillThere(ctx, k, accepted)
	b.report.none("G13", "… rows lost after kill -9 and a start under the same limit", lost+silent, "")
	return nil
}

// stillThere compares the dispatcher's word with what was accepted, and counts
// rows that the view does not have.
func (b *bench) stillThere(ctx context.Context, k *keeper, accepted int) (lost, silent int) {
	waiting, _, err := k.rows(ctx)
	if err != nil {
		b.report.note("G13: status: %v.", err)
		silent++
	}
	view := k.home.Queue(ctx)
	if view.Source != handsel.FromDispatcher {
		silent++
	}
	return accepted - min(waiting, len(view.Rows)), silent
}
