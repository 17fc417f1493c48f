// Package attempt keeps what is known of one start of one lane outside the
// database: the row as it travels, its payload, its entry in the status view,
// and the file by which its start is begun or withdrawn (L8, L10, L11, L14,
// L16).
//
// It guarantees that a payload comes back byte for byte and is private to its
// user; that a row holds no argument, prompt or value of the environment; that
// of a driver that begins and a dispatcher that withdraws exactly one wins; and
// that a reader of an entry sees it whole, old or new.
//
// It owns no lane and decides nothing: whether a row is admitted, what an entry
// without a row means, and when a payload is removed is the caller's to say. An
// entry is a view, and never proof of who owns the lane.
//
// An attempt's directory is the directory of the run of the same id, so that
// what is known of an attempt and of its run lies in one place.
package attempt

import (
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Version is the version of the formats written here (C12).
const Version = 1

// Problem is a file that was passed over.
type Problem struct {
	Path string
	Err  error
}

func (p Problem) Error() string { return strconv.QuoteToASCII(p.Path) + ": " + p.Err.Error() }

// Time is a moment as it is written: RFC 3339, UTC, milliseconds (C12).
type Time struct{ time.Time }

const timeFormat = "2006-01-02T15:04:05.000Z"

// At is t as it will be read back.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// MarshalJSON writes milliseconds even when they are zero.
func (t Time) MarshalJSON() ([]byte, error) {
	if !t.writable() {
		return nil, errors.New("a time outside the years 0 to 9999")
	}
	b := make([]byte, 0, len(timeFormat)+2)
	b = t.UTC().AppendFormat(append(b, '"'), timeFormat)
	return append(b, '"'), nil
}

// UnmarshalJSON reads RFC 3339 of any zone. What could not be written again is
// an error.
func (t *Time) UnmarshalJSON(data []byte) error {
	if err := t.Time.UnmarshalJSON(data); err != nil {
		return err
	}
	if *t = At(t.Time); !t.writable() {
		return errors.New("a time outside the years 0 to 9999")
	}
	return nil
}

func (t Time) writable() bool { year := t.UTC().Year(); return 0 <= year && year <= 9999 }

// dateOf is the UTC date in an id, the directory its attempt is in. Only a
// UUIDv7 in its usual spelling is an id: anything else could name another path.
func dateOf(id string) (string, bool) {
	at, ok := timeOf(id)
	if !ok {
		return "", false
	}
	return at.Format(time.DateOnly), true
}

// timeOf is when an id was made, in UTC.
func timeOf(id string) (time.Time, bool) {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 || u.String() != id {
		return time.Time{}, false
	}
	ms := int64(u[0])<<40 | int64(u[1])<<32 | int64(u[2])<<24 | int64(u[3])<<16 | int64(u[4])<<8 | int64(u[5])
	return time.UnixMilli(ms).UTC(), true
}
