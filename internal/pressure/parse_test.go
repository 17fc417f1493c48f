package pressure

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestAvailable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"MemTotal:  8 kB\nMemFree: 1 kB\nMemAvailable:   24020672 kB\nBuffers: 3 kB\n": 24020672 << 10,
		"MemAvailable: 0 kB":                   0,
		"":                                     -1,
		"MemFree: 5 kB\n":                      -1,
		"MemAvailable: nan kB\n":               -1,
		"MemAvailable: -5 kB\n":                -1,
		"MemAvailable: 5\n":                    -1,
		"MemAvailable: 5 MB\n":                 -1,
		"MemAvailable: 9223372036854775807 kB": -1,
		"MemAvailable:":                        -1,
	} {
		n, err := available([]byte(text))
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

func TestStalls(t *testing.T) {
	t.Parallel()
	const good = "some avg10=25.98 avg60=15.58 avg300=31.54 total=481191702\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=0\n"
	some, full, err := stalls([]byte(good))
	if some != 25.98 || full != 0.25 || err != nil {
		t.Error(some, full, err)
	}
	if some, full, err := stalls([]byte("some avg10=1.00 avg60=2\n")); some != 1 || full != 0 || err != nil {
		t.Error("without a line for all tasks: ", some, full, err)
	}
	for _, text := range []string{"", "full avg10=1.00 x", "some avg10=nan avg60=0", "some avg10=-1 avg60=0", "some avg10=inf x", "some avg60=1.00", "some avg10=1e1 x", "some avg10=100.01 x", "some avg10= x"} {
		if some, _, err := stalls([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, some)
		}
	}
}

func TestLoadAndProcessors(t *testing.T) {
	t.Parallel()
	if n, err := loadavg([]byte("2.70 5.59 3.97 19/576 15951\n")); n != 2.7 || err != nil {
		t.Error(n, err)
	}
	for _, text := range []string{"", "nan 0 0 1/1 1", "-1 0 0", "1,5 0 0", "1.5"} {
		if n, err := loadavg([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, n)
		}
	}
	for text, want := range map[string]int{"0": 1, "0-1\n": 2, "0-3,8,10-11\n": 7, "": -1, "a": -1, "3-1": -1, "0-": -1, "0-99999999": -1, "-1": -1} {
		n, err := online([]byte(text))
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

func TestOwnGroups(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"0::/user.slice/a.scope\n":              {"/user.slice/a.scope", ""},
		"5:devices:/\n4:memory:/api/1e\n0::/\n": {"/", "/api/1e"},
		"4:cpu,memory:/x\n":                     {"", "/x"},
		"0::/../../outside\n":                   {"/outside", ""},
		"0::/a:b\n":                             {"/a:b", ""},
		"":                                      {"", ""},
		"nonsense\n1:name=systemd:/y\n0:relative:x\n": {"", ""},
	} {
		unified, memory := own([]byte(text))
		if got := [2]string{unified, memory}; got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := upward("/a/b"); !slices.Equal(got, []string{"/a/b", "/a", "/"}) {
		t.Error(got)
	}
}

func TestLimitOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"max\n": -1, "9223372036854771712\n": -1, "18446744073709551615": -1, "1073741824\n": 1 << 30, "0\n": 0} {
		n, ok, err := limitOf([]byte(text))
		if !ok {
			n = -1
		}
		if n != want || err != nil {
			t.Errorf("%q: %d %v %v", text, n, ok, err)
		}
	}
	for _, text := range []string{"", "nan", "-1", "1.5", "1 GiB"} {
		if n, ok, err := limitOf([]byte(text)); err == nil {
			t.Errorf("%q: %d %v", text, n, ok)
		}
	}
}

// File pages and slab count as free, what must be written first does not.
func TestReclaimable(t *testing.T) {
	t.Parallel()
	const stat = "anon 500\nfile 100\nshmem 40\ninactive_file 60\nactive_file 30\nslab_reclaimable 7\nslab_unreclaimable 9\nfile_dirty 5\nfile_writeback 2\n"
	if n, err := reclaimable([]byte(stat), ""); n != 90 || err != nil {
		t.Error(n, err)
	}
	const old = "inactive_file 1\nactive_file 1\ntotal_dirty 16\ntotal_inactive_file 100\ntotal_active_file 50\n"
	if n, err := reclaimable([]byte(old), "total_"); n != 134 || err != nil {
		t.Error(n, err)
	}
	for _, text := range []string{"", "anon 5\n", "inactive_file nan\n", "inactive_file -4\n", "inactive_file 9223372036854775807\n"} {
		if n, err := reclaimable([]byte(text), ""); err == nil {
			t.Errorf("%q: %d", text, n)
		}
	}
}

// FuzzSources feeds every reader: none panics, and none gives what is no amount.
func FuzzSources(f *testing.F) {
	for _, seed := range []string{
		"MemAvailable:   24020672 kB\n", "some avg10=25.98 avg60=1 x\nfull avg10=0.00\n", "2.70 5.59 3.97 19/576 15951\n", "0-3,8\n",
		"0::/a/b\n4:memory:/../x\n", "max\n", "9223372036854771712\n", "inactive_file 60\nactive_file 30\nfile_dirty 5\n",
		"nan", "inf", "", "\x00", "some avg10=nan", "MemAvailable: nan kB", "-1",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if n, err := available(text); err == nil && n < 0 {
			t.Errorf("available %d", n)
		}
		if some, full, err := stalls(text); err == nil && !(some >= 0 && some <= 100 && full >= 0 && full <= 100) {
			t.Errorf("stalls %v %v", some, full)
		}
		if n, err := loadavg(text); err == nil && (math.IsNaN(n) || math.IsInf(n, 0) || n < 0) {
			t.Errorf("load %v", n)
		}
		if n, err := online(text); err == nil && (n < 1 || n > maxCPUs) {
			t.Errorf("%d processors", n)
		}
		if n, ok, err := limitOf(text); err == nil && ok && (n < 0 || n >= unlimited) {
			t.Errorf("limit %d", n)
		}
		for _, prefix := range []string{"", "total_"} {
			if n, err := reclaimable(text, prefix); err == nil && n < 0 {
				t.Errorf("reclaimable %d", n)
			}
		}
		unified, memory := own(text)
		for _, group := range []string{unified, memory} {
			if group == "" {
				continue
			}
			all := upward(group)
			if group[0] != '/' || all[len(all)-1] != "/" || slices.ContainsFunc(all, func(g string) bool { return slices.Contains(strings.Split(g, "/"), "..") }) {
				t.Errorf("group %q goes up by %q", group, all)
			}
		}
	})
}
