package cli

import (
	"fmt"
	"time"

	"github.com/handsel/handsel"
)

// censusJSON is the JSON of doctor --census.
type censusJSON struct {
	V    int    `json:"v"`
	Root string `json:"root"`
	*handsel.Census
}

// takeCensus lists the agents that were started around us (W9). It ends none.
func (a *app) takeCensus(h *handsel.Home, asJSON bool) error {
	c, err := h.Census()
	if err != nil {
		return err
	}
	if asJSON {
		if err := a.printJSON(censusJSON{1, h.Path(), c}); err != nil {
			return err
		}
	} else if err := a.showCensus(c); err != nil {
		return err
	}
	if len(c.Agents) > 0 {
		a.say("%d agents hold no slot; handsel shim install puts admission before engines that are called by name", len(c.Agents))
		return statusError(statusFinal)
	}
	return nil
}

func (a *app) showCensus(c *handsel.Census) error {
	a.warnAll(c.Problems)
	now := time.Now()
	var rows [][]string
	for _, u := range c.Agents {
		with := ""
		if u.With > 0 {
			with = fmt.Sprint(u.With)
		}
		rows = append(rows, []string{
			fmt.Sprint(u.Pid), u.Engine, ago(now, u.Started.Time), fmt.Sprint(u.UID), u.How, with, short(u.Run), u.Cwd, u.Exe,
		})
	}
	if err := a.showRows([]string{"PID", "ENGINE", "FOR", "UID", "KNOWN BY", "WITH", "RUN", "DIRECTORY", "EXECUTES"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.Out, "agents without a slot: %d; processes of counted agents: %d; processes that could not be looked at: %d\n", len(c.Agents), c.Counted, c.Unreadable)
	return err
}
