//go:build !linux

package mpi

import "os"

// lifeline is nothing: the tool does not tie programs to its life here.
type lifeline struct{}

func lifelines() *lifeline { return nil }

func (*lifeline) give(*[]*os.File) []string { return nil }

func (*lifeline) endWithTool() {}
