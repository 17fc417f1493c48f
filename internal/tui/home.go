package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/handsel/handsel"
)

// Of is a home as the screen asks it.
func Of(h *handsel.Home) Source { return &ofHome{h, h.Watch()} }

type ofHome struct {
	home  *handsel.Home
	watch *handsel.Watch
}

func (o *ofHome) Look(ctx context.Context) *handsel.Board { return o.watch.Look(ctx) }

func (o *ofHome) Why(ctx context.Context, x string) (*handsel.Explained, error) {
	return o.home.Why(ctx, x)
}

// one is the single run that x means.
func (o *ofHome) one(ctx context.Context, x string) (handsel.KnownRun, error) {
	found, err := o.home.FindWork(ctx, x, true)
	switch {
	case err != nil:
		return handsel.KnownRun{}, err
	case len(found) != 1:
		return handsel.KnownRun{}, fmt.Errorf("%s means %d runs", x, len(found))
	}
	return found[0], nil
}

func (o *ofHome) Logs(ctx context.Context, x string, to handsel.LogTo) error {
	k, err := o.one(ctx, x)
	if err != nil {
		return err
	}
	return o.home.Logs(ctx, k, to, true)
}

func (o *ofHome) Cancel(ctx context.Context, x string) (string, error) {
	k, err := o.one(ctx, x)
	if err != nil {
		return "", err
	}
	done, err := o.home.Cancel(ctx, k)
	if err != nil {
		return "", err
	}
	text := done.Message
	for _, s := range done.Survivors {
		text += fmt.Sprintf("; still running: pid %d (%s): %s", s.Pid, s.Comm, s.Why)
	}
	if done.Did == handsel.CancelStillEnding {
		return "", errors.New(text)
	}
	return text, nil
}

func (o *ofHome) Hold(ctx context.Context, x string) (string, error) {
	done, err := o.home.Hold(ctx, x, "", time.Time{})
	if err != nil {
		return "", err
	}
	return done.Order.Scope + " is held until it is resumed; what runs goes on" + unheard(done.Silent), nil
}

func (o *ofHome) Resume(ctx context.Context, x string) (string, error) {
	gone, silent, err := o.home.Resume(ctx, x)
	if err != nil {
		return "", err
	}
	if len(gone) == 0 {
		return "nothing was held", nil
	}
	var over []string
	for _, g := range gone {
		over = append(over, string(g.Kind)+" of "+g.Scope)
	}
	return strings.Join(over, ", ") + " is over" + unheard(silent), nil
}

func (o *ofHome) Drain(ctx context.Context) (string, error) {
	done, err := o.home.Drain(ctx, "")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("draining, %d running: nothing new is admitted", done.Running) + unheard(done.Silent), nil
}

// unheard says why the dispatcher does not know yet.
func unheard(silent string) string {
	if silent == "" {
		return ""
	}
	return "; " + silent + "; it will see the change when it goes on"
}
