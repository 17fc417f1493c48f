package status

import (
	"context"

	"github.com/handsel/handsel/internal/slot"
)

func (s *Snapshot) poolNames(Places) []string { return nil }

func (s *Snapshot) quiet(context.Context, Places, []string) func() { return func() {} }

func (s *Snapshot) line(Places, map[string]slot.Count) {}
