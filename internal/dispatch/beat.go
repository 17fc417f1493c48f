//go:build unix

package dispatch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// beatEvery is how often the heartbeat is renewed. One file stands for all
// rows: touching it costs 2 µs, whatever waits (G10).
const beatEvery = 5 * time.Second

// beat writes who the dispatcher is, and touches that file as its heartbeat.
type beat struct {
	path string
	quit chan struct{}
	once sync.Once
	done sync.WaitGroup
}

func startBeat(d home.Dir, version string, started time.Time) (*beat, error) {
	me := proc.Self()
	data, err := json.Marshal(api.Dispatcher{
		V: api.Version, Pid: me.Pid, Ticks: me.Ticks, BootID: me.Boot, Started: record.At(started), Version: version, Mode: "dispatcher",
	})
	if err != nil {
		return nil, err
	}
	b := &beat{path: filepath.Join(d.Path, api.SelfFile), quit: make(chan struct{})}
	if err := home.WriteFile(b.path, append(data, '\n')); err != nil {
		return nil, err
	}
	b.done.Add(1)
	go b.run()
	return b, nil
}

func (b *beat) run() {
	defer b.done.Done()
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			_ = os.Chtimes(b.path, now, now) // one missed beat is told by the next
		case <-b.quit:
			return
		}
	}
}

// end stops the heartbeat. The file stays: it says who was the last.
func (b *beat) end() {
	b.once.Do(func() { close(b.quit) })
	b.done.Wait()
}

func beatPid(d home.Dir) int {
	who, err := api.ReadDispatcher(d)
	if err != nil {
		return 0
	}
	return who.Pid
}
