// Package portmap is how SunRPC's clients find servers: a machine's rpcbind, of versions 4 and 3,
// or its older portmapper, version 2 (RFC 1833). It asks one, registers with it, and is one itself
// for machines that have none.
package portmap
