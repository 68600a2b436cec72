package mount

import (
	"strings"
	"unicode"

	"github.com/vmmc-go/vmmc/internal/code"
)

// Credentials are an account at a server of shares.
type Credentials struct {
	User     string // or DOMAIN\user, DOMAIN/user; empty: no particular user
	Password string
}

// The bounds of mount.cifs.
const (
	maxUser     = 256
	maxPassword = 512
)

// Check refuses what cannot be told to mount(8) as it is.
func (c Credentials) Check() error {
	switch {
	case c.User == "" && c.Password != "":
		return code.New(code.BadArg, "the share's credentials have a password and no user")
	case len(c.User) > maxUser, len(c.Password) > maxPassword:
		return code.New(code.BadArg, "the share's credentials are too long: at most %d bytes for the user, %d for the password", maxUser, maxPassword)
	case strings.ContainsFunc(c.User, func(r rune) bool { return r == ',' || unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return code.New(code.BadArg,
			"the user %q of the share's credentials has a comma or a control character", c.User)
	case strings.ContainsAny(c.Password, "\x00\r\n"):
		return code.New(code.BadArg, "the password of the share's credentials has more than one line")
	}
	return nil
}

// file is what mount.cifs reads of its option credentials.
func (c Credentials) file() []byte {
	user, domain := c.User, ""
	if i := strings.IndexAny(user, `\/`); i >= 0 {
		domain, user = user[:i], user[i+1:]
	}
	b := []byte("username=" + user + "\npassword=" + c.Password + "\n")
	if domain != "" {
		b = append(b, "domain="+domain+"\n"...)
	}
	return b
}

// hide takes the password out of what a program has said.
func (c Credentials) hide(text string) string {
	if c.Password == "" {
		return text
	}
	return strings.ReplaceAll(text, c.Password, "…")
}
