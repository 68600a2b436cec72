// Package curve measures messages between two ranks: ping-pong, one way, both ways
// at a time, and fetches. A burst of messages, as many as there are places for, is
// made before the clock starts and checked after it has stopped. So all messages
// that are timed are checked too, and neither making nor checking them is timed.
package curve
