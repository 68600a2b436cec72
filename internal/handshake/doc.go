// Package handshake opens and resumes a data connection between nodes. Three processes take part:
//
//	importer                    exporter's daemon             exporter
//	   | -- hello -------------------> |                          |
//	   | <------------- challenge ---- |                          |
//	   | -- importer's proof --------> | verifies                 |
//	   |                               | -- the connection -----> |
//	   | <== TLS, if the link is encrypted ====================>  |
//	   | <-------------------- answer, with the exporter's proof  |
//
// Both proofs are keyed by the link's secret, which the daemons gave to importer and exporter over
// the control connections. They cover a fresh nonce of each side, so neither can be replayed.
// [Importer.Run] is the importer's part, [Request] the daemon's, [Reply] the exporter's. The
// messages are those of package wire. Nothing here waits without the connection's deadline.
package handshake
