// Package hostileuser tests what one unprivileged user of a machine can do to another one through
// root's node daemon. One user attacks the daemon, and the other user's programs, in every way that
// is known. The other user opens processes, imports, sends, makes sessions, runs programs and kills
// them all the while, and measures how long each takes.
//
//	go test -v ./integration/hostileuser                       15 seconds of attack
//	VMMC_HOSTILE_USER=2m go test -v -timeout 20m ./integration/hostileuser      as .ci/run does
//
// The tests need root, to start a daemon of root and become the other users, and Linux.
package hostileuser
