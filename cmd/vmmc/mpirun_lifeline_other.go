//go:build !linux

package main

import "os"

// lifeline is nothing: as endWithTool, it is for Linux alone.
type lifeline struct{ theirs [2]*os.File }

func newLifeline() (*lifeline, error) { return &lifeline{}, nil }

func (*lifeline) variable() (string, error) { return "", nil }

func (*lifeline) wait()  {}
func (*lifeline) end()   {}
func (*lifeline) close() {}
