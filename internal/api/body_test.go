package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener within a bubble of fake time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// A client that does not send the body it announced is refused in its time; one
// whose answer is long in coming is not cut off by that time.
func TestBodyThatDoesNotComeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.HandleFunc("POST "+PathPrio, func(w http.ResponseWriter, r *http.Request) {
			var p Prio
			if err := ReadBody(w, r, &p); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			select {
			case <-time.After(10 * BodyTime):
			case <-r.Context().Done():
			}
			Answer(w, Done{V: 1, Lane: p.Lane})
		})
		l := pipes{make(chan net.Conn), make(chan struct{})}
		server := http.Server{Handler: mux}
		over := make(chan error)
		go func() { over <- server.Serve(l) }()

		ask := func(body string) (status int, took time.Duration) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			l.conns <- theirs
			began := time.Now()
			if _, err := fmt.Fprintf(ours, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n%s", PathPrio, body); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil && status == http.StatusOK {
				t.Error(err)
			}
			return resp.StatusCode, time.Since(began)
		}
		if status, took := ask(`{"lane":`); status != http.StatusBadRequest || took != BodyTime {
			t.Errorf("a body that does not come: %d after %s", status, took)
		}
		if status, took := ask(`{"lane":"x"}`); status != http.StatusOK || took != 10*BodyTime {
			t.Errorf("a whole body: %d after %s", status, took)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-over
	})
}
