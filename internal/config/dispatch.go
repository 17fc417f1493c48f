package config

import (
	"net/netip"
	"strconv"
)

// DispatchConf is [dispatch].
type DispatchConf struct {
	Driver   []string // command of the drivers; empty: our own
	Starting int      // offers that may be open at once; 0: the default
	Metrics  string   // the loopback address that /metrics is served on as well; empty: none
}

func fewOffers(v any) string {
	if n := v.(int); n < 1 || n > 64 {
		return "it must be a whole number from 1 to 64"
	}
	return ""
}

// loopback asks for an address that only this machine reaches: what is told there
// is told to every user of the machine (P12).
func loopback(v any) string {
	const not = `it must be a loopback address with a port, such as "127.0.0.1:9464": what others reach is for a server in front of it`
	at, err := netip.ParseAddrPort(v.(string))
	if err != nil || !at.Addr().IsLoopback() || at.Port() == 0 {
		return not
	}
	return ""
}

// showDispatch lists what is set of [dispatch] and [[notify]].
func (s *Settings) showDispatch(add func(string, any)) {
	for _, f := range []struct {
		key   string
		value any
	}{{"driver", s.Dispatch.Driver}, {"starting", s.Dispatch.Starting}, {"metrics", s.Dispatch.Metrics}} {
		if key := "dispatch." + f.key; s.from[key] != "" {
			add(key, f.value)
		}
	}
}

// showNotify lists the commands that are told of changes.
func (s *Settings) showNotify() (out []Shown) {
	for i, n := range s.Notify {
		value := "{on = " + tomlValue(n.On) + ", command = " + tomlValue(n.Command) + ", timeout = " + tomlValue(n.Timeout) + "}"
		out = append(out, Shown{"notify." + strconv.Itoa(i), value, n.From, true})
	}
	return out
}
