package handsel

import (
	"context"
	"fmt"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/doctor"
	"github.com/handsel/handsel/internal/machine"
)

// Finding is one thing that was looked at, and what it was found to be.
type Finding = doctor.Finding

// The levels of a Finding; from FindingWarn on, something is wrong.
const (
	FindingOK   = doctor.OK
	FindingNote = doctor.Note
	FindingWarn = doctor.Warn
	FindingBad  = doctor.Bad
)

// Examine looks at the installation: home, limits, caps, kernel, and what is
// left over. It changes nothing.
func (h *Home) Examine() []Finding { return h.world().Examine() }

// Repair does what of the findings is proven safe, and marks it in them.
func (h *Home) Repair(found []Finding) { doctor.Repair(found) }

// world is what the doctor looks at.
func (h *Home) world() doctor.World {
	s, problems := config.LoadLenient(h.configEnv())
	at := h.places(s)
	return doctor.World{
		Home: h.dir, Getenv: h.getenv, Settings: s, Problems: problems, Leases: at.Leases, Waiting: at.Waiting,
		Now: machine.Now(), Lost: h.lost, Strays: h.strays, Dispatching: h.dispatcherAnswers,
		Pressure: func() []Finding { return h.measured(s) },
	}
}

// dispatcherAnswers tells whether there is a dispatcher that has recovered what
// it keeps: it answers nobody before.
func (h *Home) dispatcherAnswers() bool {
	client, err := api.Dial(h.dir)
	if err != nil {
		return false
	}
	defer client.Close()
	_, err = client.Status(context.Background())
	return err == nil
}

// lost are the runs whose records can be closed.
func (h *Home) lost() ([]doctor.Left, error) {
	at, _ := h.runsPlace()
	found, err := at.Lost()
	var left []doctor.Left
	for _, r := range found {
		left = append(left, doctor.Left{
			ID: r.ID, Text: fmt.Sprintf("its record says %s, and it is lost: %s", r.Recorded, r.Reason.Message),
			Close: func() error { return at.Close(r) },
		})
	}
	return left, err
}

// strays are agents that no slot stands for.
func (h *Home) strays() []doctor.Left {
	var left []doctor.Left
	for _, s := range h.Status(context.Background()).Strays {
		left = append(left, doctor.Left{ID: s.Run, Text: fmt.Sprintf("process %d (%s) of run %s is not counted by any slot, and has no supervisor", s.Pid, s.Comm, s.Run)})
	}
	return left
}
