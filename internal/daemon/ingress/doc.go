// Package ingress is where connections come from outside: it has those that have not proved an
// identity, and the limits on all.
//
// An Ingress listens on TCP. It tells control connections from data links by their first byte,
// makes the TLS handshake of the former, and passes both on: to the HTTP server, and to
// Config.DataLink. A connection is unauthenticated → authenticated, evicted or refused. The limiter
// bounds the unauthenticated ones, Refusals counts and logs those that were refused. Descriptors
// bounds what connections take, those of local processes included. Identity is the node's
// certificate, which is read again when its files change.
//
// Each of the limiter, Refusals, Descriptors and Identity has a lock of its own. None is held while
// another one is taken, but those of the logs.
package ingress
