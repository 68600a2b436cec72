// Package bandwidth is the programs that draw a curve: the bandwidth between two
// nodes over the size of a message.
package bandwidth
