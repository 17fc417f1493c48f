package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/host"
)

// storyJSON is the JSON of story.
type storyJSON struct {
	V        int         `json:"v"`
	Kind     string      `json:"kind"` // lane, run, engine
	Name     string      `json:"name"`
	Now      string      `json:"now,omitempty"` // how the run stands, or the lane's last one
	Events   []storyPart `json:"events"`
	Problems []string    `json:"problems"`

	review string // how that stands in its review
}

// storyPart is a transfer and the sentence that tells it.
type storyPart struct {
	Sentence string               `json:"sentence"`
	Event    handsel.JournalEvent `json:"event"`
}

func (a *app) storyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "story X",
		Short: "tell what happened to a lane, a run or an attempt: who handed what to whom, on what evidence",
		Long: `Story tells the journal of one lane with all of its attempts, of one run or attempt,
or of an engine, as sentences, each with its time in UTC. It needs no dispatcher and
changes nothing. It tells what is on record, which is no proof against whoever has
the same user.`,
		Example: `  handsel story api/review
  handsel story 4f2a9c`,
		ValidArgsFunction: a.complete(1, lanes|runs|over),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("story needs one name: handsel story LANE")}
			}
			return a.story(args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) story(x string, asJSON bool) error {
	readFast()
	h, err := a.open()
	if err != nil {
		return err
	}
	s, err := a.subject(h, x)
	if err != nil {
		return err
	}
	out := storyJSON{V: 1, Kind: s.Kind, Name: s.Name, Events: []storyPart{}, Problems: []string{}}
	if s.Now != nil {
		out.Now, out.review = s.Now.Word(), reviewWord(s.Now)
	}
	for e := range host.Journal(h, s.Filter, func(p error) { out.Problems = append(out.Problems, p.Error()) }) {
		out.Events = append(out.Events, storyPart{handsel.Sentence(&e), e})
	}
	if asJSON {
		return a.printJSON(out)
	}
	a.warnAll(out.Problems)
	a.tell(&out)
	return nil
}

// tell prints a story, a day at a time.
func (a *app) tell(s *storyJSON) {
	day := ""
	for i := range s.Events {
		at := s.Events[i].Event.At.UTC()
		if d := at.Format("Monday, 2 January 2006"); d != day {
			if day != "" {
				fmt.Fprintln(a.Out)
			}
			fmt.Fprintf(a.Out, "%s (UTC)\n\n", d)
			day = d
		}
		fmt.Fprintf(a.Out, "%s  %s\n", at.Format(time.TimeOnly), oneLine(s.Events[i].Sentence))
	}
	if len(s.Events) == 0 {
		fmt.Fprintf(a.Out, "Nothing that happened to %s %s is on record.\n", s.Kind, clean(s.Name))
	}
	now := s.Now
	if s.review != "" {
		now += ", " + s.review
	}
	switch {
	case now == "":
	case s.Kind == "lane":
		fmt.Fprintf(a.Out, "\nIts present attempt, or its last: %s.\n", clean(now))
	default:
		fmt.Fprintf(a.Out, "\nIt stands so now: %s.\n", clean(now))
	}
}
