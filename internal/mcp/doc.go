// Package mcp is the window for agents: tools by which a client of the Model
// Context Protocol hands work in, waits for it, asks why it waits, and reads what
// came of it.
//
// It holds no logic of admission: every tool reads its arguments, calls the
// library, and says the answer twice, in words and as data. What it starts lives in
// a process of its own and knows nothing of this one, which may end at any moment.
//
// It guarantees that only messages of the protocol come out; that no input ends
// the session but its end; that each request is answered once, under the id it came
// with; and that the end of the input ends the server within two seconds. It does
// not guarantee an answer to a call that is under way at that moment, and it leaves
// nothing in the home that grows with the number of servers.
//
// The reading of the input does not end before the input does: Serve may return
// and leave one goroutine behind in a read. The process is to end then.
package mcp
