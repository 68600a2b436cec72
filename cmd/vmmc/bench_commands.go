package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/bench"
)

const benchLong = `Measure the library between two processes, as programs use it, beside what this
machine can do itself: a raw flag in shared memory and memmove, and raw TCP on the
loopback address, by the same two processes with the same kind of waiting.

The tool starts a node for the local path, two on loopback for the remote one, and a
process at each end. Rounds of ours and of the limit take turns, after one of each
that does not count. A figure is the median over the rounds (of each round's median,
where it is a latency), and the ratio is the median of the rounds' ratios. p99 and
p99.9 are of all exchanges of all rounds.

What is timed: each exchange by itself, except where a command says so. An exchange
begins when the one before is over, so a delay makes one exchange late and holds up
those behind it, which are then not counted as late: the percentiles are those of a
program that waits for each answer. Those of one whose requests come at given times
are measured by "load".`

// benchTexts say what each measurement is.
var benchTexts = map[string][2]string{
	"latency": {"Measure one-way latency", `Measure half the round trip of a message that the far end answers with one of the
same size. Each exchange is timed, and what a reading of the clock takes, which is
measured before, is taken off. The limit is a raw flag in shared memory with the
rest of the message moved before it, and raw TCP with the same number of bytes. A
peer's COMMAND is run twice: as "COMMAND serve PATH HOST", which prints a line with the
address where it listens and serves until its input ends, and as "COMMAND ping ADDRESS",
which for each line of its input, two numbers, sends messages of so many bytes there and
back, so many, and prints an array of the nanoseconds of each, there and back.`},
	"bandwidth": {"Measure one-way bandwidth", `Measure the bandwidth of one-way traffic, until all has arrived: messages one after
another to the same place, by Send (sync), and with 8 sends of SendAsync in flight
(async). A round is timed as a whole. The limit is memmove between mappings of the
same kind, and raw TCP into memory of the same size, a new connection in each round. A
peer's COMMAND is run twice: as "COMMAND serve PATH HOST", which prints a line with the
address where it listens and serves until its input ends, and as "COMMAND send ADDRESS",
which for each line of its input, two numbers, moves messages of so many bytes, so many
of them that count, and prints the megabytes a second.`},
	"bidir": {"Measure the bandwidth of both ways at once", `Measure the bandwidth of both ways together. exchange: each end sends a message,
waits for the other's and goes on. stream: each end has 8 asynchronous sends in
flight. The limit is the same done with memmove, or by raw TCP both ways at once.`},
	"fetch": {"Measure gets", `Measure the round trip of a get: on the remote path from an exporter that waits
and looks as raw TCP's end does, from one that computes and makes no call of the
library, and from one that sleeps. The limit is a raw TCP round trip of 8 bytes there
and the message back. On the local path a get is a copy out of the exporter's memory
and so is its limit; up to 4 KiB the mean of 64 is one exchange, because one is too
short for the clock. What a reading of the clock takes is taken off, as for latency.`},
	"rate": {"Measure how many small puts a second", `Measure how many small puts a second one sender makes, one call a put, until all
have arrived: to successive addresses that are not polled (successive), and to one word
that the far end polls (polled). The sender does not wait in between: there are no
intended times, and a put that is late makes the rate less.`},
	"load": {"Measure latency where messages come at given times", `Measure the time of messages that come at given times, as requests of many users do,
whether those before have arrived or not: at 1 %, 10 % and half of the rate that the
same sender has reached without pauses just before. The time runs from when a message
was to be sent until the receiver, which looks all the time, has it, so that a delay
counts for all that had to wait behind it: the other latencies leave that out. The
limit has the same times.`},
	"overhead": {"Measure what a send takes of its caller", `Measure the mean time of a send call over bursts of 64, synchronous and
asynchronous. A burst begins when all of the one before has arrived; its percentiles
are those of bursts. completion is the time from the call of the last of 64 asynchronous
sends until the far end has found it, while the sender makes no other call.`},
	"notify": {"Measure notifications", `Measure the time from a send with a notification until its handler is entered, by the
clock that all processes of a machine have: with a receiver that looks all the time
(spinning), and with one that sleeps before each (asleep, 0.5 ms apart). The limit is a
raw flag and a raw futex wake; on the remote path raw TCP, looking and blocking.`},
	"import": {"Measure imports", `Measure the time of an import and its close, with 1 to 10,000 exports in the far
process: with a link there already (linked), and from a process of which each import
makes a link (first). The limit of the former is the same with 1 export, that of the latter,
on the local path, what it cannot do without: four packets by way of a third process, with
the descriptors and pages of a link, between three processes in Go that do nothing else.`},
	"scale": {"Measure what idle links cost", `Measure the latency of one word on one link beside 1,000 idle links from as many
processes, 1,000 importers of one buffer, and 1,000 exports; the limit is the same
latency without them, earlier in the same run. And the memory of an idle link, as the
growth of both ends' proportional share (PSS) and of the machine's TCP buffers.
--count says how many.`},
	"via": {"Measure SENDs and RDMA of package via", `Measure half the round trip of a SEND of package via on a reliable connection, whose
receive the far end has posted and which it answers with another one. Both ends wait for
each. The limit is the round trip of a message by Send, as "latency" measures it. From
64 KiB on RDMA writes and reads are measured as well, each until it is complete, beside
Send and Get. A message has 1 MiB at most.`},
	"breakdown": {"Measure where the time of a message goes", `Measure where the time of a message goes, by the clock that all processes of a machine
have:

  post      the send call
  transfer  from its end until the receiver's last look that found nothing; less than
            0 where the kernel delivers within the call
  arrival   from there to the look that found it: taken off the socket, checked, stored
  sight     from that look until the wait has returned

each the median over the messages of a round, beside their sum and the median of the
whole, with the same points in time of the limit. Reading the clock is in the figures.`},
	"rpc": {"Measure remote procedure calls", `Measure SunRPC between a client and one server that answers by remote memory (vmmc),
TCP, UDP and, on the local path, a unix socket; all take turns. null: the round trip of
a call of the procedure that does nothing, beside a raw flag or raw TCP there and back,
and by remote memory beside the calls of peers too, whose rounds come in turn with ours:
a C client and server made by rpcgen with libtirpc, over TCP, built here if rpcgen, cc and
libtirpc's headers are there, and those of --peer. A peer's COMMAND is run twice: as
"COMMAND serve PATH HOST", which prints a line with the address where it listens and
serves until its input ends, and as "COMMAND call ADDRESS", which for each line of its
input, a number, makes so many calls and prints an array of their nanoseconds.
argument: the bandwidth of calls with 1 MiB of opaque data that the procedure sees where
it has arrived, one after another and by remote memory also 4 at once, beside sends of
as much without an answer. What is timed comes after 60 ms of calls, by which the kernel
has put both ends on processors of their own. What a reading of the clock takes is taken
off null calls, as for latency, but not off peers'.`},
	"c": {"Measure the library for C", `Measure vmmc_SendData between two processes in C beside sends by address in Go, in
turns. VALUE is C's and LIMIT is Go's. one way: half the round trip of a message that
the far end answers with one of the same size. On one node a C program polls its own
memory for it, and between nodes it calls vmmcx_wait_word. back to back: the mean time
of a message to successive addresses, until the far end has answered that the last one
has arrived. The ends in C are vmmc/bench-c, which "make -C c install" installs beside
the library. Without it there are no figures. On one node each end in C has a processor
of its own, as the ends in Go settle on two. They are not pinned otherwise, nor encrypted.`},
}

// newBenchOf is the command of one measurement.
func newBenchOf(what string) *cobra.Command {
	var o benchOptions
	t := benchTexts[what]
	c := &cobra.Command{
		Use:   what,
		Short: t[0],
		Long:  t[1],
		Example: fmt.Sprintf(`  vmmc bench %[1]s
  vmmc bench %[1]s --path remote --json`, what),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, []string{what}, &o) },
	}
	o.register(c, !bench.Fixed(what), bench.Drawn(what))
	switch what {
	case "rpc":
		o.registerPeers(c)
		c.Example += "\n  vmmc bench rpc --path local --peer gRPC='/usr/local/bin/peer rpc-peer'"
	case "latency", "bandwidth":
		o.registerPeers(c)
		c.Example += "\n  vmmc bench " + what + " --path remote --peer C='/usr/local/bin/raw peer spin'"
	}
	return c
}

// newBenchAll measures everything.
func newBenchAll() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use:   "all",
		Short: "Measure everything but automatic update",
		Long: `Run all measurements but "vmmc bench au", one after another, on both paths. It takes
some minutes.

With --plot it draws, for each path, what the Figures 1 to 4 of the paper about VMMC
on Myrinet show: the limits by size of block, the latency of short messages, the
bandwidth of ping-pong, one-way and bidirectional traffic, and the overhead of sends.`,
		Example: `  vmmc bench all --quick --json > results.json
  vmmc bench all --plot figures`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, bench.Measurements(), &o) },
	}
	o.register(c, true, true)
	return c
}
