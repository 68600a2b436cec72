// Package encrypt is TLS 1.3 on the socket of a data link: handshakes in which each side takes one
// certificate only, and then sending and receiving by calls that never wait, as links do them.
//
// The local protocol and the control service say whether a link is encrypted, and bring each side
// the other's fingerprint. After that neither side asks the network. The importer begins TLS behind
// its proof. The exporter begins it when the daemon has handed the connection over, on a goroutine
// of its own, because an importer may not go on; the rest of the handover is as in clear. During
// the handshake no more than a record is taken out of the socket, so that TLS never holds a part of
// one.
package encrypt
