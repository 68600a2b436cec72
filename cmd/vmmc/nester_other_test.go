//go:build !linux

package main

func nester() int { return 1 }
