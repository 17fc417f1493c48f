package handsel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/quota"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/run"
)

// What a command says by its exit status (P3). Any other is no answer.
const (
	saysGo   = 0
	saysWait = 10
	saysAsk  = 11 // it would have to ask somebody, and nobody is there: it counts as wait
	saysDeny = 12
)

// The variables by which a command learns what it is asked about.
const (
	envAskedEngine  = "HANDSEL_ENGINE"
	envAskedAccount = "HANDSEL_ACCOUNT"
)

// answerNone is a command that gave no answer.
const answerNone = "none"

// command asks the command of the configuration, if there is one (P3). What it said
// is kept for a while in a file, so that thirty who wait ask it once. No answer is
// told, and holds nobody.
func (a *asker) command(who quota.Account) lease.Answer {
	conf := a.settings.QuotaOf[who.Engine]
	if len(conf.Command) == 0 {
		return lease.Answer{}
	}
	said, err := a.ask(who, conf)
	if err != nil {
		if a.given() != nil {
			return lease.Answer{Err: a.given()}
		}
		a.note(fmt.Sprintf("quota of %s: %v; nobody is held for it", who, err))
		return lease.Answer{}
	}
	now := quota.Now()
	again := now.Wall.Add(said.left(now))
	switch said.Answer {
	case AnswerWait:
		return lease.Answer{Class: classQuota, Code: CodeCommandWait, Message: commandText(who, "says wait", said.Message), Until: again}
	case AnswerDeny:
		return lease.Answer{Class: classQuota, Code: CodeCommandDeny, Message: commandText(who, "says no", said.Message), Deny: !a.start.Keeps, Until: denialEnds(a.start.Keeps, again)}
	case answerNone:
		a.note(fmt.Sprintf("quota of %s: %s; nobody is held for it", who, said.Message))
	}
	return lease.Answer{}
}

// denialEnds is when one who has a place to keep looks again.
func denialEnds(keeps bool, again time.Time) time.Time {
	if keeps {
		return again
	}
	return time.Time{}
}

func commandText(who quota.Account, says, message string) string {
	text := fmt.Sprintf("the command of [quota.%s] %s for %s", who.Engine, says, who)
	if message != "" {
		text += ": " + message
	}
	return text
}

// commandAnswer is what a command said, as it is kept.
type commandAnswer struct {
	V       int       `json:"v"`
	Asked   string    `json:"asked"` // which command: the SHA-256 of its words
	Answer  string    `json:"answer"`
	Message string    `json:"message,omitempty"`
	Until   time.Time `json:"until,omitzero"`
	At      time.Time `json:"at"`
	Boot    string    `json:"boot"`
	AtMS    int64     `json:"at_ms"` // CLOCK_BOOTTIME
	EveryMS int64     `json:"every_ms"`
}

// soonest is how long an answer is good for at least, whatever until it names.
const soonest = time.Second

// goodFor is how long an answer is good for: as configured, and not beyond the time
// that it named itself, which may have passed by now. One that had passed when the
// command began, of which it thus knew, means nothing.
func (c *commandAnswer) goodFor(every time.Duration, began, now time.Time) time.Duration {
	if c.Answer != AnswerGo && c.Until.After(began) {
		return min(every, max(c.Until.Sub(now), soonest))
	}
	return every
}

// left is how long it is good for still.
func (c *commandAnswer) left(now quota.Moment) time.Duration {
	if c.Boot != now.Boot {
		return 0
	}
	return max(time.Duration(c.AtMS+c.EveryMS)*time.Millisecond-now.Since, 0)
}

func digestOf(words []string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:])
}

// ask is the kept answer while it is good, and else a new one. Of several who find
// none, one runs the command and the others get what it said.
func (h *Home) ask(ctx context.Context, who quota.Account, conf config.QuotaConf) (*commandAnswer, error) {
	every, limit := conf.Every, conf.Timeout
	if every == 0 {
		every = config.DefaultEvery
	}
	if limit == 0 {
		limit = config.DefaultTimeout
	}
	asked := digestOf(conf.Command)
	good := func(data []byte) (*commandAnswer, bool) {
		var said commandAnswer
		if json.Unmarshal(data, &said) != nil || said.Asked != asked || said.left(quota.Now()) == 0 {
			return nil, false
		}
		return &said, true
	}
	var said *commandAnswer
	err := h.book().Remember(ctx, "command."+who.String(), 2*(limit+2*ending), func(have []byte) bool {
		found, ok := good(have)
		said = found
		return ok
	}, func() ([]byte, error) {
		began := quota.Now().Wall
		answer, err := askCommand(ctx, who, conf.Command, limit)
		if err != nil {
			return nil, err
		}
		now := quota.Now()
		answer.V, answer.Asked, answer.At, answer.Boot, answer.AtMS, answer.EveryMS = 1, asked, now.Wall.UTC(), now.Boot, now.Since.Milliseconds(), answer.goodFor(every, began, now.Wall).Milliseconds()
		said = answer
		return json.Marshal(answer)
	})
	return said, err
}

// commandSaid is the kept answer, for those who only look.
func (h *Home) commandSaid(in *inForce, who quota.Account, now quota.Moment) *QuotaCommand {
	conf := in.QuotaOf[who.Engine]
	if len(conf.Command) == 0 {
		return nil
	}
	var said commandAnswer
	data, err := h.book().Recall("command." + who.String())
	if err != nil || json.Unmarshal(data, &said) != nil || said.Asked != digestOf(conf.Command) || said.left(now) == 0 {
		return &QuotaCommand{Answer: answerNone, Message: "it was not asked lately"}
	}
	return &QuotaCommand{Answer: said.Answer, At: record.At(said.At), Until: at(said.Until), Message: said.Message}
}

// mostAnswer bounds what a command may say, in bytes.
const mostAnswer = 64 << 10

// ending is how long a command may take to end when its time is over, and then when
// it is killed.
const ending = time.Second

// askCommand runs a command, in no shell, with our environment and what it is asked
// about, and ends it with all it started when its time is over. The error is that
// of being interrupted; all else that goes wrong is no answer.
func askCommand(ctx context.Context, who quota.Account, argv []string, limit time.Duration) (*commandAnswer, error) {
	env := append(plainEnv(os.Environ()), envAskedEngine+"="+who.Engine)
	if who.Name != "" {
		env = append(env, envAskedAccount+"="+who.Name)
	}
	said, err := run.Command{Argv: argv, Dir: "/", Env: env, Limit: limit, Grace: ending, ID: record.NewID(), Out: mostAnswer}.Run(ctx)
	none := func(why string) (*commandAnswer, error) {
		return &commandAnswer{Answer: answerNone, Message: strconv.QuoteToASCII(argv[0]) + " gave no answer: " + why}, nil
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && said.Outcome.Outcome != run.TimedOut:
		return none(err.Error())
	case said.Outcome.Outcome != run.Exited:
		return none(said.How())
	case said.More:
		return none(fmt.Sprintf("it wrote more than %d bytes", mostAnswer))
	}
	answer := &commandAnswer{}
	switch said.ExitCode {
	case saysGo:
		answer.Answer = AnswerGo
	case saysWait, saysAsk:
		answer.Answer = AnswerWait
	case saysDeny:
		answer.Answer = AnswerDeny
	default:
		return none(said.How())
	}
	if err := answer.read(said.Stdout); err != nil {
		return none(err.Error())
	}
	return answer, nil
}

// mostYear is the last that can be written down (RFC 3339); a zone may bring what was
// read beyond it.
const mostYear = 9999

// read takes what a command wrote to its stdout: nothing, or a JSON object with
// until and message.
func (c *commandAnswer) read(text []byte) error {
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil
	}
	var said struct {
		Until   time.Time `json:"until"`
		Message string    `json:"message"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return errors.New("what it wrote is no JSON object with until and message")
	}
	c.Message = plain(said.Message, mostSaid)
	if until := said.Until.UTC(); until.Year() <= mostYear {
		c.Until = until
	}
	return nil
}
