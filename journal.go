package handsel

import (
	"cmp"
	"errors"

	"github.com/handsel/handsel/internal/config"
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

// transferred writes down what passed outside of the dispatcher, and tells the
// commands of [[notify]] of what is a change of state. A journal that cannot be
// written stops nothing: the error is for whoever can tell somebody.
func (h *Home) transferred(events ...journal.Event) error {
	err := journal.Append(h.dir, events...)
	for i := range events {
		if kind := kindOf(&events[i]); kind != "" {
			err = errors.Join(err, h.tellTransfer(kind, &events[i]))
		}
	}
	return err
}

// kindOf is the kind of change that a transfer is, empty for most. Of runs and
// attempts their ends are told.
func kindOf(e *journal.Event) string {
	switch {
	case e.Permission == journal.Acceptance && (e.What == journal.Accepted || e.What == journal.Rejected), e.Permission == journal.Release && e.What == journal.Released,
		e.Permission == journal.Quota && e.What == "parked":
		return e.What
	case e.Permission == journal.Quota && e.What == "cleared":
		return "resumed"
	}
	return ""
}

// tellTransfer tells of a verdict, a release, or an account that is parked or free
// again.
func (h *Home) tellTransfer(kind string, e *journal.Event) error {
	s, _ := config.LoadLenient(h.configEnv()) // what is wrong with it, a start says
	c := Change{Kinds: []string{kind}, Lane: e.Lane, Attempt: e.Attempt, Engine: e.Engine, Account: e.Account, State: cmp.Or(e.To, e.What), Until: at(e.Until), By: e.By}
	if e.Code != "" {
		c.Reason = &Reason{Class: e.Permission, Code: e.Code, Message: e.Text, Until: c.Until, Retryable: true}
	}
	return h.changed(s.Notify, c)
}
