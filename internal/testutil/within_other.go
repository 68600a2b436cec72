//go:build !linux

package testutil

import "time"

// Delays begins to measure what a timer is late by.
func Delays() (since func() time.Duration) { return timerDelays() }
