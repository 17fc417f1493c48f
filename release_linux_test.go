package handsel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/review"
)

// A verdict that came after a release had looked, and before its mark, is found
// behind the mark; whoever gives one behind it is told of the release.
func TestReleaseLooksAgainBehindItsMark(t *testing.T) {
	h := homeWith(t, nil)
	work := t.TempDir()
	rec := &record.Run{ID: record.NewID(), Verb: "run", Lane: "x", Cwd: work, State: record.Ended, Outcome: record.Exited, ExitCode: new(int), EndedAt: record.At(time.Now()), Review: review.Pending}
	if err := h.dir.Ensure(); err != nil {
		t.Fatal(err)
	}
	w, err := record.Create(h.dir, rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := h.Accept(ctx, rec.ID, VerdictOptions{Evidence: []string{"e"}}); err != nil {
		t.Fatal(err)
	}
	let := func(between func()) error {
		t.Helper()
		r, err := h.releasing(ctx, rec.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.may(ctx, ReleaseOptions{}); err != nil {
			t.Fatal(err)
		}
		between()
		_, err = r.let(ctx, []string{"touch", filepath.Join(work, "out")}, nil, ReleaseOptions{})
		return err
	}
	for _, tt := range []struct {
		code string
		give func(context.Context, string, VerdictOptions) (*Given, error)
	}{{CodeVerdictRaced, h.Accept}, {CodeRejected, h.Reject}} {
		err := let(func() {
			if _, err := tt.give(ctx, rec.ID, VerdictOptions{Evidence: []string{"again"}}); err != nil {
				t.Fatal(err)
			}
		})
		if no, ok := errors.AsType[*ReviewRefused](err); !ok || no.Why != tt.code {
			t.Errorf("%v, want %s", err, tt.code)
		}
	}
	if _, err := os.Lstat(filepath.Join(work, "out")); err == nil {
		t.Fatal("the command ran")
	}
	past, err := review.Load(h.dir, rec)
	if err != nil || len(past.Releases) != 2 || past.LastRelease().State() != review.Failed || past.State() != review.Rejected {
		t.Errorf("%+v, %v", past, err)
	}

	// and the other way round
	j, err := h.judging(ctx, "reject", rec.ID)
	if err != nil {
		t.Fatal(err)
	}
	m := &review.Mark{Attempt: rec.ID, Verdict: 3}
	if err := review.AddMark(h.dir, past, m); err != nil {
		t.Fatal(err)
	}
	if g, err := j.give(j.verdict(review.Rejected, VerdictOptions{})); err != nil || len(g.Warnings) != 1 {
		t.Errorf("%+v, %v", g, err)
	}
}
