package queue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/handsel/handsel/internal/home"
)

// What the header of our databases says, by the format of SQLite.
const (
	magic       = "SQLite format 3\x00"
	pageSize    = 4096
	reserved    = 8          // bytes at the end of each page: its checksum
	application = 0x68736c71 // "hslq", so that another program's file is not taken for ours

	headerSize = 100 // of the file, at the start of page 1
)

// judge looks at the files of an existing database without SQLite, which would
// write before it could say what it found. It changes nothing, not even the
// shared memory. *Newer when its version is beyond want.
//
// Every page that is in force is checked against its checksum, and the log
// against what its last writer had committed: SQLite by itself would take a log
// that was cut short for a shorter one, and serve a page with a changed byte in
// its text (C094). A log that was cut short after the machine went down is not
// noticed, since nothing else remembers its end.
func judge(path string, want int) error {
	damaged := func(err error) error { return &Damaged{Path: path, Err: err} }
	db, err := os.Open(path)
	if err != nil {
		return &home.Unusable{Path: path, Err: bare(err)}
	}
	defer db.Close()
	first := make([]byte, pageSize)
	if _, err := db.ReadAt(first, 0); err != nil && err != io.EOF {
		return &home.Unusable{Path: path, Err: bare(err)}
	}
	end := committed(path + "-shm") // before the log, which may be growing
	log, err := readLog(path + "-wal")
	if err != nil {
		return &home.Unusable{Path: path + "-wal", Err: bare(err)}
	}
	header := first
	if log.first != nil {
		header = log.first
	}
	switch {
	case !ours(first) || !ours(header):
		return damaged(errors.New("it does not begin as a database of ours does"))
	case first[20] == reserved && !log.has[1] && !sound(first):
		return damaged(errors.New("its first page is not what was written"))
	}
	switch have := int(int32(be.Uint32(header[60:]))); {
	case have > want:
		return &Newer{Path: path, Have: have, Want: want}
	case have < 1 || !ofThisForm(first) || !ofThisForm(header):
		return damaged(errors.New("its header is not what was written"))
	}
	if err := log.reaches(end); err != nil {
		return damaged(err)
	}
	if err := checkPages(db, header, log); err != nil {
		return damaged(err)
	}
	return nil
}

// ours tells whether a first page is that of a database that we made, in any version.
func ours(first []byte) bool {
	return bytes.HasPrefix(first, []byte(magic)) && be.Uint32(first[68:]) == application
}

// ofThisForm tells whether a header says what this version relies on: page
// size, write-ahead log, checksums.
func ofThisForm(header []byte) bool {
	return be.Uint16(header[16:]) == pageSize && header[18] == 2 && header[19] == 2 && header[20] == reserved
}

// checkPages reads every page that is in force in the file itself, not in the log.
func checkPages(db *os.File, header []byte, log *log) error {
	pages := log.pages
	if pages == 0 {
		pages = be.Uint32(header[28:])
	}
	const many = 64
	buf := make([]byte, many*pageSize)
	for first := uint32(1); first <= pages; first += many {
		n, err := db.ReadAt(buf, int64(first-1)*pageSize)
		if err != nil && err != io.EOF {
			return bare(err)
		}
		for i := range min(many, pages-first+1) {
			page := first + i
			if log.has[page] {
				continue
			}
			if end := int(i+1) * pageSize; end > n {
				return fmt.Errorf("it ends before page %d of %d", page, pages)
			}
			if !sound(buf[i*pageSize : (i+1)*pageSize]) {
				return fmt.Errorf("page %d of %d is not what was written", page, pages)
			}
		}
	}
	return nil
}

// sound compares a page with the checksum at its end, as SQLite's checksum VFS
// does. A page of zeros, which was never written, is sound.
func sound(page []byte) bool {
	end := len(page) - reserved
	a, b := sum(page[:end], 0, 0)
	return a == le.Uint32(page[end:]) && b == le.Uint32(page[end+4:])
}

// The SQLite we link is little-endian on every machine, and so are the sums it
// writes; the numbers beside them are big-endian in files.
var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

// sum is the checksum of pages, log frames and shared memory alike.
func sum(data []byte, a, b uint32) (uint32, uint32) {
	for ; len(data) >= 8; data = data[8:] {
		a += le.Uint32(data) + b
		b += le.Uint32(data[4:]) + a
	}
	return a, b
}

// log is what a write-ahead log holds that is committed.
type log struct {
	salt   []byte          // of its header, nil when there is none
	frames uint32          // valid ones, a last unfinished transaction included
	pages  uint32          // size of the database after the last commit, 0 = no commit
	has    map[uint32]bool // pages that are in force in the log
	first  []byte          // header of the database, when page 1 is in the log
}

const (
	logMagic    = 0x377f0682 // with little-endian sums
	logHeader   = 32
	frameHeader = 24
	frameSize   = frameHeader + pageSize
)

// readLog reads a log up to its last valid frame, as recovery does. A log of
// zeros is an empty one.
func readLog(path string) (*log, error) {
	l := &log{has: map[uint32]bool{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	head := make([]byte, logHeader)
	if n, err := f.ReadAt(head, 0); n < logHeader {
		if err != io.EOF {
			return nil, bare(err)
		}
		return l, nil
	}
	a, b := sum(head[:24], 0, 0)
	if be.Uint32(head) != logMagic || be.Uint32(head[8:]) != pageSize || a != be.Uint32(head[24:]) || b != be.Uint32(head[28:]) {
		return l, nil
	}
	l.salt = head[16:24]
	return l, l.read(f, a, b)
}

// read goes through the frames. Those after the last commit were never in force.
func (l *log) read(f *os.File, a, b uint32) error {
	const many = 64
	buf := make([]byte, many*frameSize)
	var open []uint32 // pages of the transaction that is being read
	var first []byte
	for at := int64(logHeader); ; at += int64(len(buf)) {
		n, err := f.ReadAt(buf, at)
		if err != nil && err != io.EOF {
			return bare(err)
		}
		for frame := range n / frameSize {
			data := buf[frame*frameSize : (frame+1)*frameSize]
			a, b = sum(data[:8], a, b)
			a, b = sum(data[frameHeader:], a, b)
			if !bytes.Equal(data[8:16], l.salt) || a != be.Uint32(data[16:]) || b != be.Uint32(data[20:]) {
				return nil
			}
			l.frames++
			page := be.Uint32(data)
			open = append(open, page)
			if page == 1 {
				first = bytes.Clone(data[frameHeader : frameHeader+headerSize])
			}
			if size := be.Uint32(data[4:]); size != 0 {
				l.commit(size, open, first)
				open, first = open[:0], nil
			}
		}
		if n < len(buf) {
			return nil
		}
	}
}

func (l *log) commit(size uint32, pages []uint32, first []byte) {
	l.pages = size
	for _, p := range pages {
		l.has[p] = true
	}
	if first != nil {
		l.first = first
	}
}

// mark is where a log ended, by the shared memory of its last writer.
type mark struct {
	salt   []byte // of the log that is meant; nil when nothing is known
	frames uint32 // committed ones that are not all in the database, else 0
}

// committed reads shared memory. What is missing, or not whole itself, says nothing.
func committed(path string) (m mark) {
	shm, err := os.ReadFile(path)
	if err != nil || len(shm) < 136 || !bytes.Equal(shm[:48], shm[48:96]) {
		return m
	}
	if a, b := sum(shm[:40], 0, 0); shm[12] == 0 || a != le.Uint32(shm[40:]) || b != le.Uint32(shm[44:]) {
		return m
	}
	m.salt = shm[32:40]
	if frames, stored := le.Uint32(shm[16:]), le.Uint32(shm[96:]); frames > stored {
		m.frames = frames
	}
	return m
}

// reaches compares the log with where it ended. One of another salt was begun
// later, or is older than what the machine had time to write of shared memory.
func (l *log) reaches(end mark) error {
	if l.salt != nil && !bytes.Equal(l.salt, end.salt) || l.frames >= end.frames {
		return nil
	}
	return fmt.Errorf("its -wal holds %d of %d committed frames", l.frames, end.frames)
}

// bare strips the operation and path the os package puts around an error.
func bare(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// trust judges the files at path before any of them is opened. It is
// fs.ErrNotExist when there is no database.
func trust(path string) error {
	if err := home.TrustParent(path); err != nil {
		return err
	}
	if err := home.Local(filepath.Dir(path)); err != nil {
		return err
	}
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return &Damaged{Path: path, Err: errors.New("it is a directory")}
	}
	missing := home.Trust(path, false)
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return missing
	}
	for _, side := range []string{"-wal", "-shm"} {
		err := home.Trust(path+side, false)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case missing != nil && side == "-wal":
			if info, err := os.Lstat(path + side); err == nil && info.Size() > 0 {
				return &Damaged{Path: path, Err: fmt.Errorf("it is missing, but %s is there", filepath.Base(path+side))}
			}
		}
	}
	return missing
}
