package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// errorJSON is what a verb that was asked for JSON writes to stdout instead of
// its answer (docs/reference/schemas/error.schema.json).
type errorJSON struct {
	V      int             `json:"v"`
	Error  *handsel.Reason `json:"error"`
	Status int             `json:"status"` // what the process exits with
}

// end says what went wrong, in one line, and returns the status.
func (a *app) end(cmd *cobra.Command, err error) int {
	if err == nil {
		return statusOK
	}
	status := exitStatus(err)
	text := err.Error()
	if text == "" {
		return status // it was said already
	}
	a.say("%s%s", prefix(err), oneLine(text))
	a.showCaret(err)
	if cmd != nil && wantsJSON(cmd) {
		if err := a.printJSON(errorJSON{V: 1, Error: reasonOf(err), Status: status}); err != nil {
			a.say("stdout: %s", oneLine(err.Error()))
		}
	}
	return status
}

func wantsJSON(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("json")
	return f != nil && f.Value.String() == "true"
}

// reasonOf is the error in the words of C13. What is only a matter of the
// command line has codes of its own.
func reasonOf(err error) *handsel.Reason {
	r := handsel.ReasonOf(err)
	switch {
	case errors.As(err, new(*usageError)):
		r.Code = "usage"
	case errors.As(err, new(*handsel.NotFound)):
		r.Code = "not_found"
	case errors.As(err, new(*handsel.Ambiguous)):
		r.Code = "ambiguous"
	}
	return r
}

// showCaret points at the mistake in a configuration file.
func (a *app) showCaret(err error) {
	var bad *handsel.BadConfig
	if !errors.As(err, &bad) || bad.Caret == "" {
		return
	}
	for line := range strings.SplitSeq(strings.TrimRight(bad.Caret, "\n"), "\n") {
		fmt.Fprintln(a.Err, "  "+clean(line))
	}
}

// prefix tells a refusal, where nothing ran, from a failure.
func prefix(err error) string {
	if errors.As(err, new(*handsel.Refused)) || errors.As(err, new(*handsel.LaneOwned)) || errors.As(err, new(*handsel.Inside)) || claimRefused(err) {
		return "refused: "
	}
	return ""
}
