package lease

import "context"

// Acquire runs what is not counted and refuses what is: Windows has no lock
// that could hold a cap.
func Acquire(_ context.Context, _ Places, want Want) (*Lease, error) {
	if want.Check != nil {
		a := want.Check()
		if a.Err != nil {
			return nil, a.Err
		}
		if a.stops() {
			return nil, &Refused{Waiting: Waiting{Class: a.Class, Code: a.Code, Message: a.Message, Until: a.Until, Deny: a.Deny}, Engine: want.Engine, Workload: want.Workload}
		}
	}
	pools, err := want.Pools()
	if err != nil {
		return nil, err
	}
	if len(pools) == 0 {
		return &Lease{}, nil
	}
	return nil, &Refused{
		Waiting: Waiting{Code: Unsupported, Message: "a cap is set, and Windows has no lock that could hold it"},
		Engine:  want.Engine, Workload: want.Workload,
	}
}

// Alone is always so: no slot can be held.
func Alone(Places, bool) (bool, error) { return true, nil }

// ParkedFor knows of nobody: nobody waits.
func ParkedFor(Places) ([]string, error) { return nil, nil }

// Prepare has nothing to make.
func Prepare(Places, []Pool) error { return nil }

type queue = *struct{}

func (l *Lease) advance([]string) {}
func (l *Lease) wake([]string)    {}

// Standing is nobody's: no line is kept here.
type Standing struct{}

// Stand finds no line to stand in.
func Stand(context.Context, Places, Want, string, string) (*Standing, error) { return nil, nil }

// Leave has nothing to take out.
func (s *Standing) Leave() {}
