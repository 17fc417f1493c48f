package journal

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Sentence says in words what happened: who handed what to whom, and on what
// evidence. The time is the reader's to put before it. It is as it was written:
// whoever prints it escapes what others chose.
func Sentence(e *Event) string {
	if e.Source == FromDatabase {
		if text := ofDispatcher(e); text != "" {
			return text
		}
	}
	for _, words := range []func(*Event) string{ofRun, ofVerdict, ofAccount} {
		if text := words(e); text != "" {
			return text
		}
	}
	return ofOther(e)
}

// ofDispatcher tells the changes of the dispatcher's database.
func ofDispatcher(e *Event) string {
	switch e.What {
	case "accepted":
		return fmt.Sprintf("The launcher handed lane %q to the dispatcher, lock and all, and the dispatcher wrote attempt %s down as waiting%s.", e.Lane, short(e.Attempt), reason(brief(e.Text)))
	case "offered":
		return fmt.Sprintf("Admission gave the dispatcher a slot in every pool for attempt %s, and the dispatcher offered it to a driver (%s).", short(e.Attempt), cmp.Or(e.Text, "a start"))
	case "withdrawn":
		return fmt.Sprintf("The dispatcher took its offer of attempt %s back and gave the slots up%s; it waits again in its old place.", short(e.Attempt), because(e.Text))
	case "granted":
		return fmt.Sprintf("The dispatcher handed the lane and the slots of attempt %s to its %s, which had shown the token (%s).", short(e.Attempt), cmp.Or(e.To, "driver"), cmp.Or(e.Identity, e.Text))
	case "begun":
		return fmt.Sprintf("The driver began attempt %s: from here on the lane is its own.", short(e.Attempt))
	case "requeued":
		return fmt.Sprintf("The dispatcher took attempt %s back from a driver that had not begun%s; it waits again in its old place.", short(e.Attempt), because(e.Text))
	case "ended":
		if e.From == "dispatcher" {
			return fmt.Sprintf("Attempt %s ended before anybody drove it: %s.", short(e.Attempt), endingText(e.Text))
		}
		return fmt.Sprintf("Attempt %s ended, %s, by its record, and its driver gave the lane up.", short(e.Attempt), endingText(e.Text))
	case "moved":
		return fmt.Sprintf("Attempt %s was given another place in line: %s.", short(e.Attempt), e.Text)
	}
	return ""
}

// ofRun tells what direct runs, and people's orders, write.
func ofRun(e *Event) string {
	switch e.What {
	case Taken:
		return fmt.Sprintf("Run %s took lane %q, which nobody had: %s holds its lock.", short(e.Attempt), e.Lane, e.To)
	case Admitted:
		return admittedText(e)
	case Ended:
		return endedText(e)
	case Cancelled:
		return fmt.Sprintf("%s cancelled %s: %s.", e.by(), e.thing(), cmp.Or(strings.TrimSuffix(e.Text, "."), e.Code))
	case Held:
		return fmt.Sprintf("%s held the starts of %s back%s%s.", e.by(), e.Identity, reason(e.Text), e.until())
	case Drained:
		return fmt.Sprintf("%s let nothing new start%s.", e.by(), reason(e.Text))
	case Resumed:
		return fmt.Sprintf("%s took the %s of %s back%s.", e.by(), cmp.Or(e.Code, "order"), e.Identity, reason(e.Text))
	}
	return ""
}

func admittedText(e *Event) string {
	text := fmt.Sprintf("Run %s was admitted", short(e.Attempt))
	if e.WaitedS >= 1 {
		text += " after " + span(e.WaitedS)
	}
	var slots []string
	for _, s := range e.Evidence {
		if name, ok := strings.CutPrefix(s, "slot "); ok {
			slots = append(slots, name)
		}
	}
	if len(slots) > 0 {
		text += ": " + e.To + " holds " + list(slots)
	} else {
		text += " by " + e.To + ", and nothing is counted"
	}
	if e.Identity != "" {
		text += ", for its " + e.Identity
	}
	return text + "."
}

func endedText(e *Event) string {
	back := "its slots"
	if e.Lane != "" {
		back += " and its lane"
	}
	text := fmt.Sprintf("Run %s ended, %s, by its record", short(e.Attempt), endingText(cmp.Or(e.Text, e.Outcome)))
	if e.RanS >= 1 {
		text += ", after " + span(e.RanS)
	}
	if e.Code == "survivors" {
		return text + "; it keeps " + back + " for an agent that could not be ended."
	}
	return text + ", and gave " + back + " back."
}

// ofVerdict tells verdicts and releases.
func ofVerdict(e *Event) string {
	switch {
	case e.Permission == Acceptance && (e.What == Accepted || e.What == Rejected):
		text := fmt.Sprintf("%s %s %s", e.by(), e.What, e.thing())
		if e.Identity != "" {
			text += " as it was then (" + brief(e.Identity) + ")"
		}
		given := *e
		if len(e.Evidence) > 0 && strings.HasPrefix(e.Evidence[0], verdict) {
			text, given.Evidence = text+" in "+e.Evidence[0], e.Evidence[1:]
		}
		return text + given.rests() + reason(e.Text) + "."
	case e.Permission == Acceptance && e.What == Checked:
		how := "they passed"
		if e.Code != "passed" {
			how = "not all of them passed"
		}
		return fmt.Sprintf("%s had the checks run on what %s left (%s), and %s%s.", e.by(), e.thing(), brief(e.Identity), how, e.rests())
	case e.Permission != Release:
		return ""
	case e.What == Released:
		text := fmt.Sprintf("%s let %s go out%s", e.by(), e.thing(), e.rests())
		if e.Text != "" {
			return text + "; something spoke against it, and the reason given is: " + strings.TrimSuffix(e.Text, ".") + "."
		}
		return text + "."
	case e.What == "not released":
		return fmt.Sprintf("%s was to let %s go out%s, and the command that does it failed (%s).", e.by(), e.thing(), e.rests(), strings.ReplaceAll(e.Code, "_", " "))
	case e.What == "refused":
		return fmt.Sprintf("%s asked for the release of %s and was refused%s.", e.by(), e.thing(), reason(e.itself(e.Text)))
	}
	return ""
}

// rests is what an event rests on.
func (e *Event) rests() string {
	if len(e.Evidence) == 0 {
		return ""
	}
	all := make([]string, len(e.Evidence))
	for i, one := range e.Evidence {
		all[i] = brief(one)
	}
	return ", on the evidence of " + list(all)
}

// verdict begins the evidence that names the verdict's own file.
const verdict = "verdict "

// itself puts into the words of a sentence what was said of the attempt by its full
// name.
func (e *Event) itself(text string) string {
	if e.Lane != "" {
		text = strings.ReplaceAll(text, fmt.Sprintf(" of lane %q", e.Lane), "")
	}
	if e.Attempt != "" {
		text = strings.ReplaceAll(text, e.Attempt, "it")
	}
	return brief(text)
}

// long are ids and digests in full.
var long = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\b(?:(sha256:[0-9a-f]{12})[0-9a-f]{52}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}([0-9a-f]{8}))\b`)
})

// brief has ids and digests as people compare them.
func brief(text string) string { return long().ReplaceAllString(text, "$1$2") }

// ofAccount tells what became of engine accounts.
func ofAccount(e *Event) string {
	if e.Permission != Quota {
		return ""
	}
	text := strings.TrimSuffix(e.Text, ".")
	switch e.What {
	case "parked", "paused", "paced":
		if text == "" {
			return ""
		}
		text = strings.ToUpper(text[:1]) + text[1:]
		if e.What != "paced" {
			text += "; its starts wait"
		}
		text += strings.TrimPrefix(e.until(), ",")
		if e.Attempt != "" {
			text += fmt.Sprintf(". Run %s has seen it", short(e.Attempt))
		}
		return text + "."
	case "probed":
		return fmt.Sprintf("Run %s was let through to find out whether %s works again.", short(e.Attempt), e.account())
	case "cleared":
		return fmt.Sprintf("%s let %s start again.", cmp.Or(shortRun(e.By), "Somebody"), e.account())
	}
	return ""
}

func (e *Event) account() string {
	if e.Account != "" {
		return "account " + e.Engine + "/" + e.Account
	}
	return "engine " + e.Engine
}

// shortRun shortens the id in "run ID".
func shortRun(who string) string {
	if id, ok := strings.CutPrefix(who, "run "); ok {
		return "Run " + short(id)
	}
	return who
}

// ofOther tells what any other room wrote: its own words first.
func ofOther(e *Event) string {
	text := strings.TrimSuffix(e.Text, ".")
	if text == "" {
		text = fmt.Sprintf("%s was %s", e.thing(), e.What)
	} else {
		text = fmt.Sprintf("%s was %s: %s", e.thing(), e.What, text)
	}
	if e.From != "" && e.To != "" {
		text += fmt.Sprintf(" (%s, from %s to %s)", e.Permission, e.From, e.To)
	}
	if e.By != "" {
		text += ", by " + e.By
	}
	if len(e.Evidence) > 0 {
		text += ", on the evidence of " + list(e.Evidence)
	}
	text += e.until()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(text, ".")
}

func (e *Event) until() string {
	if e.Until.IsZero() {
		return ""
	}
	return ", until " + e.Until.UTC().Format("2006-01-02 15:04:05 UTC")
}

func (e *Event) by() string { return cmp.Or(e.By, "Somebody") }

// thing is what an event is about.
func (e *Event) thing() string {
	switch {
	case e.Attempt != "" && e.Lane != "":
		return fmt.Sprintf("attempt %s of lane %q", short(e.Attempt), e.Lane)
	case e.Attempt != "":
		return "run " + short(e.Attempt)
	case e.Lane != "":
		return fmt.Sprintf("lane %q", e.Lane)
	case e.Account != "":
		return "account " + strings.TrimSpace(e.Engine+" "+e.Account)
	case e.Engine != "":
		return "engine " + e.Engine
	}
	return cmp.Or(e.Identity, e.Permission)
}

// endingText puts an outcome of C13 and what follows it into words.
func endingText(text string) string {
	word, rest, more := strings.Cut(text, ":")
	code, number, _ := strings.Cut(word, " ")
	switch code {
	case "exited":
		if number == "" {
			number = "as its record says"
		}
		word = "exit status " + strings.TrimPrefix(number, "status ")
	case "signaled":
		word = "by signal " + number
	case "cancelled":
		word = code
	case "timed_out":
		word = "its time was over"
	case "not_started":
		word = "not started"
	case "lost":
		word = "lost: nobody can tell what became of it"
	}
	if more {
		return word + " (" + strings.TrimSpace(rest) + ")"
	}
	return strings.ReplaceAll(word, "_", " ")
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// short is how people are shown an id: its end, which names it.
func short(id string) string {
	if len(id) > 8 {
		return id[len(id)-8:]
	}
	return id
}

func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
