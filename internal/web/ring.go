package web

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"
)

// ring keeps the last of what is added.
type ring[T any] struct {
	kept []T
	most int
}

func newRing[T any](most int) *ring[T] { return &ring[T]{most: most} }

func (r *ring[T]) add(one T) {
	if len(r.kept) >= 2*r.most { // moved once in so many
		r.kept = append(r.kept[:0], r.kept[len(r.kept)-r.most:]...)
	}
	r.kept = append(r.kept, one)
}

// all is what is kept, the oldest first.
func (r *ring[T]) all() []T { return r.kept[max(0, len(r.kept)-r.most):] }

// stamp is a moment in UTC with milliseconds (C12).
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// mustJSON writes what only our own types are in, which all can be written. A
// time that no calendar has is the exception, and is shown as such.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		text, _ = json.Marshal(map[string]string{"problem": err.Error()})
	}
	return text
}

func digest(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }
