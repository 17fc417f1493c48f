package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/journal"
)

// needs is the path of a program that this machine must have.
func needs(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: bash tools/setup.sh installs it", name)
	}
	return path
}

// freePort is one that nobody listens at. Somebody else may take it before it is
// used; then the test fails and says so.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// page is what a GET answers, and its status.
func page(t testing.TB, c *http.Client, address string) (text string, status int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err.Error(), 0
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error(), 0
	}
	return string(body), resp.StatusCode
}

// sample is the value of a line of metrics, -1 when there is none.
func sample(text, series string) float64 {
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return -1
	}
	return v
}

// every histogram of the page that the dispatcher tells.
var histograms = []string{
	`handsel_queue_wait_seconds_count{how="attempt"}`, `handsel_queue_wait_seconds_count{how="direct"}`, `handsel_claim_wait_seconds_count{how="attempt"}`,
	`handsel_run_seconds_count{how="attempt"}`, `handsel_run_seconds_count{how="direct"}`, `handsel_review_wait_seconds_count`, `handsel_acceptance_seconds_count`,
	`handsel_release_wait_seconds_count`,
}

// A real Prometheus scrapes the loopback address and answers, and every duration
// of a small story is in it (P12).
func TestPrometheusReadsTheMetrics(t *testing.T) {
	t.Parallel()
	prometheus, promtool := needs(t, "prometheus"), needs(t, "promtool")
	at, web := freePort(t), freePort(t)
	h := newHub(t, "[dispatch]\nmetrics = \""+at+"\"\n[pools]\nall = 2\n")
	d := h.dispatcher()
	secret := "lane-nobody-may-see"
	id := h.enqueued(secret, "exit", "0")
	h.outcome(id)
	must(t, "exit 3", h.handsel("run", "--lane", secret+"-2", "--", "sh", "-c", "sleep 0.05; exit 3"))
	passed := func(permission, what string) {
		if err := journal.Append(h.dir, journal.Event{Permission: permission, What: what, Attempt: id, Lane: secret}); err != nil {
			t.Fatal(err)
		}
	}
	passed(journal.Acceptance, journal.Accepted)
	passed(journal.Release, journal.Released)
	h.enqueued("later", "exit", "0")

	var text string
	eventually(t, "all that happened is counted", func() bool {
		text, _ = page(t, http.DefaultClient, "http://"+at+"/metrics")
		for _, series := range histograms {
			if sample(text, series) < 1 {
				return false
			}
		}
		return sample(text, `handsel_attempts_total{result="succeeded"}`) == 2
	})
	for series, want := range map[string]float64{
		`handsel_ends_total{how="direct",outcome="exited"}`: 1, `handsel_ends_total{how="attempt",outcome="exited"}`: 2,
		`handsel_pool_cap{pool="all"}`: 2, `handsel_pool_held{pool="all"}`: 0, `handsel_rows{state="queued"}`: 0, `handsel_orders{kind="drain"}`: 0,
		`handsel_acceptance_seconds_bucket{le="604800"}`: 1,
	} {
		if got := sample(text, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if strings.Contains(text, "nobody-may-see") || strings.Contains(text, id) {
		t.Errorf("a lane or an attempt has a series of its own:\n%s", text)
	}

	// The socket tells the same, and the port nothing else.
	overSocket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return h.dir.DialUnix(ctx, home.APISocket)
	}}}
	defer overSocket.CloseIdleConnections()
	same, status := page(t, overSocket, "http://handsel/metrics")
	if status != http.StatusOK || sample(same, histograms[0]) != sample(text, histograms[0]) {
		t.Errorf("the socket answers %d:\n%s", status, same)
	}
	for _, path := range []string{"/v1/status", "/v1/queue", "/"} {
		if _, status := page(t, http.DefaultClient, "http://"+at+path); status != http.StatusNotFound {
			t.Errorf("GET %s at the port: %d", path, status)
		}
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}

	conf := h.write("prometheus.yml", fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n- {job_name: handsel, static_configs: [{targets: ['%s']}]}\n", at))
	server := start(t, h.command(prometheus, "--config.file="+conf, "--storage.tsdb.path="+h.file("tsdb"), "--web.listen-address="+web, "--log.level=warn"))
	ask := "http://" + web + "/api/v1/query?query=" + url.QueryEscape(`histogram_quantile(0.9, sum by (le) (handsel_queue_wait_seconds_bucket)) >= 0 and on() sum(handsel_attempts_total{result="succeeded"}) == 2`)
	var answer string
	eventually(t, "Prometheus answers from what it has scraped", func() bool {
		var body struct {
			Status string
			Data   struct{ Result []json.RawMessage }
		}
		answer, _ = page(t, http.DefaultClient, ask)
		time.Sleep(50 * time.Millisecond) // there is no event for a scrape
		return json.Unmarshal([]byte(answer), &body) == nil && body.Status == "success" && len(body.Data.Result) == 1
	})
	server.kill()
	h.stops(d)
}

// A port that somebody has stops no dispatcher, which takes it when it is free.
func TestTakenMetricsPortStopsNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	h := newHub(t, "[dispatch]\nmetrics = \""+at+"\"\n")
	d := h.dispatcher()
	d.says("serve the metrics")
	h.outcome(h.enqueued("a", "exit", "0"))
	l.Close()
	eventually(t, "the metrics are served", func() bool {
		_, status := page(t, http.DefaultClient, "http://"+at+"/metrics")
		return status == http.StatusOK
	})
	h.stops(d)
}
