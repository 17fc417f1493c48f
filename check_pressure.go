package handsel

import "github.com/handsel/handsel/internal/lease"

// pressure asks whether the machine bears one more.
func (a *asker) pressure() lease.Answer { return lease.Answer{} }
