package browsertest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Patience bounds every wait for something that must happen.
const Patience = 60 * time.Second

// Browser is one Chromium.
type Browser struct {
	driver  *exec.Cmd
	dir     string
	base    string // of the session
	root    string // of the driver
	pid     int    // of the browser
	client  *http.Client
	drained sync.WaitGroup

	// Asked are the addresses that the page asked for, so far as Logs was called.
	Asked []string
	// Said are the page's console messages, what a policy refused included.
	Said []string
}

var started = regexp.MustCompile(`started successfully on port (\d+)`)

// Start starts one. Everything it writes is in a new directory, whose name is
// short: the browser makes a socket in it, and a socket's path has 107 bytes.
func Start() (*Browser, error) {
	home, err := os.MkdirTemp("", "c-")
	if err != nil {
		return nil, err
	}
	b := &Browser{dir: home, client: &http.Client{Timeout: Patience}}
	b.driver = exec.Command("chromedriver", "--port=0", "--log-level=SEVERE")
	b.driver.Env = append(without(os.Environ(), "HOME", "XDG_", "TMPDIR"), "HOME="+home, "TMPDIR="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_RUNTIME_DIR="+home)
	out, err := b.driver.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.driver.Start(); err != nil {
		return nil, fmt.Errorf("start chromedriver: %w", err)
	}
	port := make(chan string, 1)
	b.drained.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if m := started.FindStringSubmatch(lines.Text()); m != nil {
				port <- m[1]
			}
		}
		close(port)
	})
	n, ok := <-port
	if !ok {
		return nil, errors.Join(errors.New("chromedriver ended at once"), b.Close())
	}
	b.root = "http://127.0.0.1:" + n
	if err := b.session(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// without leaves variables out by their beginnings.
func without(env []string, names ...string) (kept []string) {
next:
	for _, v := range env {
		for _, n := range names {
			if strings.HasPrefix(v, n) {
				continue next
			}
		}
		kept = append(kept, v)
	}
	return kept
}

func (b *Browser) session() error {
	bin, err := exec.LookPath("chromium")
	if err != nil {
		return err
	}
	args := []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--disable-dev-shm-usage", "--disable-crash-reporter", "--disable-breakpad", "--no-default-browser-check", "--force-color-profile=srgb", "--lang=en-US",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost", "--user-data-dir=" + filepath.Join(b.dir, "profile"),
	}
	want := map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"goog:chromeOptions": map[string]any{"binary": bin, "args": args},
		"goog:loggingPrefs":  map[string]string{"browser": "ALL", "performance": "ALL"},
	}}}
	var got struct {
		SessionID    string `json:"sessionId"`
		Capabilities struct {
			Pid int `json:"goog:processID"`
		} `json:"capabilities"`
	}
	if err := b.call(http.MethodPost, b.root+"/session", want, &got); err != nil {
		return fmt.Errorf("start chromium: %w", err)
	}
	b.base, b.pid = b.root+"/session/"+got.SessionID, got.Capabilities.Pid
	return nil
}

// Close ends the browser and its driver, and returns when both are gone.
func (b *Browser) Close() error {
	if b.base != "" {
		_ = b.call(http.MethodDelete, b.base, nil, nil) // what it does not do, the signals below do
	}
	for until := time.Now().Add(5 * time.Second); b.pid != 0 && alive(b.pid); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			_ = syscall.Kill(b.pid, syscall.SIGKILL)
		}
	}
	_ = b.driver.Process.Signal(syscall.SIGTERM)
	b.drained.Wait()
	_ = b.driver.Wait()
	return os.RemoveAll(b.dir)
}

// alive tells of a process that has not ended.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(text, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z'
}

// call is one command of the protocol.
func (b *Browser) call(method, url string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if body == nil && method == http.MethodPost {
		text = []byte("{}")
	}
	req, err := http.NewRequest(method, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := b.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	said, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(said, &answer); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if res.StatusCode != http.StatusOK {
		var no struct{ Error, Message string }
		_ = json.Unmarshal(answer.Value, &no)
		return fmt.Errorf("%s: %s", no.Error, no.Message)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer.Value, into)
}

// Open opens an address and returns when it is loaded.
func (b *Browser) Open(url string) error {
	return b.call(http.MethodPost, b.base+"/url", map[string]string{"url": url}, nil)
}

// Eval runs the body of a function in the page, with its arguments in arguments.
func (b *Browser) Eval(into any, script string, args ...any) error {
	if args == nil {
		args = []any{}
	}
	return b.call(http.MethodPost, b.base+"/execute/sync", map[string]any{"script": script, "args": args}, into)
}

// Until waits for a body of a function to return what is true. What it returned
// last is told when it never does.
func (b *Browser) Until(what, script string, args ...any) error {
	var last any
	for until := time.Now().Add(Patience); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if err := b.Eval(&last, script, args...); err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if yes, ok := last.(bool); ok && yes {
			return nil
		}
	}
	var text string
	_ = b.Eval(&text, "return document.body.innerText.slice(0, 4000)")
	return fmt.Errorf("%s did not come; the page says:\n%s", what, text)
}

// Click clicks what a CSS selector finds, as a pointer does: it must be seen.
func (b *Browser) Click(css string) error {
	var el map[string]string
	if err := b.call(http.MethodPost, b.base+"/element", map[string]string{"using": "css selector", "value": css}, &el); err != nil {
		return fmt.Errorf("find %s: %w", css, err)
	}
	for _, id := range el {
		if err := b.call(http.MethodPost, b.base+"/element/"+id+"/click", nil, nil); err != nil {
			return fmt.Errorf("click %s: %w", css, err)
		}
	}
	return nil
}

// The keys of the protocol that are used here.
const (
	Tab, Enter, Escape, Space  = "\ue004", "\ue007", "\ue00c", " "
	Down, Up, End, HomeKey     = "\ue015", "\ue013", "\ue010", "\ue011"
	PageDown, Shift, Backspace = "\ue00f", "\ue008", "\ue003"
)

// Keys presses one key after the other, wherever the focus is.
func (b *Browser) Keys(keys string) error {
	var steps []map[string]string
	for _, k := range keys {
		steps = append(steps, map[string]string{"type": "keyDown", "value": string(k)}, map[string]string{"type": "keyUp", "value": string(k)})
	}
	return b.call(http.MethodPost, b.base+"/actions", map[string]any{"actions": []any{map[string]any{"type": "key", "id": "keys", "actions": steps}}}, nil)
}

// CDP calls a method of Chromium's own protocol.
func (b *Browser) CDP(into any, method string, params map[string]any) error {
	if params == nil {
		params = map[string]any{}
	}
	return b.call(http.MethodPost, b.base+"/goog/cdp/execute", map[string]any{"cmd": method, "params": params}, into)
}

// Size makes the page so many CSS pixels large.
func (b *Browser) Size(width, height int) error {
	return b.CDP(nil, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// Prefers sets media features, by name and value in turn.
func (b *Browser) Prefers(pairs ...string) error {
	var all []map[string]string
	for i := 0; i+1 < len(pairs); i += 2 {
		all = append(all, map[string]string{"name": pairs[i], "value": pairs[i+1]})
	}
	return b.CDP(nil, "Emulation.setEmulatedMedia", map[string]any{"features": all})
}

// Picture is what can be seen, as PNG.
func (b *Browser) Picture() ([]byte, error) {
	var got struct{ Data string }
	if err := b.CDP(&got, "Page.captureScreenshot", map[string]any{"format": "png"}); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(got.Data)
}

// Logs takes in what was logged since the last call.
func (b *Browser) Logs() error {
	var entries []struct{ Message, Level string }
	if err := b.call(http.MethodPost, b.base+"/se/log", map[string]string{"type": "browser"}, &entries); err != nil {
		return err
	}
	for _, e := range entries {
		b.Said = append(b.Said, e.Level+" "+e.Message)
	}
	if err := b.call(http.MethodPost, b.base+"/se/log", map[string]string{"type": "performance"}, &entries); err != nil {
		return err
	}
	for _, e := range entries {
		var m struct {
			Message struct {
				Method string
				Params struct{ Request struct{ URL string } }
			}
		}
		if err := json.Unmarshal([]byte(e.Message), &m); err != nil {
			return err
		}
		if m.Message.Method == "Network.requestWillBeSent" {
			b.Asked = append(b.Asked, m.Message.Params.Request.URL)
		}
	}
	return nil
}
