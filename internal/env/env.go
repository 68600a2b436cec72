// Package env reads the environment. All programs and the library read it here
// and nowhere else.
//
// A program that runs with other rights than the user who started it, because of a
// setuid or setgid bit or file capabilities, was given its environment by a user
// with fewer rights. To such a program every variable is unset, as to glibc's
// secure_getenv: otherwise VMMC_SOCKET or TMPDIR would name the daemon that the
// program believes.
package env

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Get is the value of a variable; "" if it is unset or must not be believed.
func Get(name string) string {
	if unix.SecureExec() {
		return ""
	}
	return os.Getenv(name)
}

// Lookup is [Get] that tells an empty variable from one that is unset or must not be believed.
func Lookup(name string) (value string, ok bool) {
	if unix.SecureExec() {
		return "", false
	}
	return os.LookupEnv(name)
}

// Take gives a variable the value that the C program has set since Go's copy of the environment was
// made. Setenv writes the C environment too, which moves its strings: it is called only where the two
// differ.
func Take(name, value string) error {
	if os.Getenv(name) == value {
		return nil
	}
	return os.Setenv(name, value)
}

// All is the whole environment; empty if it must not be believed.
func All() []string {
	if unix.SecureExec() {
		return nil
	}
	return os.Environ()
}

// TempDir is the directory for temporary files.
func TempDir() string {
	if unix.SecureExec() {
		return "/tmp"
	}
	return os.TempDir()
}

var errSecure = errors.New("this program runs with other rights than its caller " +
	"(setuid, setgid or file capabilities) and believes no environment: " +
	"name the directory on the command line")

// StateHome is the directory in which the user's programs keep their state.
func StateHome() (string, error) {
	if unix.SecureExec() {
		return "", errSecure
	}
	if d := os.Getenv("XDG_STATE_HOME"); d != "" {
		return d, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}

// ConfigHome is the directory of the user's configuration.
func ConfigHome() (string, error) {
	if unix.SecureExec() {
		return "", errSecure
	}
	return os.UserConfigDir()
}
