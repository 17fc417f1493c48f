package handsel

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/review"
)

// whyPatience bounds how long why reads a working directory to name what is there.
const whyPatience = 10 * time.Second

// review asks acceptance and release of a run that has ended and is reviewed (P6).
func (y *inquiry) review(ctx context.Context, k *KnownRun) {
	past, err := review.Load(y.h.dir, &k.Run)
	if err != nil {
		y.problem = append(y.problem, err.Error())
		return
	}
	if past.State() == review.None {
		return
	}
	y.ask(acceptance(k, past))
	s, bad := config.LoadLenient(y.h.configEnv())
	for _, err := range bad {
		y.problem = append(y.problem, err.Error())
	}
	r := &releasing{home: y.h, run: k, past: past, policy: (&inForce{Settings: s}).policy()}
	ctx, stop := context.WithTimeout(ctx, whyPatience)
	defer stop()
	objections, err := r.objections(ctx)
	if err != nil {
		y.problem = append(y.problem, err.Error())
		return
	}
	for _, no := range objections {
		y.ask(r.permission(no))
		if no.Why == CodeSuperseded {
			break // it never goes out, whatever else is said against it
		}
	}
	if len(objections) == 0 {
		y.ask(Permission{Class: journal.Release, Answer: AnswerGo, Code: CodeFree, Message: "it may be released: handsel release " + k.ID + " -- COMMAND"})
	}
}

// acceptance is what was decided, and by whom.
func acceptance(k *KnownRun, past *review.History) Permission {
	p := Permission{Class: journal.Acceptance}
	v := past.Last()
	if v == nil {
		p.Answer, p.Code, p.Since = AnswerWait, CodePending, k.EndedAt
		p.Message, p.Ends = "it succeeded, and waits for a verdict", fmt.Sprintf("handsel accept %s, or handsel reject", k.ID)
		if n := len(past.Checks); n > 0 {
			p.Message += fmt.Sprintf("; of its checks %d failed", len(failedChecks(past.Checks[n-1])))
		}
		return p
	}
	p.Answer, p.Code, p.Since = AnswerGo, review.Accepted, v.At
	p.Message = fmt.Sprintf("%s by %s, verdict %d", v.Verdict, v.Who(), v.N)
	if v.Note != "" {
		p.Message += ": " + v.Note
	}
	if v.Verdict == review.Rejected {
		p.Answer, p.Code, p.Ends = AnswerDeny, CodeRejected, fmt.Sprintf("handsel retry %s, whose attempt is judged by itself", k.ID)
	}
	return p
}

// permission is an objection as a line of why, with what would end it.
func (r *releasing) permission(no *ReviewRefused) Permission {
	p := Permission{Class: no.Class, Answer: AnswerDeny, Code: no.Why, Message: r.itself(no.Text)}
	switch no.Why {
	case CodeNotAccepted:
		p.Answer, p.Since, p.Ends = AnswerWait, r.run.EndedAt, "its acceptance"
	case CodeRejected: // by whom, and when, is told of acceptance
		p.Message, p.Ends = "what was rejected does not go out", "its acceptance"
	case CodePolicyChanged, CodeDigestUnknown:
		p.Since, p.Ends = r.past.Last().At, "handsel accept "+r.run.ID
	case CodeDigestChanged:
		p.Ends = "what was accepted is there again, or handsel accept " + r.run.ID
	case CodeSuperseded:
		p.Ends = "nothing: the newer one goes out"
	case CodeNewerRunning:
		p.Answer, p.Ends = AnswerWait, "the newer one ends, or handsel release --anyway REASON"
	case CodeReleasing:
		p.Answer, p.Since, p.Ends = AnswerWait, r.lastRelease(), "its command ends"
	case CodeReleased: // it has what it asked for
		p.Answer, p.Since = AnswerGo, r.lastRelease()
	case CodeReleaseUnknown:
		p.Since, p.Ends = r.lastRelease(), "handsel release --anyway REASON, once it is known whether it happened"
	}
	return p
}

// itself is what was said of the run by its full name, for a line below that name.
func (r *releasing) itself(text string) string {
	name := named(r.run)
	return strings.NewReplacer(name+" ", "it ", " of "+name, "").Replace(text)
}

func (r *releasing) lastRelease() record.Time {
	if last := r.past.LastRelease(); last != nil {
		return last.At
	}
	return record.Time{}
}
