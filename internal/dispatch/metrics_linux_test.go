package dispatch

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/handsel/handsel/internal/home"
)

// Whoever promises a body and sends none keeps a place for a moment only: there
// are few, and any user of the machine may ask (C136).
func TestMetricsGuestsThatSendNothingMoreAreCut(t *testing.T) {
	t.Parallel()
	d := begin(Config{Home: home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}, Log: slog.New(slog.DiscardHandler)})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { d.serveMetricsAt(l) })
	defer served.Wait()
	defer d.stop()
	ask := func(length int) net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", length)
		return c
	}
	for range metricsGuests {
		ask(100)
	}
	answer, err := http.ReadResponse(bufio.NewReader(ask(0)), nil) // go test's own time bounds it
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", answer.StatusCode)
	}
}
