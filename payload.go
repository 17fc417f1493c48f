package handsel

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/handsel/handsel/internal/attempt"
)

// CommandLine is what an attempt was enqueued to start, argument by argument.
// Prompts are no operational data, so no other view has it (L10). *NotFound for
// a run that kept none, as direct runs do.
func (h *Home) CommandLine(id string) ([]string, error) {
	p, err := attempt.Read(h.dir, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: only enqueued work keeps its command line", &NotFound{Name: id})
	}
	if err != nil {
		return nil, err
	}
	return attempt.Strings(p.Argv), nil
}
