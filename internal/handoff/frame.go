package handoff

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// headSize is the length in front of a frame's object: 4 bytes, big-endian.
const headSize = 4

// firstRead is for how much of a body memory is taken before any of it came, in
// bytes; what is taken later at most doubles what is there.
const firstRead = 4 << 10

// reader reads frames. It reads no byte beyond the frame it is at: in one call
// the kernel gives the bytes of several sends together with the descriptors of
// the last of them, which then nobody could tell from those of the first (C068).
type reader struct {
	// recv reads at least one byte and at most len(p). The descriptors that came
	// are the caller's; with an error there are none.
	recv func(p []byte) (n int, fds []int, err error)
	// begun is called when the first byte is there.
	begun   func()
	keep    int  // descriptors a frame may bring
	serving bool // for VersionError
}

// frame reads the next frame. The error is io.EOF when the other side closed
// its end between frames.
func (r *reader) frame() (*Frame, error) {
	f := new(Frame)
	err := r.fill(f)
	if err != nil {
		f.CloseFds()
		return nil, err
	}
	return f, nil
}

func (r *reader) fill(f *Frame) error {
	var head [headSize]byte
	_, fds, err := r.recv(head[:1])
	if f.Fds = fds; err != nil {
		return err
	}
	r.begun()
	if f.Came = len(fds); f.Came > r.keep {
		f.CloseFds()
	}
	if err := r.plain(head[1:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < 2 || size > MaxFrame {
		return &Broken{Code: CodeFrame, Why: fmt.Sprintf("a frame of %d bytes was announced; it may have 2 to %d", size, MaxFrame)}
	}
	body, err := r.body(int(size))
	if err != nil {
		return err
	}
	return f.parse(body, r.serving)
}

// body reads size bytes, taking memory only as they arrive.
func (r *reader) body(size int) ([]byte, error) {
	buf := make([]byte, min(size, firstRead))
	for have := 0; ; {
		if err := r.plain(buf[have:]); err != nil {
			return nil, err
		}
		if have = len(buf); have == size {
			return buf, nil
		}
		more := min(have, size-have)
		buf = slices.Grow(buf, more)[:have+more]
	}
}

// plain fills p with bytes that come without descriptors.
func (r *reader) plain(p []byte) error {
	for len(p) > 0 {
		n, fds, err := r.recv(p)
		if len(fds) > 0 {
			closeAll(fds)
			return &Broken{Code: CodeMisplaced, Why: fmt.Sprintf("%d descriptors came in the middle of a frame; they must ride on its first byte", len(fds))}
		}
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			return &Broken{Code: CodeFrame, Why: "the other side left in the middle of a frame", Err: io.ErrUnexpectedEOF}
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		closeFd(fd)
	}
}

// parse takes a frame's object apart as far as every message is the same.
func (f *Frame) parse(body []byte, serving bool) error {
	if !utf8.Valid(body) { // which json would repair: two names could become one
		return &Broken{Code: CodeFrame, Why: "a frame is not UTF-8"}
	}
	var top struct {
		V    *int   `json:"v"`
		Type string `json:"type"`
	}
	if first := bytes.TrimLeft(body, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return &Broken{Code: CodeFrame, Why: "a frame is not a JSON object"}
	}
	if err := json.Unmarshal(body, &top); err != nil {
		return &Broken{Code: CodeFrame, Why: "a frame is not a JSON object: " + err.Error(), Err: err}
	}
	switch {
	case top.V == nil:
		return &Broken{Code: CodeFrame, Why: "a frame has no protocol version"}
	case *top.V != Protocol:
		return &VersionError{Theirs: *top.V, Ours: Protocol, Serving: serving}
	case top.Type == "":
		return &Broken{Code: CodeFrame, Why: "a frame has no type"}
	}
	f.Type, f.Body = top.Type, body
	return nil
}

// encode is a message as the bytes of its frame.
func encode(msg Message) ([]byte, error) { return encodeAs(Protocol, msg) }

func encodeAs(version int, msg Message) ([]byte, error) {
	fields, err := json.Marshal(msg)
	if err != nil {
		return nil, fmt.Errorf("handoff: a message of type %q: %w", msg.Type(), err)
	}
	if len(fields) < 2 || fields[0] != '{' {
		return nil, fmt.Errorf("handoff: a message of type %q is not a JSON object", msg.Type())
	}
	frame := fmt.Appendf(make([]byte, headSize, len(fields)+64), `{"v":%d,"type":%q`, version, msg.Type())
	if len(fields) > 2 {
		frame = append(frame, ',')
	}
	frame = append(frame, fields[1:]...)
	size := len(frame) - headSize
	if size > MaxFrame {
		return nil, fmt.Errorf("handoff: a message of type %q has %d bytes; it may have %d", msg.Type(), size, MaxFrame)
	}
	binary.BigEndian.PutUint32(frame, uint32(size))
	return frame, nil
}
