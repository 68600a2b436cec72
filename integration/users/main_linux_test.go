//go:build linux

package users

import (
	"os"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.RunRole()
	code := testutil.Checked(m).Run()
	remove()
	os.Exit(code)
}
