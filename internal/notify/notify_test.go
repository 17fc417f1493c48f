package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/record"
)

func TestEndsHaveTheirKinds(t *testing.T) {
	zero, one := 0, 1
	for _, tt := range []struct {
		end  End
		want []string
	}{
		{End{Outcome: record.Lost}, []string{"lost"}},
		{End{Outcome: record.NotStarted, Reason: &record.Reason{Code: "displaced"}}, []string{"displaced"}},
		{End{Outcome: record.Cancelled}, []string{"cancelled"}},
		{End{Outcome: record.Exited, ExitCode: &zero}, []string{"succeeded"}},
		{End{Outcome: record.Exited, ExitCode: &zero, Result: record.Failed, Kind: "limit"}, []string{"limit", "failed"}},
		{End{Outcome: record.Exited, ExitCode: &one, Result: record.Failed, Kind: "login"}, []string{"login", "failed"}},
		{End{Outcome: record.Exited, ExitCode: &one, Result: record.Succeeded}, []string{"succeeded"}},
		{End{Outcome: record.Exited, ExitCode: &one}, []string{"failed"}},
		{End{Outcome: record.TimedOut}, []string{"failed"}},
		{End{Outcome: record.NotStarted}, []string{"failed"}},
	} {
		if got := tt.end.Kinds(); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.end, got, tt.want)
		}
		for _, kind := range tt.end.Kinds() {
			if !slices.Contains(config.NotifyKinds, kind) {
				t.Errorf("%q can be asked for by nobody", kind)
			}
		}
	}
}

func TestEachCommandIsToldOnceAndWhatItAskedFor(t *testing.T) {
	rules := []config.Notify{
		{On: []string{"failed", "limit"}, Command: []string{"a"}}, {On: []string{"failed"}, Command: []string{"b"}}, {On: []string{"lost"}, Command: []string{"c"}},
	}
	var got []string
	for _, one := range Chosen(rules, Change{Kinds: []string{"limit", "failed"}, Lane: "x", State: "ended", Home: "/h"}) {
		var c Change
		if err := json.Unmarshal(one.Text(), &c); err != nil {
			t.Fatal(err)
		}
		got = append(got, one.Rule.Command[0]+" "+c.Kind)
	}
	if want := []string{"a limit", "b failed"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func teller(run func(context.Context, Telling) error) (*Teller, *[]string) {
	var mu sync.Mutex
	said := &[]string{}
	return &Teller{
		Rules: func() []config.Notify {
			return []config.Notify{{On: []string{"failed"}, Command: []string{"tell"}, From: "file"}}
		},
		Run: run,
		Said: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			*said = append(*said, text)
		},
	}, said
}

var failed = Change{Kinds: []string{"failed"}}

func TestTellingBlocksNobodyAndAFewRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, ran atomic.Int32
		tl, said := teller(func(context.Context, Telling) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			ran.Add(1)
			return nil
		})
		start := time.Now()
		const many = AtOnce + waiting + 50
		for range many {
			tl.Tell(failed)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("telling took %v", d)
		}
		time.Sleep(time.Duration(many) * time.Second)
		if most.Load() != AtOnce || ran.Load() < waiting || ran.Load() >= many {
			t.Errorf("%d at once, %d of %d ran", most.Load(), ran.Load(), many)
		}
		if want := []string{fmt.Sprintf("more than %d changes wait to be told: the next are not", waiting)}; !slices.Equal(*said, want) {
			t.Errorf("said %q", *said)
		}
		tl.Tell(Change{Kinds: []string{"succeeded"}}) // nobody asked
		tl.Close(time.Second)
		tl.Tell(failed)
		synctest.Wait()
		if n := ran.Load(); n >= many {
			t.Errorf("%d ran", n)
		}
	})
}

func TestAFailingCommandIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		tl, said := teller(func(context.Context, Telling) error { return err })
		for _, err = range []error{errors.New("no"), errors.New("no"), nil, nil, errors.New("again")} {
			tl.Tell(failed)
			synctest.Wait()
		}
		if want := []string{"a command of [[notify]] fails (file): no", "a command of [[notify]] fails (file): again"}; !slices.Equal(*said, want) {
			t.Errorf("said %q, want %q", *said, want)
		}
		tl.Close(0)
	})
}

func TestCloseEndsWhatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl, said := teller(func(ctx context.Context, _ Telling) error {
			<-ctx.Done()
			return ctx.Err()
		})
		for range AtOnce + 3 {
			tl.Tell(failed)
		}
		start := time.Now()
		tl.Close(2 * time.Second)
		if d := time.Since(start); d != 2*time.Second || len(*said) > 0 {
			t.Errorf("closed after %v; said %q", d, *said)
		}
		tl.Close(time.Second) // again
	})
	(*Teller)(nil).Tell(failed)
	(*Teller)(nil).Close(0)
}
