package handsel

import (
	"github.com/handsel/handsel/internal/journal"
)

type (
	// JournalEvent is one transfer of a permission (P11).
	JournalEvent = journal.Event

	// JournalFilter says which transfers are wanted; the zero value wants all.
	JournalFilter = journal.Filter
)

// JournalPermissions are the words that JournalFilter.Permission may have.
func JournalPermissions() []string { return append([]string{}, journal.Permissions...) }

// Sentence says in words what happened, without its time.
func Sentence(e *JournalEvent) string { return journal.Sentence(e) }

// transferred writes down what passed outside of the dispatcher. A journal that
// cannot be written stops nothing: the error is for whoever can tell somebody.
func (h *Home) transferred(events ...journal.Event) error { return journal.Append(h.dir, events...) }
