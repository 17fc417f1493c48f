package handoff

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/attempt"
)

// piece is what one sendmsg(2) put on the wire.
type piece struct {
	bytes string
	fds   []int
}

// wire is a socket as the kernel has it: descriptors come with the read that
// takes the first byte of their piece, and one read may take several pieces.
type wire struct {
	pieces []piece
	began  int // how often a frame began
	reads  int
}

func (w *wire) recv(p []byte) (n int, fds []int, err error) {
	w.reads++
	if len(p) == 0 {
		panic("a read of nothing")
	}
	for n < len(p) && len(w.pieces) > 0 && len(fds) == 0 {
		first := &w.pieces[0]
		if first.bytes == "" {
			w.pieces = w.pieces[1:]
			continue
		}
		fds = append(fds, first.fds...)
		first.fds = nil
		k := copy(p[n:], first.bytes)
		first.bytes = first.bytes[k:]
		n += k
	}
	if n == 0 {
		return 0, nil, io.EOF
	}
	return n, fds, nil
}

func (w *wire) reader(keep int) *reader {
	return &reader{recv: w.recv, begun: func() { w.began++ }, keep: keep}
}

// counted gives numbers for descriptors and notes which were closed.
func counted(t testing.TB) (closed *[]int) {
	closed = new([]int)
	old := closeFd
	closeFd = func(fd int) { *closed = append(*closed, fd) }
	t.Cleanup(func() { closeFd = old })
	return closed
}

// frameOf is a frame with this text in place of an object.
func frameOf(text string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) + text
}

const ping = `{"v":1,"type":"ping"}`

func TestWhatIsNoFrameIsRefusedWithWhatItBrought(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pieces []piece
		code   string
	}{
		{"no bytes after the first", []piece{{"\x00", []int{7}}}, CodeFrame},
		{"half a length", []piece{{"\x00\x00", []int{7}}}, CodeFrame},
		{"half a body", []piece{{frameOf(ping)[:12], []int{7}}}, CodeFrame},
		{"no length", []piece{{"\x00\x00\x00\x00", []int{7}}}, CodeFrame},
		{"a length of one", []piece{{"\x00\x00\x00\x01{", []int{7}}}, CodeFrame},
		{"a byte more than a megabyte", []piece{{"\x00\x10\x00\x01{", []int{7}}}, CodeFrame},
		{"four gigabytes", []piece{{"\xff\xff\xff\xff{", []int{7}}}, CodeFrame},
		{"text", []piece{{"GET / HTTP/1.1\r\n\r\n", []int{7}}}, CodeFrame},
		{"not JSON", []piece{{frameOf(`{"v":1,"type":"a"`), []int{7}}}, CodeFrame},
		{"more than one object", []piece{{frameOf(ping + ping), []int{7}}}, CodeFrame},
		{"an array", []piece{{frameOf(`[{"v":1,"type":"a"}]`), []int{7}}}, CodeFrame},
		{"null", []piece{{frameOf(`null`), []int{7}}}, CodeFrame},
		{"not UTF-8", []piece{{frameOf("{\"v\":1,\"type\":\"a\xff\"}"), []int{7}}}, CodeFrame},
		{"no version", []piece{{frameOf(`{"type":"a"}`), []int{7}}}, CodeFrame},
		{"a version of null", []piece{{frameOf(`{"v":null,"type":"a"}`), []int{7}}}, CodeFrame},
		{"a version that is text", []piece{{frameOf(`{"v":"1","type":"a"}`), []int{7}}}, CodeFrame},
		{"no type", []piece{{frameOf(`{"v":1}`), []int{7}}}, CodeFrame},
		{"an empty type", []piece{{frameOf(`{"v":1,"type":""}`), []int{7}}}, CodeFrame},
		{"a type that is a number", []piece{{frameOf(`{"v":1,"type":3}`), []int{7}}}, CodeFrame},
		{"descriptors on the second byte", []piece{{"\x00", []int{7}}, {frameOf(ping)[1:], []int{8}}}, CodeMisplaced},
		{"descriptors on the body", []piece{{frameOf(ping)[:4], []int{7}}, {ping, []int{8}}}, CodeMisplaced},
		{"descriptors on the last byte", []piece{{frameOf(ping)[:24], []int{7}}, {"}", []int{8}}}, CodeMisplaced},
	} {
		closed := counted(t)
		w := &wire{pieces: tt.pieces}
		f, err := w.reader(1).frame()
		broken, ok := errors.AsType[*Broken](err)
		if f != nil || !ok || broken.Code != tt.code {
			t.Errorf("%s: %v, %v; want code %s", tt.name, f, err, tt.code)
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than a line: %q", tt.name, err)
		}
		want := 1
		if tt.code == CodeMisplaced {
			want = 2
		}
		if len(*closed) != want {
			t.Errorf("%s: closed %v, want all %d", tt.name, *closed, want)
		}
	}
}

func TestEndBetweenFramesIsNoError(t *testing.T) {
	w := &wire{pieces: []piece{{frameOf(ping), nil}}}
	if f, err := w.reader(1).frame(); err != nil || f.Type != "ping" {
		t.Fatalf("%v, %v", f, err)
	}
	if _, err := w.reader(1).frame(); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after the last frame: %v", err)
	}
	if w.began != 1 {
		t.Errorf("%d frames began", w.began)
	}
}

// C068: whatever the pieces, a frame has the descriptors of its own first byte.
func TestDescriptorsStayWithTheirFrame(t *testing.T) {
	a, b := frameOf(`{"v":1,"type":"a"}`), frameOf(`{"v":1,"type":"b"}`)
	var bytewise []piece
	for i := range a {
		bytewise = append(bytewise, piece{bytes: a[i : i+1]})
	}
	bytewise[0].fds = []int{1}
	bytewise = append(bytewise, piece{b, []int{2}})
	for _, tt := range []struct {
		name   string
		pieces []piece
		a, b   []int
	}{
		{"each its own", []piece{{a, []int{1}}, {b, []int{2}}}, []int{1}, []int{2}},
		{"only the second", []piece{{a, nil}, {b, []int{2}}}, nil, []int{2}},
		{"only the first", []piece{{a, []int{1}}, {b, nil}}, []int{1}, nil},
		{"both in one piece", []piece{{a + b, []int{1}}}, []int{1}, nil},
		{"byte by byte", bytewise, []int{1}, []int{2}},
		{"split in the length", []piece{{a[:2], []int{1}}, {a[2:], nil}, {b[:3], []int{2}}, {b[3:], nil}}, []int{1}, []int{2}},
	} {
		closed := counted(t)
		w := &wire{pieces: tt.pieces}
		for i, want := range [][]int{tt.a, tt.b} {
			f, err := w.reader(1).frame()
			if err != nil || f.Type != string("ab"[i]) || !slices.Equal(f.Fds, want) || f.Came != len(want) {
				t.Fatalf("%s: frame %d: %+v, %v; want %v", tt.name, i, f, err, want)
			}
		}
		if len(*closed) != 0 {
			t.Errorf("%s: closed %v", tt.name, *closed)
		}
	}
	// A read that goes on beyond the first frame would bring the second one's.
	counted(t)
	w := &wire{pieces: []piece{{a + b[:5], nil}, {b[5:], []int{2}}}}
	if f, err := w.reader(1).frame(); err != nil || f.Came != 0 {
		t.Fatalf("the first: %+v, %v", f, err)
	}
	if _, err := w.reader(1).frame(); Complaint(err).Code != CodeMisplaced {
		t.Errorf("the second: %v", err)
	}
}

func TestMoreDescriptorsThanAllowedAreClosedAndCounted(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 64, MaxFds} {
		closed := counted(t)
		fds := make([]int, n)
		w := &wire{pieces: []piece{{frameOf(ping), slices.Clone(fds)}}}
		f, err := w.reader(2).frame()
		if err != nil || f.Came != n {
			t.Fatalf("%d: %+v, %v", n, f, err)
		}
		kept := n
		if n > 2 {
			kept = 0
		}
		if len(f.Fds) != kept || len(*closed) != n-kept {
			t.Errorf("%d: kept %d, closed %d", n, len(f.Fds), len(*closed))
		}
		f.CloseFds()
		f.CloseFds()
		if len(*closed) != n {
			t.Errorf("%d: closed %d in all", n, len(*closed))
		}
	}
}

func TestTakenDescriptorsAreNotClosed(t *testing.T) {
	closed := counted(t)
	f := &Frame{Fds: []int{3, 4}}
	fds := f.Take()
	f.CloseFds()
	if len(fds) != 2 || len(*closed) != 0 {
		t.Errorf("took %v, closed %v", fds, *closed)
	}
}

func TestAnnouncedSizeTakesNoMemory(t *testing.T) {
	w := &wire{pieces: []piece{{"\x40\x00\x00\x00", nil}, {strings.Repeat("x", 100), nil}}}
	if _, err := w.reader(1).frame(); Complaint(err).Code != CodeFrame || !strings.Contains(err.Error(), "1073741824") {
		t.Errorf("a gigabyte: %v", err)
	}
	if w.reads != 2 || len(w.pieces[len(w.pieces)-1].bytes) != 100 {
		t.Errorf("read on after its length: %d reads", w.reads)
	}
	got := 0
	r := reader{begun: func() {}}
	r.recv = func(p []byte) (int, []int, error) {
		if len(p) > max(got, firstRead) {
			t.Errorf("room for %d bytes more after %d had come", len(p), got)
		}
		got += len(p)
		return len(p), nil, nil
	}
	if body, err := r.body(MaxFrame); err != nil || len(body) != MaxFrame {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

func TestLargestFrame(t *testing.T) {
	head, tail := `{"v":1,"type":"a","x":"`, `"}`
	full := head + strings.Repeat("x", MaxFrame-len(head)-len(tail)) + tail
	w := &wire{pieces: []piece{{frameOf(full), nil}}}
	if f, err := w.reader(0).frame(); err != nil || len(f.Body) != MaxFrame {
		t.Errorf("of a megabyte: %v", err)
	}
	w = &wire{pieces: []piece{{frameOf(full + " "), nil}}}
	if _, err := w.reader(0).frame(); Complaint(err).Code != CodeFrame {
		t.Errorf("a byte more: %v", err)
	}
	if _, err := encode(Ask{Attempt: full}); err == nil {
		t.Error("a message that is too large was encoded")
	}
}

// C096: one line, both numbers, on either side.
func TestOtherVersionIsNamed(t *testing.T) {
	for _, serving := range []bool{false, true} {
		frame, err := encodeAs(Protocol+1, Ask{Attempt: "x"})
		if err != nil {
			t.Fatal(err)
		}
		closed := counted(t)
		w := &wire{pieces: []piece{{string(frame), []int{9}}}}
		r := w.reader(1)
		r.serving = serving
		_, err = r.frame()
		version, ok := errors.AsType[*VersionError](err)
		if !ok || version.Theirs != 2 || version.Ours != 1 || version.Serving != serving {
			t.Fatalf("%v", err)
		}
		if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, "version 2") || !strings.Contains(text, "version 1") {
			t.Errorf("%q", text)
		}
		if len(*closed) != 1 {
			t.Errorf("closed %v", *closed)
		}
		if a := Complaint(err); a.OK || a.Code != CodeVersion || a.Message != err.Error() {
			t.Errorf("%+v", a)
		}
	}
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	code := 3
	for _, msg := range []Message{
		Enqueue{Row: attempt.Row{V: 1, Lane: "a/b \"ü\"", ID: "x", Argv0: "claude"}},
		Ask{Attempt: "x"},
		Answer{OK: true, State: "queued", Lane: "l"},
		Answer{Code: CodeBusy, Class: "resource", Message: "no", Retryable: true},
		Claim{Attempt: "x", Token: "y"},
		Granted{Answer: Answer{OK: true}, Row: attempt.Row{Lane: "l"}, Fence: 1 << 63, Start: 2, Slots: []SlotRef{{"all", 0, 3}}},
		Granted{Answer: Answer{Code: "token"}},
		Ack{Attempt: "x", Start: 1, Begun: true},
		Ended{Attempt: "x", Start: 1, Outcome: "exited", ExitCode: &code},
	} {
		frame, err := encode(msg)
		if err != nil {
			t.Fatal(err)
		}
		f, err := (&wire{pieces: []piece{{string(frame), nil}}}).reader(0).frame()
		if err != nil || f.Type != msg.Type() {
			t.Fatalf("%T: %v, %v", msg, f, err)
		}
		want, _ := json.Marshal(msg)
		back := map[string]any{}
		if err := f.Decode(&back); err != nil {
			t.Fatal(err)
		}
		if back["v"] != 1.0 || back["type"] != msg.Type() {
			t.Errorf("%T: %v", msg, back)
		}
		if got := again(t, f, msg); got != string(want) {
			t.Errorf("%T: %s, want %s", msg, got, want)
		}
	}
}

// again decodes the frame into a message of msg's type and encodes that.
func again(t *testing.T, f *Frame, msg Message) string {
	t.Helper()
	var to any
	switch msg.(type) {
	case Enqueue:
		to = new(Enqueue)
	case Ask:
		to = new(Ask)
	case Answer:
		to = new(Answer)
	case Claim:
		to = new(Claim)
	case Granted:
		to = new(Granted)
	case Ack:
		to = new(Ack)
	case Ended:
		to = new(Ended)
	}
	if err := f.Decode(to); err != nil {
		t.Fatalf("%T: %v", msg, err)
	}
	text, err := json.Marshal(to)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDecodeOfAnotherFormIsBroken(t *testing.T) {
	f := &Frame{Type: "ask", Body: json.RawMessage(`{"v":1,"type":"ask","attempt":7}`)}
	if err := f.Decode(new(Ask)); Complaint(err).Code != CodeFrame {
		t.Errorf("%v", err)
	}
}

// FuzzFrames gives the reader any bytes in any pieces with descriptors on any
// of them. Whatever it makes of them, each descriptor is in a frame that was
// returned or closed, once, and no byte after a frame was read with it.
func FuzzFrames(f *testing.F) {
	two := frameOf(ping) + frameOf(`{"v":1,"type":"b","x":[1]}`)
	f.Add([]byte(two), []byte{25, 1, 255, 0}, 1)
	f.Add([]byte(two), []byte{1, 1, 1, 0, 1, 3}, 0)
	f.Add([]byte(two), []byte{10, 0, 5, 2}, 253)
	f.Add([]byte(frameOf(`{"v":2,"type":"b"}`)), []byte{255, 5}, 9)
	f.Add([]byte("\x00\x10\x00\x00{"), []byte{4, 1, 1, 1}, 1)
	f.Fuzz(func(t *testing.T, data, cuts []byte, keep int) {
		closed := counted(t)
		w := new(wire)
		given, rest := 0, string(data)
		for i := 0; i+1 < len(cuts) && rest != ""; i += 2 {
			n := min(int(cuts[i]), len(rest))
			var fds []int
			if n > 0 {
				for range cuts[i+1] {
					given++
					fds = append(fds, given)
				}
			}
			w.pieces = append(w.pieces, piece{rest[:n], fds})
			rest = rest[n:]
		}
		w.pieces = append(w.pieces, piece{rest, nil})
		left := func() (bytes, fds int) {
			for _, p := range w.pieces {
				bytes += len(p.bytes)
				fds += len(p.fds)
			}
			return bytes, fds
		}
		keep = ((keep % (MaxFds + 1)) + MaxFds + 1) % (MaxFds + 1)
		r := w.reader(keep)
		kept := 0
		for {
			before, _ := left()
			frame, err := r.frame()
			if err != nil {
				break
			}
			after, _ := left()
			at := len(data) - before
			size := int(binary.BigEndian.Uint32(data[at:]))
			if before-after != headSize+size || string(frame.Body) != string(data[at+headSize:at+headSize+size]) {
				t.Fatalf("a frame of %d bytes took %d from the wire", size, before-after)
			}
			if len(frame.Fds) > keep || frame.Type == "" {
				t.Fatalf("%+v", frame)
			}
			kept += len(frame.Fds)
			*closed = append(*closed, frame.Take()...)
		}
		_, unread := left()
		seen := slices.Clone(*closed)
		slices.Sort(seen)
		if len(slices.Compact(seen)) != len(*closed) {
			t.Fatalf("closed twice: %v", *closed)
		}
		if len(*closed)+unread != given {
			t.Fatalf("%d descriptors given, %d closed or taken, %d unread", given, len(*closed), unread)
		}
	})
}
