package handsel

import (
	"context"
	"errors"
	"testing"

	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/run"
)

// submits submits work of one kind under a key, with a detach that ends with err.
func submits(h *Home, dir string, err error) (got string, out *Submitted, failed error) {
	out, failed = h.Submit(context.Background(), Submission{Argv: []string{"true"}, Dir: dir, Key: "k"}, func(_ context.Context, s Submission) error {
		got = s.ID
		return err
	})
	return got, out, failed
}

// TestKeyStaysWhileItsRunMayComeAbout: W2. The process that does the work may have
// said nothing and go on; whoever asks again, and is refused, does not set the key
// free for a second run.
func TestKeyStaysWhileItsRunMayComeAbout(t *testing.T) {
	h, dir := homeWith(t, nil), t.TempDir()
	first, out, err := submits(h, dir, &Unheard{Run: "x", Err: errors.New("silence")})
	if !errors.As(err, new(*Unheard)) || out == nil || out.Run != first {
		t.Fatalf("a start nobody heard of: %+v, %v", out, err)
	}
	second, _, err := submits(h, dir, &NotSupervised{Because: Reason{Code: CodeLaneOwned, Message: "somebody has it"}})
	if err == nil || second != first {
		t.Errorf("again, and refused: run %s, %v, want %s", second, err, first)
	}
	third, out, err := submits(h, dir, nil)
	if err != nil || out.Run != first || third != first {
		t.Errorf("once more: run %s, %+v, %v, want %s", third, out, err, first)
	}
	if _, _, err := submits(h, t.TempDir(), nil); !errors.As(err, new(*OtherRequest)) {
		t.Errorf("another request: %v", err)
	}
}

// TestRefusedSubmissionGivesItsKeyBack: what was refused to the first that had the
// key leaves nothing of it.
func TestRefusedSubmissionGivesItsKeyBack(t *testing.T) {
	h := homeWith(t, nil)
	if _, out, err := submits(h, t.TempDir(), &NotSupervised{Because: Reason{Code: "failed"}}); err == nil || out != nil {
		t.Errorf("a refusal: %+v, %v", out, err)
	}
	if _, out, err := submits(h, t.TempDir(), nil); err != nil || out.Known { // of another directory
		t.Errorf("another request: %+v, %v", out, err)
	}
}

// TestKeyedRunNeedsNoListener: a run that has a key is found by it, so the death of
// its asker does not leave the key with a run that never starts. Without one nobody
// would learn of it, and it is not started.
func TestKeyedRunNeedsNoListener(t *testing.T) {
	h := homeWith(t, nil)
	for keyed, want := range map[bool]string{true: run.Exited, false: run.NotStarted} {
		s := Submission{ID: record.NewID(), Argv: []string{"true"}, Dir: t.TempDir(), Keyed: keyed}
		out, err := h.Supervise(context.Background(), s, Options{}, func(string) error { return errors.New("the asker is gone") })
		if out.Outcome.Outcome != want || keyed == (err != nil) {
			t.Errorf("keyed %v: %s, %v; want %s", keyed, out.Outcome.Outcome, err, want)
		}
	}
}
