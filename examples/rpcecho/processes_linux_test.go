package main

import (
	"testing"

	"github.com/vmmc-go/vmmc/examples/internal/exampletest"
)

// In one process the server would share its processors' time with its client.
func TestServerIsAnotherProcess(t *testing.T) { exampletest.Processes(t, 2) }
