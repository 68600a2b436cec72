package containers

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }
