package handsel

import "time"

// ShortenPatience makes Enqueue wait less for an answer, for a test of it.
func ShortenPatience(answer, ask time.Duration) (restore func()) {
	a, b := answerPatience, askPatience
	answerPatience, askPatience = answer, ask
	return func() { answerPatience, askPatience = a, b }
}
