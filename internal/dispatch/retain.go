//go:build unix

package dispatch

import (
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/key"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/record"
)

// pruneEvery is how often what is too old is removed.
const pruneEvery = time.Hour

// orphanAge is how old a payload must be that no row is known for. Its launcher
// either was accepted within seconds or never will be.
const orphanAge = 24 * time.Hour

// prune removes what has been kept long enough: attempts that ended long ago,
// with their events, and records of all runs by age and size (E14).
func (d *Dispatcher) prune() {
	if time.Since(d.pruned) < pruneEvery {
		return
	}
	d.pruned = time.Now()
	d.aside(func() {
		now := machine.Now()
		if d.cfg.KeepDays > 0 {
			if _, err := d.db.Prune(d.life, now.AddDate(0, 0, -d.cfg.KeepDays), 0); err != nil && d.life.Err() == nil {
				d.cfg.Log.Warn("remove what is old from the database", "error", err)
			}
		}
		d.pruneRecords(now)
		d.pruneOrphans(now)
		d.pruneKeys(now)
	})
}

// pruneKeys removes the keys of submissions whose runs are gone.
func (d *Dispatcher) pruneKeys(now time.Time) {
	idle, err := key.Idle(d.cfg.Home, now, func(id string) bool { return record.Gone(d.cfg.Home, id) })
	if err != nil {
		d.cfg.Log.Warn("look for keys without a run", "error", err)
	}
	for _, k := range idle {
		if err := key.Remove(d.life, d.cfg.Home, k, now); err != nil && d.life.Err() == nil {
			d.cfg.Log.Warn("remove a key without a run", "error", err)
		}
	}
}

// pruneRecords removes records that have been kept long enough. A record whose
// attempt has not ended here is the only word on how it did.
func (d *Dispatcher) pruneRecords(now time.Time) {
	old, _, err := record.Expired(d.life, d.cfg.Home, now, d.cfg.KeepDays, d.cfg.KeepBytes)
	if err != nil && d.life.Err() == nil {
		d.cfg.Log.Warn("look for old records", "error", err)
	}
	for _, o := range old {
		if d.life.Err() != nil {
			return
		}
		if o.ID != "" && d.pending(o.ID) {
			continue
		}
		if err := record.Remove(d.cfg.Home, o); err != nil {
			d.cfg.Log.Warn("remove an old record", "error", err)
		}
	}
}

// pending tells whether an attempt is known that has not ended, or it cannot be
// told.
func (d *Dispatcher) pending(id string) bool {
	a, err := d.db.Find(id)
	return err != nil || a != nil && a.State != record.Ended
}

// pruneOrphans removes payloads of launchers that died before their rows were
// accepted, which are all that is in their directories (decision 0011).
func (d *Dispatcher) pruneOrphans(now time.Time) {
	ids, _, err := record.Unrecorded(d.cfg.Home, now.Add(-orphanAge))
	if err != nil {
		d.cfg.Log.Warn("look for payloads without a row", "error", err)
	}
	for _, id := range ids {
		if d.life.Err() != nil {
			return
		}
		if a, err := d.db.Find(id); err != nil || a != nil {
			continue
		}
		if err := attempt.Discard(d.cfg.Home, id); err != nil {
			d.cfg.Log.Warn("remove a payload without a row", "error", err)
		}
	}
}
