package engine

import (
	"testing"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

// TestRefusalsAreTold: what the services write in error messages, in the forms
// gemini, agy and pi pass them on.
func TestRefusalsAreTold(t *testing.T) { // E11, C125
	for _, tt := range []struct {
		text   string
		fault  stream.Fault
		status int
		after  time.Duration
	}{
		{"429 Rate limit reached. Please try again in 3.2s.", stream.ByThrottle, 429, 3200 * time.Millisecond},
		{`429 {"error":{"message":"Slow","type":"rate_limit_error"},"type":"error"}`, stream.ByThrottle, 429, 0},
		{`429 {"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, stream.ByLimit, 429, 0},
		{"You have hit your ChatGPT usage limit (plus plan). Try again in ~123 min.", stream.ByLimit, 0, 123 * time.Minute},
		{`[API Error: {"error":{"code":429,"message":"q","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"38s"}]}}]`, stream.ByThrottle, 429, 38 * time.Second},
		{`[API Error: {"error":{"code":429,"message":"q","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProject"}]}]}}]`, stream.ByLimit, 429, 0},
		{"[API Error: Quota exceeded. Please retry in 3600s.]", stream.ByAgent, 0, time.Hour},
		{"[API Error: model overloaded (Status: 503)]", stream.ByThrottle, 503, 0},
		{"API error (attempt 3): RESOURCE_EXHAUSTED (code 429): Individual quota reached. Resets in 2h39m52s.", stream.ByLimit, 429, 2*time.Hour + 39*time.Minute + 52*time.Second},
		{"429 too many, retry after 850ms", stream.ByThrottle, 429, 850 * time.Millisecond},
		{"429 too many, try again in 1 hour 5 minutes", stream.ByLimit, 429, 65 * time.Minute},
		{"429 try again in 99999999999999999999h", stream.ByThrottle, 429, 0},
		{`401 {"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, stream.ByLogin, 401, 0},
		{`{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}`, stream.ByLogin, 400, 0},
		{`{"error":{"code":400,"message":"bad field","status":"INVALID_ARGUMENT"}}`, stream.ByAgent, 400, 0},
		{`{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}`, stream.ByPermission, 403, 0},
		{"529 Overloaded", stream.ByThrottle, 529, 0},
		{"402 payment required", stream.ByLimit, 402, 0},
		{"500 Internal error", stream.ByAgent, 500, 0},
		{"No API key for anthropic/claude", stream.ByLogin, 0, 0},
		{"fetch failed", stream.ByAgent, 0, 0},
		{"line 429 of the file, and 401 more", stream.ByAgent, 0, 0},
		{`{"error": 5}`, stream.ByAgent, 0, 0},
		{"", stream.ByAgent, 0, 0},
	} {
		got := refusalIn(tt.text)
		if got.fault != tt.fault || got.status != tt.status || got.after != tt.after {
			t.Errorf("%s: %s %d after %v, want %s %d after %v", tt.text, got.fault, got.status, got.after, tt.fault, tt.status, tt.after)
		}
	}
}

func FuzzRefusal(f *testing.F) {
	for _, seed := range []string{"429 try again in 3s", `{"error":{"code":"x","details":[{"retryDelay":"-3s"}]}}`, "resets in 1d 2h 3m 4s 5ms"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r := refusalIn(text); r.fault == "" || r.after < 0 || r.after > longest && r.status == 0 || r.status != 0 && (r.status < 100 || r.status > 599) {
			t.Fatalf("%q: %+v", text, r)
		}
	})
}
