// Package rpcmsg is the header of SunRPC's messages, RFC 5531, sections 8 to 10: calls, replies and
// the caller's credentials. It reads and writes bytes and knows no transport.
package rpcmsg
