package metrics

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestBucketsAddUp(t *testing.T) {
	h := &Histogram{}
	if upTo, count, sum := h.Buckets(); count != 0 || sum != 0 || len(upTo) != len(Bounds) {
		t.Errorf("empty: %v, %d, %v", upTo, count, sum)
	}
	for _, s := range []float64{0, 0.1, 0.11, 60, 1e9, -5, math.NaN()} {
		h.Observe(s)
	}
	upTo, count, sum := h.Buckets()
	if count != 7 || sum != 0.1+0.11+60+1e9 {
		t.Errorf("count %d, sum %v", count, sum)
	}
	if want := []uint64{4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6}; !slices.Equal(upTo, want) {
		t.Errorf("buckets %v, want %v", upTo, want)
	}
}

func TestTextIsWhatPrometheusReads(t *testing.T) {
	page := &Text{}
	page.Family("a_total", Counter, "one\nline \\")
	page.Sample("a_total", 3)
	page.Sample("a_total", 0.5, "pool", "x\"\n\\\xff")
	h := &Histogram{}
	h.Observe(2)
	page.Histograms("b_seconds", "of b", Named{h, []string{"how", "x"}})
	text := page.String()
	for _, want := range []string{
		"# HELP a_total one\\nline \\\\\n# TYPE a_total counter\na_total 3\na_total{pool=\"x\\\"\\n\\\\\ufffd\"} 0.5\n",
		"# HELP b_seconds of b\n# TYPE b_seconds histogram\nb_seconds_bucket{how=\"x\",le=\"0.1\"} 0\n",
		"b_seconds_bucket{how=\"x\",le=\"5\"} 1\n", "b_seconds_bucket{how=\"x\",le=\"604800\"} 1\nb_seconds_bucket{how=\"x\",le=\"+Inf\"} 1\nb_seconds_sum{how=\"x\"} 2\nb_seconds_count{how=\"x\"} 1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
