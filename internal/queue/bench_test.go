package queue

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/attempt"
)

// floor is what a commit costs at least: one page written over, and flushed. It
// is measured beside whatever is compared with it, turn by turn.
type floor struct {
	f    *os.File
	n    int
	took []time.Duration
	ours []time.Duration
	used time.Duration // of processors, by ours
}

func newFloor(b *testing.B) *floor {
	f, err := os.Create(filepath.Join(b.TempDir(), "floor"))
	must(b, err)
	b.Cleanup(func() { f.Close() })
	_, err = f.Write(make([]byte, 64*pageSize))
	must(b, err)
	must(b, f.Sync())
	return &floor{f: f}
}

func (l *floor) beside(b *testing.B, f func()) {
	start := time.Now()
	_, err := l.f.WriteAt(make([]byte, pageSize), int64(l.n%64)*pageSize)
	must(b, err)
	must(b, flush(l.f))
	l.n++
	l.took = append(l.took, time.Since(start))
	used := processor()
	start = time.Now()
	f()
	l.ours = append(l.ours, time.Since(start))
	l.used += processor() - used
}

func (l *floor) report(b *testing.B) {
	slices.Sort(l.took)
	slices.Sort(l.ours)
	floor, ours := l.took[len(l.took)/2], l.ours[len(l.ours)/2]
	b.ReportMetric(float64(floor.Microseconds()), "p50-floor-µs")
	b.ReportMetric(float64(ours.Microseconds()), "p50-µs")
	b.ReportMetric(float64(l.ours[len(l.ours)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(ours)/float64(floor), "floors/op")
	b.ReportMetric(float64(l.used.Microseconds())/float64(len(l.ours)), "cpu-µs/op")
}

func BenchmarkAccept(b *testing.B) {
	db, l := open(b, filepath.Join(b.TempDir(), "q.db")), newFloor(b)
	for i := 0; b.Loop(); i++ {
		r := row(fmt.Sprintf("lane-%d-%d", i*7919%10007, i))
		l.beside(b, func() { must(b, db.Accept(ctx, r)) })
	}
	l.report(b)
}

// BenchmarkAccept64 is sixty-four clients that ask again as soon as they are
// answered; an op is one answer.
func BenchmarkAccept64(b *testing.B) {
	db, l := open(b, filepath.Join(b.TempDir(), "q.db")), newFloor(b)
	const clients = 64
	for i := 0; b.Loop(); i++ {
		l.beside(b, func() {
			var all sync.WaitGroup
			for n := range clients {
				all.Go(func() {
					for k := range 4 {
						if err := db.Accept(ctx, row(fmt.Sprintf("lane-%d-%d-%d", n*7919%10007, i, k))); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
		})
	}
	for i := range l.ours {
		l.ours[i] /= clients * 4
	}
	l.used /= clients * 4
	l.report(b)
}

func BenchmarkOfferAndGrant(b *testing.B) {
	db, l := open(b, filepath.Join(b.TempDir(), "q.db")), newFloor(b)
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		r := row(fmt.Sprintf("lane-%d", i))
		must(b, db.Accept(ctx, r))
		b.StartTimer()
		l.beside(b, func() {
			_, err := db.Offer(ctx, r.ID, token, time.Now())
			must(b, err)
			_, err = db.Grant(ctx, r.ID, token, Driver{Pid: 4711, Ticks: 88, BootID: "6b1c0d3e-8a44-4c59-9d0f-0d6a1f6f2b55"}, 0)
			must(b, err)
		})
	}
	l.report(b)
}

// BenchmarkOpenAndLoad10000Rows is the database's part of a restart.
func BenchmarkOpenAndLoad10000Rows(b *testing.B) {
	path := filepath.Join(b.TempDir(), "q.db")
	db := open(b, path)
	fillRows(b, db, 10_000)
	must(b, db.Close())
	var used time.Duration
	defer func() { b.ReportMetric(float64(used.Microseconds())/float64(b.N)/1000, "cpu-ms/op") }()
	for b.Loop() {
		start := processor()
		db, err := Open(ctx, path)
		must(b, err)
		n := 0
		must(b, db.Rows(func(*attempt.Row, []byte) error { n++; return nil }))
		if n != 10_000 {
			b.Fatalf("%d rows", n)
		}
		used += processor() - start
		b.StopTimer()
		must(b, db.Close())
		b.StartTimer()
	}
}

func BenchmarkLoad10000Rows(b *testing.B) {
	db := open(b, filepath.Join(b.TempDir(), "q.db"))
	fillRows(b, db, 10_000)
	used := processor()
	for b.Loop() {
		must(b, db.Rows(func(*attempt.Row, []byte) error { return nil }))
	}
	b.ReportMetric(float64((processor()-used).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
}
