//go:build unix

// Package dispatch is the daemon that keeps waiting lanes as rows.
//
// It holds the lock of every lane whose row it keeps, from the moment a
// launcher hands it over until a driver has acknowledged it; it admits rows in
// order by standing in the same line as everybody else, offers each admitted
// one to a driver under a token that is good once, takes back what is not
// claimed in time, and judges every attempt that is left open (L6 to L21). It
// adds order, never permission: caps are held by the leases it asks for like
// any other start, and the kernel overrules the database (L20).
//
// It does not start agents, reads no prompt, and survives nothing: what must
// outlive it is in the database, in lane and slot records, and in each
// attempt's directory. A driver needs it for nothing once it has acknowledged.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/notify"
	"github.com/handsel/handsel/internal/queue"
)

// The numbers of L13a, L14 and L15a.
const (
	ClaimWindow = 60 * time.Second // an offer stands this long, and not a moment more
	AckWindow   = 5 * time.Second  // from the descriptors' departure to the driver's word
	OpenOffers  = 4                // offers that are open at once
	Unclaimed   = 3                // unclaimed starts in a row that hold a lane
)

// LockName is the file in the home whose lock makes the one dispatcher (L19),
// and Database the file with its rows.
const (
	LockName = "dispatch.lock"
	Database = "handsel.db"
)

// Admit stands in line for a row and returns the lease, when there is room.
// told hears why it waits. It returns when ctx ends, at the latest.
type Admit func(ctx context.Context, r *attempt.Row, told func(lease.Waiting)) (*lease.Lease, error)

// Config says where and how a dispatcher works.
type Config struct {
	Home    home.Dir
	Version string
	Log     *slog.Logger

	Driver []string // command of the drivers whose rows name none
	Env    []string // their environment, complete

	Admit Admit
	// Mode refuses enqueues while the home is in waiter mode (L6).
	Mode func() error
	// Limit is the cap under which rows run where `all` has none (L13a); 0 says
	// that it has one.
	Limit func() int

	Starting    int           // open offers at once; 0 = OpenOffers
	Unclaimed   int           // 0 = the constant of that name
	ClaimWindow time.Duration // 0 = the constant; tests make it short
	AckWindow   time.Duration
	KeepDays    int   // how long ended attempts, their events and the records of runs stay; 0 = for ever
	KeepBytes   int64 // how much the records of runs may come to; 0 = no bound

	// Metrics is the loopback address that /metrics is served on besides the
	// socket; empty: none. Pools are what it tells of them; nil: nothing.
	Metrics string
	Pools   func(context.Context) []Pool

	// Teller tells commands of changes of state (P13); nil: nobody is told.
	Teller *notify.Teller
}

func (c Config) complete() Config {
	if c.Starting == 0 {
		c.Starting = OpenOffers
	}
	if c.Unclaimed == 0 {
		c.Unclaimed = Unclaimed
	}
	if c.ClaimWindow == 0 {
		c.ClaimWindow = ClaimWindow
	}
	if c.AckWindow == 0 {
		c.AckWindow = AckWindow
	}
	if c.Limit == nil {
		c.Limit = func() int { return 0 }
	}
	if c.Mode == nil {
		c.Mode = func() error { return nil }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Running reports that another dispatcher has the home (75).
type Running struct {
	Pid int // 0 = not known
}

func (e *Running) Error() string {
	if e.Pid == 0 {
		return "another dispatcher is running"
	}
	return fmt.Sprintf("another dispatcher is running (pid %d)", e.Pid)
}

// Dispatcher holds every waiting lane on behalf of the launchers that left.
type Dispatcher struct {
	cfg     Config
	started time.Time
	db      *queue.DB
	lock    *flock.File
	beat    *beat
	hand    *handoff.Listener
	desk    *desk
	meters  *meters
	fds     budget
	peers   peers

	asks chan func()
	gone chan struct{} // closed when the loop has ended: nobody answers asks
	work sync.WaitGroup
	life context.Context //nolint:containedctx // no caller's: it ends with the loop, for goroutines that outlive the call that started them
	stop context.CancelFunc

	// The fields below belong to the goroutine in loop. Anyone else sends an
	// ask and waits for the answer; there is no mutex to forget.
	rows      map[string]*row          // by attempt
	lanes     map[string]string        // lane → attempt of its row or open attempt, or "" while it is being accepted
	groups    map[string]*group        // by what they count against
	attempts  map[string]*open         // granted and not ended
	awaited   map[string]map[*row]int  // lane → rows that come after it
	ordered   orders                   // what holds/ said last
	offers    int                      // rows in state starting, and leases in hand
	again     bool                     // consider before the next ask is waited for
	words     map[string]string        // that many rows have
	reasons   map[[2]string]string     // class and code, put together
	stirred   bool                     // rows came or went since the last tick
	calm      int                      // ticks since then
	leaving   *leaving                 // being handed over or stopped: nothing new is begun
	hastened  bool                     // regain will look again soon
	strays    []string                 // files of entries without a row, whose lanes somebody had
	accepting map[string]chan struct{} // attempts whose acceptance is under way
	acts      int                      // requests under way that change rows
	named     map[string]bool          // sockets that have their name in the home itself

	gift   *gift                        // what the dispatcher before us handed over; nil = nothing
	heir   atomic.Pointer[handoff.Conn] // to whom everything was handed over; nil = nobody
	pruned time.Time

	view     *view
	drawn    chan struct{} // closed when the view's goroutine has ended
	drawQuit chan struct{}
	lanesDir *flock.Dir // open directory of lanes
	epoch    int64      // wall clock at this boot's beginning as the rows have it, in ms
}

// Open takes the home: the dispatcher's lock first, then the database, then
// what the last one left (L19). Nobody is listened to yet. *Running when
// somebody has the lock; nothing was touched then.
func Open(ctx context.Context, cfg Config) (*Dispatcher, error) {
	d := begin(cfg)
	if err := d.cfg.Home.Ensure(); err != nil {
		return nil, err
	}
	if err := d.takeLock(); err != nil {
		return nil, err
	}
	failpoint.Hit("dispatch.locked")
	if err := d.open(ctx); err != nil {
		d.letGo()
		return nil, err
	}
	return d, nil
}

func begin(cfg Config) *Dispatcher {
	d := &Dispatcher{
		cfg: cfg.complete(), started: time.Now(), asks: make(chan func()), gone: make(chan struct{}),
		rows: map[string]*row{}, lanes: map[string]string{}, groups: map[string]*group{},
		attempts: map[string]*open{}, awaited: map[string]map[*row]int{}, accepting: map[string]chan struct{}{}, named: map[string]bool{},
		meters: newMeters(cfg.Home), view: newView(), drawn: make(chan struct{}), drawQuit: make(chan struct{}),
	}
	d.life, d.stop = context.WithCancel(context.Background())
	return d
}

// open reads what there is and recovers it.
func (d *Dispatcher) open(ctx context.Context) (err error) {
	d.fds = newBudget()
	if d.db, err = queue.Open(ctx, d.cfg.Home.Path+"/"+Database); err != nil {
		return err
	}
	failpoint.Hit("dispatch.opened")
	if d.beat, err = startBeat(d.cfg.Home, d.cfg.Version, d.started); err != nil {
		return err
	}
	if d.view.open, err = attempt.OpenView(d.cfg.Home); err != nil {
		close(d.drawn)
		return err
	}
	go func() {
		defer close(d.drawn)
		d.draw(d.drawQuit)
	}()
	return d.recover(ctx)
}

func (d *Dispatcher) takeLock() error {
	dir, err := flock.OpenDir(d.cfg.Home.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	for range lookTries { // whoever looks whether we run has the lock for a moment
		if d.lock, err = flock.Take(dir, LockName, flock.Pass); !errors.Is(err, flock.ErrHeld) {
			return err
		}
		time.Sleep(lookNap)
	}
	return &Running{Pid: beatPid(d.cfg.Home)}
}

// letGo gives back what open took. Lanes are closed, never released: their
// records say what waits.
func (d *Dispatcher) letGo() {
	d.stop()
	if d.beat != nil {
		close(d.drawQuit)
		<-d.drawn
		if d.view.open != nil {
			d.view.open.Close()
		}
	}
	for _, r := range d.rows {
		if r.hold != nil {
			r.hold.Keep()
		}
	}
	if d.beat != nil {
		d.beat.end()
	}
	if d.db != nil {
		if err := d.db.Close(); err != nil {
			d.cfg.Log.Error("close the database", "error", err)
		}
	}
	if d.lanesDir != nil {
		d.lanesDir.Close()
	}
	if d.lock != nil {
		d.lock.Close()
	}
	if heir := d.heir.Load(); heir != nil {
		heir.Close()
	}
}

// do has f done by the loop and waits for it. It is false when the loop has
// ended, and f was not done.
func (d *Dispatcher) do(f func()) bool {
	done := make(chan struct{})
	select {
	case d.asks <- func() { f(); close(done) }:
		<-done
		return true
	case <-d.gone:
		return false
	}
}

// post has f done by the loop, from a goroutine of ours.
func (d *Dispatcher) post(f func()) {
	select {
	case d.asks <- f:
	case <-d.gone:
	}
}

// aside runs f beside the loop; the dispatcher does not end before it.
func (d *Dispatcher) aside(f func()) {
	d.work.Add(1)
	go func() {
		defer d.work.Done()
		f()
	}()
}

// asideBy runs f beside the loop and hands what it returns to the loop.
func (d *Dispatcher) asideBy(f func() func()) {
	d.aside(func() {
		if then := f(); then != nil {
			d.post(then)
		}
	})
}

// loop is the goroutine that the state belongs to.
func (d *Dispatcher) loop() {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for d.leaving == nil || !d.leaving.done() {
		if d.again {
			d.again = false
			d.consider()
		}
		select {
		case ask := <-d.asks:
			ask()
		case <-tick.C:
			d.look()
			d.rest()
		}
	}
	close(d.gone)
}

// poll is how often what raises no event is looked at: orders whose time has
// come, rows without a descriptor.
const poll = 2 * time.Second

// pid is ours.
func (d *Dispatcher) pid() int { return os.Getpid() }

// closeLane gives a lane back that nobody owns any more: its record is cleared.
func (d *Dispatcher) closeLane(h *lane.Hold) {
	if h == nil {
		return
	}
	if err := h.Release(); err != nil {
		d.cfg.Log.Warn("release a lane", "lane", h.Record().Lane, "error", err)
	}
	d.fds.give(1)
}
