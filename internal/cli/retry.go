package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) retryCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "retry X",
		Short: "queue the work of an attempt that ended once more",
		Long: `Retry makes a new attempt of the same lane, with the command, the start and the
priority of the old one; its count of failed starts begins anew. It needs the
dispatcher (69). What has not ended is refused with 75: wait for it.`,
		Example:           `  handsel retry api/review`,
		ValidArgsFunction: a.complete(1, lanes|runs|over),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("retry needs one name: handsel retry LANE")}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			done, err := h.Retry(context.Background(), args[0])
			if err != nil {
				return nameUsage(err)
			}
			if asJSON {
				return a.printJSON(done)
			}
			fmt.Fprintf(a.Out, "lane %s attempt %s\n", clean(done.Lane), clean(done.Attempt))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}
