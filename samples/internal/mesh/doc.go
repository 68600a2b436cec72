// Package mesh joins the ranks of a run by buffers: each rank has one for each
// other rank that sends to it. A buffer has several places for messages, and the
// sender waits for a free one, so nothing is overwritten before it was read. The
// content of a message follows from its sender, its receiver and its step, and is
// checked word by word.
package mesh
