// Package metrics counts, and writes what was counted as Prometheus reads it
// (P12).
//
// It guarantees that every family has its help and its type before its samples,
// that labels are escaped, and that a histogram's buckets add up. It does not
// keep names from growing without a bound: whoever gives a label sees to it that
// there are few of its values, and a lane's name is never one.
package metrics

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ContentType is that of the text.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Bounds are the upper bounds of the buckets of a duration, in seconds: from a
// moment to a week.
var Bounds = []float64{0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400, 259200, 604800}

// Histogram counts durations. Its methods may be called from many goroutines.
// The zero Histogram is empty.
type Histogram struct {
	mu     sync.Mutex
	counts []uint64 // by bucket, the last for what is beyond all bounds
	sum    float64
}

// Observe counts a duration in seconds. One that is negative or no number is a
// clock that was set back, and counts as none at all (C14).
func (h *Histogram) Observe(seconds float64) {
	if math.IsNaN(seconds) || seconds < 0 {
		seconds = 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts = make([]uint64, len(Bounds)+1)
	}
	at, _ := slices.BinarySearch(Bounds, seconds)
	h.counts[at]++
	h.sum += seconds
}

// Buckets are how many durations were at most each of Bounds, then how many there
// were, and what they come to in seconds.
func (h *Histogram) Buckets() (upTo []uint64, count uint64, sum float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	upTo = make([]uint64, len(Bounds))
	for i, n := range h.counts {
		if count += n; i < len(upTo) {
			upTo[i] = count
		}
	}
	if h.counts == nil {
		return upTo, 0, 0
	}
	return upTo, count, h.sum
}

// Text is a page of metrics in the making.
type Text struct{ b strings.Builder }

// The types of families.
const (
	Counter = "counter"
	Gauge   = "gauge"
)

// Family begins a family of samples. help is one line.
func (t *Text) Family(name, kind, help string) {
	fmt.Fprintf(&t.b, "# HELP %s %s\n# TYPE %s %s\n", name, escapeHelp(help), name, kind)
}

// Sample writes one value of the family that was begun; labels are names and
// values in turn.
func (t *Text) Sample(name string, value float64, labels ...string) {
	t.b.WriteString(name)
	t.labels(labels)
	t.b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

func (t *Text) labels(labels []string) {
	if len(labels) < 2 {
		return
	}
	t.b.WriteByte('{')
	for i := 0; i+1 < len(labels); i += 2 {
		if i > 0 {
			t.b.WriteByte(',')
		}
		t.b.WriteString(labels[i] + `="` + escapeLabel(labels[i+1]) + `"`)
	}
	t.b.WriteByte('}')
}

// Named is a histogram with its labels.
type Named struct {
	*Histogram
	Labels []string
}

// Histograms writes a family of histograms.
func (t *Text) Histograms(name, help string, all ...Named) {
	t.Family(name, "histogram", help)
	for _, h := range all {
		upTo, count, sum := h.Buckets()
		for i, n := range upTo {
			t.Sample(name+"_bucket", float64(n), append(slices.Clone(h.Labels), "le", strconv.FormatFloat(Bounds[i], 'g', -1, 64))...)
		}
		t.Sample(name+"_bucket", float64(count), append(slices.Clone(h.Labels), "le", "+Inf")...)
		t.Sample(name+"_sum", sum, h.Labels...)
		t.Sample(name+"_count", float64(count), h.Labels...)
	}
}

// String is the page so far.
func (t *Text) String() string { return t.b.String() }

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func escapeHelp(text string) string { return helpEscapes.Replace(text) }
func escapeLabel(text string) string {
	return labelEscapes.Replace(strings.ToValidUTF8(text, "\ufffd"))
}
