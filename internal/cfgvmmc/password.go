package cfgvmmc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// maxPassword keeps a file that is none from being read whole.
const maxPassword = 4096

// readPassword gives the password that the argument says, or says where it is. One
// that stands there itself is not seen on the command line any more when this
// returns.
func readPassword(c *call, arg string) (string, error) {
	switch file, named := strings.CutPrefix(arg, "@"); {
	case arg == "":
		return "", nil
	case arg == "-":
		return fromInput(c)
	case named:
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		defer f.Close()
		return firstLine(file, f)
	}
	password, err := unix.EraseArgument(arg)
	what := "others can see a password on the command line, and could until it was erased just now"
	if err != nil {
		what = "others can see a password on the command line, and it cannot be erased (" + err.Error() + ")"
	}
	fmt.Fprintf(c.ErrOrStderr(),
		"cfgvmmc: warning: %s: give - to type it in or pipe it, or @FILE\n", what)
	return password, nil
}

// fromInput asks a person, without showing what is typed, or reads a pipe.
func fromInput(c *call) (string, error) {
	if in, ok := c.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		fmt.Fprint(c.ErrOrStderr(), "Password: ")
		b, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(c.ErrOrStderr())
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return string(b), nil
	}
	return firstLine("standard input", c.InOrStdin())
}

// firstLine is the first line without its end.
func firstLine(name string, r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxPassword+2)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the password from %s: %w", name, err)
	}
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	if len(line) > maxPassword {
		return "", fmt.Errorf("read the password from %s: its first line has more than %d bytes", name, maxPassword)
	}
	return line, nil
}
