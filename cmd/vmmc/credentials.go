package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// maxCredentials bounds what is read as credentials.
const maxCredentials = 4096

// readCredentials reads an account at a server of shares from a file, or for "-"
// from standard input, where a person at a terminal is asked. There is no flag for
// a password: all users of a machine see its command lines.
func readCredentials(file string, in io.Reader, ask io.Writer) (*nodev1.Credentials, error) {
	if file == "-" {
		if f, is := in.(*os.File); is && term.IsTerminal(int(f.Fd())) {
			return askCredentials(f, ask)
		}
		return parseCredentials(in, "standard input")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the credentials: %w", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read the credentials: %s can be read or written by other users: chmod 600 it", file)
	}
	return parseCredentials(f, file)
}

func askCredentials(f *os.File, ask io.Writer) (*nodev1.Credentials, error) {
	fmt.Fprint(ask, "User of the share: ")
	user, err := bufio.NewReader(io.LimitReader(f, maxCredentials)).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("read the user: %w", err)
	}
	fmt.Fprint(ask, "Password: ")
	password, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(ask)
	if err != nil {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	return &nodev1.Credentials{User: strings.TrimRight(user, "\r\n"), Password: string(password)}, nil
}

// parseCredentials takes the lines that mount.cifs takes (username=, password=,
// domain=), or two lines: the user and the password.
func parseCredentials(in io.Reader, from string) (*nodev1.Credentials, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxCredentials+1))
	if err != nil {
		return nil, fmt.Errorf("read the credentials from %s: %w", from, err)
	}
	bad := func(why string) error { // what stands there is not repeated
		return fmt.Errorf("the credentials in %s %s; they are lines username=NAME, password=TEXT and perhaps domain=NAME, or two lines: the user and the password", from, why)
	}
	if len(b) > maxCredentials {
		return nil, bad("are too long")
	}
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(string(bytes.TrimPrefix(b, []byte("\ufeff"))), "\r\n", "\n"), "\n"), "\n")
	if _, _, is := credential(lines[0]); !is {
		if len(lines) != 2 {
			return nil, bad("have neither")
		}
		return &nodev1.Credentials{User: lines[0], Password: lines[1]}, nil
	}
	got := map[string]string{}
	for _, l := range lines {
		if t := strings.TrimSpace(l); t == "" || strings.HasPrefix(t, "#") {
			continue
		}
		key, value, is := credential(l)
		if _, twice := got[key]; !is || twice {
			return nil, bad("have another line, or one twice")
		}
		got[key] = value
	}
	c := &nodev1.Credentials{User: got["username"], Password: got["password"]}
	if c.User == "" {
		return nil, bad("have no user")
	}
	if got["domain"] != "" {
		c.User = got["domain"] + `\` + c.User
	}
	return c, nil
}

// credential splits a line that begins with a name which mount.cifs knows.
func credential(line string) (key, value string, is bool) {
	key, value, found := strings.Cut(strings.TrimLeft(line, " \t"), "=")
	for _, k := range []string{"username", "password", "domain"} {
		if found && (key == k || k != "domain" && key == k[:4] || k == "domain" && key == "dom") {
			return k, value, true
		}
	}
	return "", "", false
}

var errNoServer = errors.New("it is for shares of other machines, as in --share //server/path: a directory of the node asks for none")
