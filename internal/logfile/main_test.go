package logfile

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.RegisterRole("fulldisk", roleFullDisk)
	testutil.Main(m)
}
