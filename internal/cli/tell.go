package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// tellCommand tells the commands of [[notify]] of a change, for a run that has
// ended. It is for no person to call.
func (a *app) tellCommand() *cobra.Command {
	var on int
	cmd := &cobra.Command{
		Use:    "tell",
		Short:  "tell the commands of [[notify]] of a change of state, for a run that has ended",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			line, err := lineOf(on)
			if err != nil {
				return &usageError{fmt.Errorf("tell is started by handsel itself: --on %d is no pipe it was given", on)}
			}
			text, err := io.ReadAll(io.LimitReader(line, mostTold))
			line.Close()
			if err == nil {
				err = handsel.CloseInherited()
			}
			if err != nil {
				return err
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			return h.Tell(context.Background(), text)
		},
	}
	cmd.Flags().IntVar(&on, "on", 0, "descriptor with the change, as JSON")
	return cmd
}

// mostTold bounds a change in bytes: it fits into a pipe, so that writing it
// waits for nobody.
const mostTold = 32 << 10

// tellAside has another process tell of a change, which goes on when this one
// has ended and holds none of its descriptors.
func (a *app) tellAside(text []byte) error {
	if len(text) >= mostTold {
		return errors.New("the change is too long to be told")
	}
	theirs, line, err := os.Pipe()
	if err != nil {
		return err
	}
	defer line.Close()
	defer theirs.Close()
	if _, err := line.Write(text); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	p, err := startAside([]string{os.Args[0], "tell", "--on", "3"}, null, theirs)
	if err != nil {
		return err
	}
	return p.Release()
}
