// Package tui is the terminal window: one screen that shows a home again and
// again, and lets a person ask and order by a key.
//
// It guarantees that no text of others speaks to the terminal, that a slow look
// delays no key, that looks never overlap and take no more than about a fifth of
// a core, that only what is visible is made into text, and that the terminal is
// given back as it was found: after q, after a signal, and while suspended. It
// decides nothing: what may be ordered, the library says, and a refusal is
// shown in its words.
//
// It does not look at the disk or at the kernel by itself, and it does not
// promise that what it shows still is so; the line on top says of when it is.
package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/handsel/handsel"
)

// Source is what the screen asks of a home. X is a name as the verbs take it.
type Source interface {
	Look(ctx context.Context) *handsel.Board // one call at a time
	Why(ctx context.Context, x string) (*handsel.Explained, error)
	Logs(ctx context.Context, x string, to handsel.LogTo) error // until the run has ended
	Cancel(ctx context.Context, x string) (did string, err error)
	Hold(ctx context.Context, x string) (did string, err error)
	Resume(ctx context.Context, x string) (did string, err error) // "": of everything
	Drain(ctx context.Context) (did string, err error)
}

// Words are how others tell what the screen tells as well.
type Words struct {
	Why   func(*handsel.Explained) []string
	Event func(line []byte) string // of one line of an agent's events; may have several lines
}

// Terminal is where the screen is. Both ends must be terminals (IsTerminal).
type Terminal struct {
	In, Out *os.File
	Plain   bool // no colour
}

// Run shows the screen until its user or a signal ends it, and returns the signal,
// 0 for none. An order that was given is carried out before it returns.
func Run(ctx context.Context, src Source, words Words, at Terminal) (syscall.Signal, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := newWorks(ctx)
	profile := colorprofile.ANSI
	if at.Plain {
		profile = colorprofile.ASCII
	}
	// The signals are ours: of SIGHUP the library knows nothing, and what it makes
	// of the others is no way to end. Nor may it ask tmux for its colours.
	in := &keyboard{File: at.In}
	p := tea.NewProgram(newModel(src, words, paint{plain: at.Plain}, w), tea.WithInput(in), tea.WithOutput(at.Out),
		tea.WithoutSignalHandler(), tea.WithColorProfile(profile), tea.WithFPS(20))
	in.gone = p.Quit
	caught, end := quitAtSignal(p)
	_, err := p.Run()
	end()
	stop()
	w.wait()
	if sig := caught(); sig != 0 || errors.Is(err, tea.ErrInterrupted) {
		return sig, nil
	}
	return 0, errors.Join(err, in.err())
}

// keyboard is the terminal to read from. Not every terminal that goes sends a
// SIGHUP: one that is not ours to be controlled by, or under nohup, just ends, and
// so do we, who could be left by no key any more.
type keyboard struct {
	*os.File
	gone func()
	why  atomic.Pointer[error]
}

func (k *keyboard) Read(text []byte) (int, error) {
	n, err := k.File.Read(text)
	if err != nil && k.why.CompareAndSwap(nil, &err) {
		go k.gone() // it waits for whoever reads
	}
	return n, err
}

func (k *keyboard) err() error {
	if why := k.why.Load(); why != nil {
		return fmt.Errorf("read the terminal: %w", *why)
	}
	return nil
}

// quitAtSignal lets the first signal end the program, so that the terminal is
// given back. end returns when nobody listens any more.
func quitAtSignal(p *tea.Program) (caught func() syscall.Signal, end func()) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var first atomic.Int64
	gone, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case sig := <-signals:
			n, _ := sig.(syscall.Signal)
			first.Store(int64(n))
			p.Quit()
		case <-over:
		}
	}()
	return func() syscall.Signal { return syscall.Signal(first.Load()) }, func() {
		signal.Stop(signals)
		close(over)
		<-gone
	}
}
