package engine

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

// refusal is why a model's service did not answer, as far as the engine's error
// message tells. It is read from messages about errors only, never from what an
// agent says (E11).
type refusal struct {
	fault  stream.Fault
	status int           // HTTP's; 0: not told
	after  time.Duration // until it may be asked again; 0: not told
}

// longWait is the wait from which a service that says "later" means a used-up
// quota, not a crowd: gemini stops trying again by itself above it.
const longWait = 5 * time.Minute

// refusalIn reads an error message.
func refusalIn(text string) refusal {
	r := refusal{after: resetIn(text)}
	kind := ""
	if api, ok := apiError(text); ok {
		r.status, kind = api.code(), api.Error.kind()
		if wait := api.wait(); wait > 0 {
			r.after = wait
		}
		if api.daily() {
			kind = "quota"
		}
	}
	if r.status == 0 {
		r.status = statusIn(text)
	}
	r.fault = faultOf(r.status, kind, strings.ToLower(text), r.after)
	return r
}

// event is the neutral event of a refusal.
func (r refusal) event(text string, now time.Time) stream.Event {
	e := stream.Event{Kind: stream.Trouble, Text: text, Fault: r.fault, Status: r.status}
	if r.fault == stream.ByLimit || r.fault == stream.ByThrottle {
		e.Kind = stream.Limit
		if r.after > 0 {
			e.Until = now.Add(r.after).UTC()
		}
	}
	return e
}

// faultOf judges a status, the service's own word for it, and the message.
func faultOf(status int, kind, text string, after time.Duration) stream.Fault {
	limit := kind == "quota" || kind == "insufficient_quota" || after >= longWait || has(text,
		"usage limit", "daily quota", "quota reached", "insufficient_quota", "limit: 0", "exceeded your monthly")
	switch {
	case status == 429 || status == 499 || kind == "RESOURCE_EXHAUSTED":
		if limit {
			return stream.ByLimit
		}
		return stream.ByThrottle
	case status == 401 || kind == "UNAUTHENTICATED" || kind == "authentication_error",
		status == 400 && has(text, "api key not valid", "api key expired", "api_key_invalid"):
		return stream.ByLogin
	case status == 403 || kind == "PERMISSION_DENIED":
		return stream.ByPermission
	case status == 503 || status == 529 || kind == "UNAVAILABLE" || kind == "overloaded_error":
		return stream.ByThrottle
	case status == 402:
		return stream.ByLimit
	case status != 0:
		return stream.ByAgent
	case has(text, "usage limit", "quota reached", "exhausted your daily quota", "insufficient_quota"):
		return stream.ByLimit
	case has(text, "rate limit", "rate_limit", "too many requests", "overloaded"):
		return stream.ByThrottle
	case has(text, "no api key", "authentication failed", "not logged in", "unauthenticated", "invalid_grant", "token refresh failed"):
		return stream.ByLogin
	}
	return stream.ByAgent
}

// ofStatus is what a status of HTTP alone says of a refusal; "" for one that says
// nothing.
func ofStatus(status int) stream.Fault {
	switch status {
	case 401:
		return stream.ByLogin
	case 403:
		return stream.ByPermission
	case 402:
		return stream.ByLimit
	case 429, 503, 529:
		return stream.ByThrottle
	}
	return ""
}

func has(text string, any ...string) bool {
	for _, one := range any {
		if strings.Contains(text, one) {
			return true
		}
	}
	return false
}

// api is the error body that the services share: Google's, Anthropic's and
// OpenAI's differ in what they fill in.
type api struct {
	Type  string
	Error *apiReason
}

type apiReason struct {
	Code    any // a number of Google's, a word of OpenAI's
	Status  string
	Type    string
	Message string
	Details []struct {
		RetryDelay string // such as "38s"
		Violations []struct{ QuotaID string }
	}
}

// kind is the service's own word for what went wrong.
func (e *apiReason) kind() string {
	if word, ok := e.Code.(string); ok && word != "" {
		return word
	}
	if e.Status != "" {
		return e.Status
	}
	return e.Type
}

func (a *api) code() int {
	if code, ok := a.Error.Code.(float64); ok && code >= 100 && code <= 599 {
		return int(code)
	}
	return 0
}

func (a *api) wait() time.Duration {
	for _, d := range a.Error.Details {
		if wait, err := time.ParseDuration(d.RetryDelay); err == nil && wait > 0 {
			return wait
		}
	}
	return 0
}

func (a *api) daily() bool {
	for _, d := range a.Error.Details {
		for _, v := range d.Violations {
			if has(v.QuotaID, "PerDay", "Daily") {
				return true
			}
		}
	}
	return false
}

// apiError finds the service's JSON in a message that holds it.
func apiError(text string) (*api, bool) {
	at := strings.IndexByte(text, '{')
	if at < 0 {
		return nil, false
	}
	var a api
	if json.NewDecoder(strings.NewReader(text[at:])).Decode(&a) != nil || a.Error == nil {
		return nil, false
	}
	return &a, true
}

// statusAt are the places where a message about an error names its status: at
// its beginning, or in words no other number stands in.
var statusAt = pattern(`^(?:API error[^:]*: )?(?:Error: )?([45]\d\d)\b|\(code ([45]\d\d)\)|\bwith status ([45]\d\d)\b|\(Status: ([45]\d\d)\)`)

func statusIn(text string) int {
	n, _ := strconv.Atoi(strings.Join(append(statusAt().FindStringSubmatch(text), "", "")[1:], "")) // one of the groups, or none
	return n
}

// resetAt is how long it takes until a service answers again, as the services
// write it.
var resetAt = pattern(`(?i)(?:retry|try again|resets?|reset) (?:in|after) ~?((?:\d+(?:\.\d+)?\s?(?:ms|milliseconds?|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)\b[ ,]*|\d+(?:\.\d+)?(?:ms|s|m|h|d))+)`)

// amount is one number of such a time, with its unit.
var amount = pattern(`(?i)(\d+(?:\.\d+)?)\s?(ms|milli|s|m|h|d)`)

// longest is the longest reset that is believed.
const longest = 366 * 24 * time.Hour

// resetIn reads the time until a reset; 0: none is told.
func resetIn(text string) time.Duration {
	found := resetAt().FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	unit := map[string]time.Duration{
		"ms": time.Millisecond, "milli": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	}
	var sum time.Duration
	for _, one := range amount().FindAllStringSubmatch(found[1], 8) {
		n, err := strconv.ParseFloat(one[1], 64)
		wait := n * float64(unit[strings.ToLower(one[2])])
		if err != nil || wait > float64(longest) {
			return 0
		}
		sum += time.Duration(wait)
	}
	if sum > longest {
		return 0
	}
	return sum
}

// mostAnswer bounds what is kept of an answer that comes in pieces, in bytes.
const mostAnswer = 1 << 20

// answer gathers an answer that comes in pieces: its beginning, and how much more
// there was.
type answer struct {
	text bytes.Buffer
	more int64
}

func (a *answer) add(text string, cut int64) {
	room := mostAnswer - a.text.Len()
	if a.more > 0 {
		room = 0
	}
	kept := text[:min(len(text), max(room, 0))]
	a.text.WriteString(strings.ToValidUTF8(kept, ""))
	a.more += cut + int64(len(text)-len(kept))
}

func (a *answer) reset() {
	a.text.Reset()
	a.more = 0
}
