package api

import (
	"net/http/httptest"
	"net/url"
	"testing"
)

// Whatever a query is, it is a filter of sense or an error.
func FuzzFilterOf(f *testing.F) {
	for _, q := range []string{"", "after=7&lane=a%2Fb&limit=3", "after=-1", "limit=x", "id=1&open=1", "%zz"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		r := httptest.NewRequest("GET", PathEvents, nil)
		r.URL = &url.URL{Path: PathEvents, RawQuery: q}
		if got, err := FilterOf(r); err == nil && (got.After < 0 || got.Limit < 0) {
			t.Errorf("%q is %+v", q, got)
		}
	})
}
