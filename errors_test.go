package handsel_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/proc"
)

// C121: what an error is about is named, whatever its type.
func TestErrorsNameTheOptionTheyAreAbout(t *testing.T) {
	for want, err := range map[string]error{
		"resume":  &handsel.BadOption{Option: "resume", Value: "-x", Why: "no"},
		"lane":    &handsel.BadLane{Name: "a", Why: "no"},
		"profile": &handsel.NoProfile{Name: "p"},
		"chdir":   &handsel.StartError{Kind: proc.NoDir, Path: "/nowhere", Detail: "no such directory"},
	} {
		if bad := handsel.OptionOf(fmt.Errorf("begin: %w", err)); bad == nil || bad.Option != want || bad.Why == "" {
			t.Errorf("of %v: %+v", err, bad)
		}
	}
	for _, err := range []error{nil, errors.New("x"), &handsel.StartError{Kind: handsel.NotFoundCommand}} {
		if bad := handsel.OptionOf(err); bad != nil {
			t.Errorf("of %v: %+v", err, bad)
		}
	}
}
