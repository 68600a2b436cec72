package facetest

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }
