//go:build unix

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
)

// Serve listens until ctx ends or somebody asks the dispatcher to stop, and
// returns when nothing of it is left. Rows survive; lanes that were claimed go
// on (L22).
func (d *Dispatcher) Serve(ctx context.Context, sockets Sockets) error {
	defer d.cfg.Teller.Close(tellPatience) // after all else: nobody waits for it
	defer d.letGo()
	if err := d.listen(sockets); err != nil {
		return err
	}
	var serving sync.WaitGroup
	hand, sock := d.hand, d.desk.sock
	serving.Go(func() { d.serveHand(hand) })
	serving.Go(func() { d.desk.serve(sock) })
	d.serveMetrics()
	stop := context.AfterFunc(ctx, func() { d.post(func() { d.leave(&leaving{}) }) })
	defer stop()
	d.cfg.Log.Info("dispatching", "home", d.cfg.Home.Path, "rows", len(d.rows), "attempts", len(d.attempts))
	if sockets.Ready != nil {
		sockets.Ready()
	}
	d.again = true
	d.loop()
	if sockets.Leaving != nil {
		sockets.Leaving()
	}
	d.stop()
	d.hand.Close()
	d.desk.close()
	serving.Wait()
	d.work.Wait()
	return nil
}

// Sockets are where to listen. Nil ones are bound in the home.
type Sockets struct {
	Handoff *handoff.Listener
	API     *net.UnixListener
	Ready   func() // called once everything listens
	Leaving func() // called when it begins to end
}

func (d *Dispatcher) listen(s Sockets) (err error) {
	if d.hand = s.Handoff; d.hand == nil {
		if d.hand, err = handoff.Listen(d.cfg.Home); err != nil {
			return err
		}
	}
	d.hand.Connections = d.fds.conns()
	if d.desk, err = d.openDesk(s.API); err != nil {
		return err
	}
	for _, name := range []string{home.HandoffSocket, home.APISocket} {
		d.named[name] = d.there(name)
	}
	return nil
}

// there tells whether something has a socket's name in the home itself.
func (d *Dispatcher) there(name string) bool {
	_, err := os.Lstat(filepath.Join(d.cfg.Home.Path, name))
	return err == nil
}

// relisten makes the sockets again that somebody has removed: nobody could claim
// or ask until the dispatcher was started again (C034). Connections stay.
func (d *Dispatcher) relisten() {
	if d.leaving != nil {
		return
	}
	if d.named[home.HandoffSocket] && !d.there(home.HandoffSocket) {
		if hand, err := handoff.Listen(d.cfg.Home); err != nil {
			d.cfg.Log.Error("make a socket again", "error", err)
		} else {
			hand.Connections = d.fds.conns()
			d.hand.Close()
			d.hand = hand
			d.aside(func() { d.serveHand(hand) })
		}
	}
	if d.named[home.APISocket] && !d.there(home.APISocket) {
		if sock, err := d.cfg.Home.ListenUnix(home.APISocket); err != nil {
			d.cfg.Log.Error("make a socket again", "error", err)
		} else {
			d.desk.sock.Close()
			d.desk.sock = sock
			d.aside(func() { d.desk.serve(sock) })
		}
	}
}

// serveHand takes connections until the listener is closed. Each is served on
// its own, so none delays another's claim (L23).
func (d *Dispatcher) serveHand(hand *handoff.Listener) {
	for {
		conn, err := hand.Accept(d.life)
		switch {
		case errors.Is(err, net.ErrClosed), d.life.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return
		case err != nil:
			d.cfg.Log.Warn("accept", "error", err)
			d.pauseAccept()
			continue
		}
		d.aside(func() {
			d.talk(conn)
			if d.heir.Load() != conn {
				conn.Close()
			}
		})
	}
}

// pauseAccept keeps a failing accept(2), as for want of descriptors, from being
// repeated in a loop.
func (d *Dispatcher) pauseAccept() {
	ctx, cancel := context.WithTimeout(d.life, 100*time.Millisecond)
	defer cancel()
	<-ctx.Done()
}

// talk answers what comes over one connection, one frame after the other.
func (d *Dispatcher) talk(conn *handoff.Conn) {
	for {
		f, err := conn.Receive(d.life)
		if err != nil {
			if d.life.Err() == nil {
				conn.Refuse(context.Background(), err)
			}
			return
		}
		switch f.Type {
		case handoff.Enqueue{}.Type():
			d.serveEnqueue(conn, f)
		case handoff.Ask{}.Type():
			d.serveAsk(conn, f)
		case handoff.Claim{}.Type():
			d.serveClaim(conn, f)
			return
		case handoff.Ended{}.Type():
			d.serveEnded(conn, f)
		case handoff.Takeover{}.Type():
			f.CloseFds()
			d.serveTakeover(conn)
			return
		default:
			f.CloseFds()
			d.refuse(conn, "bad_request", "config", fmt.Sprintf("a dispatcher knows no request of type %q", f.Type), false)
			return
		}
	}
}

// answer sends an answer. A client that does not take it loses it, and asks
// again (L9).
func (d *Dispatcher) answer(conn *handoff.Conn, a handoff.Answer) {
	if err := conn.Send(context.Background(), a); err != nil {
		d.cfg.Log.Debug("answer", "attempt", a.Attempt, "error", err)
	}
}

func (d *Dispatcher) refuse(conn *handoff.Conn, code, class, text string, retryable bool) {
	d.answer(conn, handoff.Answer{Code: code, Class: class, Message: text, Retryable: retryable})
}
