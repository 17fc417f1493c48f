package main

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// taker is the third process of the story: it wants a lane that somebody has,
// and tries the kernel's lock again and again. That it gets the lane is all
// right before anybody had it and after the work in it has ended, and at no
// other time.
type taker struct {
	lane, path string
	over       func() bool // whether the work in the lane has ended

	quit chan struct{}
	once sync.Once
	gone sync.WaitGroup

	mu    sync.Mutex // guards what follows, and is held during a try
	rests bool
	owned bool // somebody had it
	tries int  // since then, in vain
	broke error
}

func newTaker(lane, path string, over func() bool) *taker {
	t := &taker{lane: lane, path: path, over: over, quit: make(chan struct{})}
	t.gone.Go(t.run)
	return t
}

func (t *taker) run() {
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for {
		select {
		case <-t.quit:
			return
		case <-tick.C:
			t.mu.Lock()
			if !t.rests && t.broke == nil {
				t.try()
			}
			t.mu.Unlock()
		}
	}
}

func (t *taker) try() {
	f, err := lock(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !t.owned: // nobody ever had it
	case err != nil:
		t.broke = fmt.Errorf("lane %s: %w", t.lane, err)
	case f == nil:
		t.owned = true
		t.tries++
	default:
		defer f.Close()
		if t.owned && !t.over() {
			t.broke = fmt.Errorf("a third process got lane %s while its work was not done", t.lane)
		}
		t.owned = false
	}
}

// rest keeps the taker from trying, until it is told otherwise. When it
// returns no try is under way.
func (t *taker) rest(yes bool) {
	t.mu.Lock()
	t.rests = yes
	t.mu.Unlock()
}

// end ends the taker. It may be called again.
func (t *taker) end() {
	t.once.Do(func() { close(t.quit) })
	t.gone.Wait()
}

// soFar returns how often the taker tried and failed, or that it did not fail.
func (t *taker) soFar() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tries, t.broke
}

// inVain is soFar, and counts from zero then.
func (t *taker) inVain() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.tries
	t.tries = 0
	return n, t.broke
}
