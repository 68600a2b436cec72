// Package pmi is the client's side of the process management interface by which hydra's mpiexec and
// Slurm's srun tell the ranks of a job about each other: versions 1 and 2 of its text protocol.
package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// maxMessage bounds an answer, in bytes.
const maxMessage = 64 << 10

// Client is a rank's connection to its launcher. Calls are made one at a time.
type Client struct {
	rw      io.ReadWriteCloser
	in      *bufio.Reader
	version int
	space   string // the name of the job's key-value space
}

// New begins the protocol on the connection that PMI_FD names.
func New(rw io.ReadWriteCloser, rank int) (*Client, error) {
	c := &Client{rw: rw, in: bufio.NewReader(rw), version: 1}
	a, err := c.ask("init", "response_to_init", "pmi_version", "1", "pmi_subversion", "1")
	if err != nil && a["pmi_version"] == "2" { // a launcher that speaks version 2 alone
		_, err = c.ask("init", "response_to_init", "pmi_version", "2", "pmi_subversion", "0")
		c.version = 2
	}
	if err != nil {
		return nil, err
	}
	if c.version == 2 {
		if _, err = c.ask("fullinit", "fullinit-response", "pmirank", strconv.Itoa(rank), "threaded", "FALSE"); err != nil {
			return nil, err
		}
		if a, err = c.ask("job-getid", "job-getid-response"); err == nil {
			c.space = a["jobid"]
		}
	} else if a, err = c.ask("get_my_kvsname", "my_kvsname"); err == nil {
		c.space = a["kvsname"]
	}
	if err != nil {
		return nil, err
	}
	if c.space == "" {
		return nil, errors.New("pmi: the launcher names no key-value space")
	}
	return c, nil
}

// ErrText is the error of a key or a value that the protocol cannot carry.
var ErrText = errors.New("it is no text of 1 to 1024 printable ASCII characters without space, \"=\" and \";\"")

// maxText bounds a value: hydra takes no longer one.
const maxText = 1024

// check refuses a text that a launcher would take for the end of the command.
func check(what, text string) error {
	bad := func(r rune) bool { return r <= ' ' || r > '~' || r == '=' || r == ';' }
	if text == "" || len(text) > maxText || strings.ContainsFunc(text, bad) {
		return fmt.Errorf("pmi: %s %.100q: %w", what, text, ErrText)
	}
	return nil
}

// Put stores a value, which the other ranks find after their [Client.Fence].
func (c *Client) Put(key, value string) (err error) {
	if err := errors.Join(check("key", key), check("value", value)); err != nil {
		return err
	}
	if c.version == 2 {
		_, err = c.ask("kvs-put", "kvs-put-response", "key", key, "value", value)
	} else {
		_, err = c.ask("put", "put_result", "kvsname", c.space, "key", key, "value", value)
	}
	return err
}

// Fence waits until all ranks have called it.
func (c *Client) Fence() (err error) {
	if c.version == 2 {
		_, err = c.ask("kvs-fence", "kvs-fence-response")
	} else {
		_, err = c.ask("barrier_in", "barrier_out")
	}
	return err
}

// Get finds a value of any rank.
func (c *Client) Get(key string) (string, error) {
	if err := check("key", key); err != nil {
		return "", err
	}
	var a map[string]string
	var err error
	if c.version == 2 {
		a, err = c.ask("kvs-get", "kvs-get-response", "jobid", c.space, "srcid", "-1", "key", key)
		if err == nil && strings.EqualFold(a["found"], "FALSE") {
			err = fmt.Errorf("pmi: get: the launcher knows no %q", key)
		}
	} else {
		a, err = c.ask("get", "get_result", "kvsname", c.space, "key", key)
	}
	return a["value"], err
}

// Close tells the launcher that the rank ends in order, and ends the connection. Without it the
// launcher ends the job when the rank ends. If the launcher has not answered when ctx ends the
// connection ends all the same, and the error is that of the context.
func (c *Client) Close(ctx context.Context) error {
	if f, is := c.rw.(interface{ SetDeadline(t time.Time) error }); is {
		defer context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Now()) })()
	}
	answer := "finalize_ack"
	if c.version == 2 {
		answer = "finalize-response"
	}
	_, err := c.ask("finalize", answer)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return errors.Join(err, c.rw.Close())
}

// ask sends a command with its keys and values, and reads the answer.
func (c *Client) ask(command, answer string, pairs ...string) (map[string]string, error) {
	fail := func(format string, args ...any) (map[string]string, error) {
		return nil, fmt.Errorf("pmi: %s: %w", command, fmt.Errorf(format, args...))
	}
	framed := c.version == 2 && command != "init" // init of version 2 still is a line
	end := " "
	if framed {
		end = ";"
	}
	var b strings.Builder
	b.WriteString("cmd=" + command + end)
	for p := range slices.Chunk(pairs, 2) {
		b.WriteString(strings.Join(p, "=") + end)
	}
	text := b.String()
	if framed {
		text = fmt.Sprintf("%6d%s", len(text), text)
	} else {
		text = strings.TrimSuffix(text, " ") + "\n"
	}
	if _, err := io.WriteString(c.rw, text); err != nil {
		return fail("send to the launcher: %w", err)
	}
	got, err := c.read(framed)
	if err != nil {
		return fail("read the launcher's answer: %w", err)
	}
	switch {
	case got["cmd"] != answer:
		return fail("the launcher answers %q, want %q", got["cmd"], answer)
	case got["rc"] != "" && got["rc"] != "0":
		return got, fmt.Errorf("pmi: %s: the launcher refuses it: rc=%s %s", command, printable(got["rc"]), printable(got["msg"]+got["errmsg"]))
	}
	return got, nil
}

// printable is what a launcher says, without what a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s[:min(len(s), 256)])
}

// read reads one message: a line of words, or a length and what it counts.
func (c *Client) read(framed bool) (map[string]string, error) {
	got := map[string]string{}
	if !framed {
		var line []byte
		for {
			b, err := c.in.ReadByte()
			if err != nil {
				return nil, err
			}
			if b == '\n' {
				break
			}
			if line = append(line, b); len(line) > maxMessage {
				return nil, fmt.Errorf("it has more than %d bytes", maxMessage)
			}
		}
		for _, word := range strings.Fields(string(line)) {
			key, value, _ := strings.Cut(word, "=")
			got[key] = value
		}
		return got, nil
	}
	length := make([]byte, 6)
	if _, err := io.ReadFull(c.in, length); err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(length)), 10, 32) // no sign
	if err != nil || n > maxMessage {
		return nil, fmt.Errorf("%q is no length of a message", length)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(c.in, text); err != nil {
		return nil, err
	}
	for pair := range strings.SplitSeq(string(text), ";") {
		if key, value, found := strings.Cut(pair, "="); found {
			got[key] = value
		}
	}
	return got, nil
}
