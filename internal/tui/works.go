package tui

import (
	"context"
	"sync"

	tea "charm.land/bubbletea/v2"
)

// works are what goes on beside the screen: looks, questions, orders. All of it
// is over when wait has returned.
type works struct {
	ask   func(do func(context.Context) tea.Msg) tea.Cmd // given up when the screen ends
	order func(do func(context.Context) tea.Msg) tea.Cmd // carried out all the same
	wait  func()
}

func newWorks(ctx context.Context) *works {
	var mu sync.Mutex
	var going sync.WaitGroup
	over := false
	begin := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			going.Add(1)
		}
		return !over
	}
	under := func(ctx context.Context) func(func(context.Context) tea.Msg) tea.Cmd {
		return func(do func(context.Context) tea.Msg) tea.Cmd {
			return func() tea.Msg {
				if !begin() {
					return nil
				}
				defer going.Done()
				return do(ctx)
			}
		}
	}
	return &works{ask: under(ctx), order: under(context.WithoutCancel(ctx)), wait: func() {
		mu.Lock()
		over = true
		mu.Unlock()
		going.Wait()
	}}
}
