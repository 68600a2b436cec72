// Package relay is the programs that send messages along a random route through
// all ranks. All draw the same route from the same seed; each sends and awaits what
// is its own part of it. What was truly sent and received is recorded.
package relay
