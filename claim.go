package handsel

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
)

// ClaimOptions say what Claim presents to the dispatcher. The zero value
// presents the offer that this process was started for.
type ClaimOptions struct {
	// Attempt and Token are the offer, the token in hex. When both are empty
	// they are read from the descriptor that HANDSEL_TOKEN_FD names, which is
	// closed, and the variable dropped.
	Attempt, Token string

	// Beginning is told right before the start is decided. Until then nothing
	// is lost when this process dies; from then on whoever dies leaves a run
	// behind that began, so a program takes its signals into its own hands here.
	Beginning func()
}

// ErrWithdrawn reports that the dispatcher took its offer back before the claim
// had begun. Nothing was started, and somebody else may be starting it by now.
var ErrWithdrawn error = coded{"withdrawn", "the offer was withdrawn before it was begun"}

// coded is a sentinel of who owns what, with its reason code.
type coded struct{ code, text string }

func (e coded) Error() string { return e.text }

// Reason is the refusal in the words of C13.
func (e coded) Reason() *Reason {
	return &Reason{Class: "ownership", Code: e.code, Message: e.text}
}

// ClaimRefused reports that the dispatcher granted nothing. Nothing was
// started, and the same token will not be taken later.
type ClaimRefused struct{ Code, Message string }

func (e *ClaimRefused) Error() string { return e.Message }

// Reason is the refusal in the words of C13.
func (e *ClaimRefused) Reason() *Reason {
	return &Reason{Class: "ownership", Code: e.Code, Message: e.Message}
}

// NotProven reports that what the dispatcher sent does not prove that the lane
// and its slots are ours. Everything was closed, and nothing was started.
type NotProven struct {
	Lane string
	Err  error
}

func (e *NotProven) Error() string {
	return fmt.Sprintf("what came for lane %s does not make it ours: %v", strconv.QuoteToASCII(e.Lane), e.Err)
}

func (e *NotProven) Unwrap() error { return e.Err }

// Reason is the refusal in the words of C13.
func (e *NotProven) Reason() *Reason {
	return &Reason{Class: "ownership", Code: "not_proven", Message: e.Error()}
}

// BadOffer reports that there is no offer where one was to be read.
type BadOffer struct{ Why string }

func (e *BadOffer) Error() string { return tokenVar + ": " + e.Why }

// Reason is the refusal in the words of C13.
func (e *BadOffer) Reason() *Reason {
	return &Reason{Class: "config", Code: "bad_offer", Message: e.Error()}
}

// Claimed is a lane that is ours, with the slots to run in it. The dispatcher
// is needed for nothing any more. Exactly one of Run and Abandon ends it.
type Claimed struct {
	home     *Home
	row      attempt.Row
	start    int
	fence    uint64
	at       time.Time // of the grant: limits count from here (L22)
	claimed  time.Time // the same for the record
	settings *inForce
	payload  *attempt.Payload

	hold  *lane.Hold
	lease *Lease
}

// Lane is the lane's name.
func (c *Claimed) Lane() string { return c.row.Lane }

// Attempt is the attempt's id, which is its run's id too.
func (c *Claimed) Attempt() string { return c.row.ID }

// Fence is the number of this grant of the lane: greater than that of any
// earlier owner, for whoever must tell a late one from the present one.
func (c *Claimed) Fence() uint64 { return c.fence }

// ackPatience bounds how long the dispatcher's ear is waited for, where what it
// would hear decides nothing any more.
const ackPatience = 2 * time.Second

// Claim asks the dispatcher for the attempt that it offered to this process and
// makes it ours (L14). The order is the promise: what was received is proven,
// then lane and slots name us, then the start is decided by a file that either
// we or the dispatcher can create, and only then is the dispatcher told. Unless
// the error is nil nothing was begun, and nothing that came is held any more.
func (h *Home) Claim(ctx context.Context, o ClaimOptions) (*Claimed, error) {
	at, err := o.offer()
	if err != nil {
		return nil, err
	}
	failpoint.Hit("claim.token")
	conn, err := handoff.Dial(ctx, h.dir)
	if errors.As(err, new(*home.Nobody)) {
		err = &NoDispatcher{Home: h.dir.Path}
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	failpoint.Hit("claim.connected")
	g, err := at.ask(ctx, conn)
	if err != nil {
		return nil, err
	}
	c := &Claimed{home: h, row: g.Row, start: g.Start, fence: g.Fence, at: time.Now(), claimed: machine.Now()}
	err = c.begin(g, o.Beginning)
	c.answer(ctx, conn, err == nil)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("claim.acked")
	return c, nil
}

// answer tells the dispatcher whether the start was begun. One that cannot be
// told finds it out by what is on disk: that stops nothing (L14).
func (c *Claimed) answer(ctx context.Context, conn *handoff.Conn, begun bool) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), ackPatience)
	defer stop()
	_ = conn.Send(ctx, handoff.Ack{Attempt: c.row.ID, Start: c.start, Begun: begun})
}

// offer is what a driver was started with.
type offer struct{ attempt, token string }

// tokenVar names the descriptor that an offer is read from (C9).
const tokenVar = "HANDSEL_TOKEN_FD"

func (o ClaimOptions) offer() (offer, error) {
	if o.Attempt != "" || o.Token != "" {
		return offer{o.Attempt, o.Token}.check()
	}
	text := os.Getenv(tokenVar)
	_ = os.Unsetenv(tokenVar) // it is nobody else's
	if text == "" {
		return offer{}, &BadOffer{"it is not set; claim is for a driver that the dispatcher has started"}
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return offer{}, &BadOffer{strconv.QuoteToASCII(text) + " is no descriptor from 3 up"}
	}
	said, err := readOffer(fd)
	if err != nil {
		return offer{}, &BadOffer{fmt.Sprintf("descriptor %d: %v", fd, err)}
	}
	id, rest, _ := strings.Cut(said, "\n")
	token, _, _ := strings.Cut(rest, "\n")
	return offer{id, token}.check()
}

// maxOffer bounds an offer in bytes; one of ours has some 100.
const maxOffer = 1 << 10

// check tells whether it has the shape of an offer. What stands there is never
// repeated: it may be a token.
func (o offer) check() (offer, error) {
	if _, err := hex.DecodeString(o.token); err != nil || o.token == "" || o.attempt == "" || len(o.attempt)+len(o.token) > maxOffer {
		return offer{}, &BadOffer{"what is there is no offer"}
	}
	return o, nil
}

// grant is the dispatcher's yes, with the descriptors it came with.
type grant struct {
	handoff.Granted
	fds []int
}

// ask presents the offer. On an error nothing that came is held any more.
func (o offer) ask(ctx context.Context, conn *handoff.Conn) (*grant, error) {
	sent := conn.Send(ctx, handoff.Claim{Attempt: o.attempt, Token: o.token})
	failpoint.Hit("claim.sent")
	if sent != nil { // a refusal may have come before the claim was read
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, ackPatience)
		defer stop()
	}
	f, err := conn.Receive(ctx)
	if err != nil {
		return nil, fmt.Errorf("claim %s: no answer came, so nothing is started: %w", o.attempt, errors.Join(sent, err))
	}
	failpoint.Hit("claim.received")
	g := &grant{}
	if err = f.Decode(&g.Granted); err == nil {
		err = o.granted(f, g)
	}
	if err != nil {
		f.CloseFds()
		return nil, fmt.Errorf("claim %s: %w", o.attempt, err)
	}
	g.fds = f.Take()
	return g, nil
}

// granted tells whether an answer is a yes to this offer.
func (o offer) granted(f *handoff.Frame, g *grant) error {
	switch {
	case !g.OK:
		return &ClaimRefused{Code: g.Code, Message: g.Message}
	case f.Type != g.Type() || g.Row.ID != o.attempt || g.Start < 1:
		return errors.New("the answer is none to this claim, so nothing is started")
	}
	return nil
}

// begin makes the attempt ours. On an error nothing that came is held any more,
// and what lane and slots say is left to the dispatcher, which still has them.
func (c *Claimed) begin(g *grant, beginning func()) error {
	if err := c.prove(g); errors.Is(err, ErrWithdrawn) {
		return err
	} else if err != nil {
		return &NotProven{Lane: c.row.Lane, Err: err}
	}
	failpoint.Hit("claim.proved")
	err := c.record()
	if err == nil {
		failpoint.Hit("claim.recorded")
		err = c.decide(beginning)
	}
	if err != nil {
		c.letGo()
		return err
	}
	failpoint.Hit("claim.begun")
	return nil
}

// record writes into the lane that it is ours. The slots say so since they were
// proven.
func (c *Claimed) record() (err error) {
	if c.payload, err = attempt.Read(c.home.dir, c.row.ID); err != nil {
		return err
	}
	rec := lane.Mine(lane.RoleDriver)
	rec.Attempt, rec.Run, rec.Fence, rec.Argv0 = c.row.ID, c.row.ID, c.fence, c.row.Argv0
	return c.hold.SetOwner(rec)
}

// open tells whether nobody has decided the start yet. It is asked before
// anything is written: a driver that was frozen meanwhile must not write over
// what its successor has written (C030).
func (c *Claimed) open() error {
	if _, err := attempt.ReadBegun(c.home.dir, c.row.ID, c.start); err == nil {
		return ErrWithdrawn
	}
	return nil
}

// decide creates the file that decides the start, if nobody has.
func (c *Claimed) decide(beginning func()) error {
	if beginning != nil {
		beginning()
	}
	me := proc.Self()
	ours := attempt.Begun{What: attempt.Began, Pid: me.Pid, Ticks: me.Ticks, BootID: me.Boot, At: attempt.At(machine.Now())}
	err := attempt.Begin(c.home.dir, c.row.ID, c.start, ours)
	if err == nil || errors.Is(err, attempt.ErrTaken) {
		return withdrawn(err)
	}
	// It may have come to be all the same.
	if by, rerr := attempt.ReadBegun(c.home.dir, c.row.ID, c.start); rerr == nil {
		if by.What == ours.What && by.Pid == ours.Pid && by.Ticks == ours.Ticks && by.BootID == ours.BootID {
			return nil
		}
		return withdrawn(err)
	}
	return err
}

func withdrawn(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w (%w)", ErrWithdrawn, err)
}
