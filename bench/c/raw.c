/*
 * raw: what the machine does without any library. Each run prints objects of JSON, one a line.
 *
 *   raw flag spin|yield COUNT           two processes and a word of shared memory for each
 *   raw memmove SIZE TOTAL              between two mappings of one memfd
 *   raw serve ADDR                      prints its port, serves one client of "raw tcp"
 *   raw tcp ADDR PORT latency|bidir spin|yield CPU SIZE COUNT
 *                                       CPU -1: the kernel chooses; else both ends are pinned to it
 *   raw peer spin|yield serve PATH HOST, raw peer spin|yield send|ping ADDRESS
 *                                       a peer of "vmmc bench bandwidth" and "latency", over TCP whatever the path
 */
#define _GNU_SOURCE
#define PROGRAM "raw"
#include "measure.h"
#include <sys/mman.h>
#include <sys/wait.h>

/* Shared flag. */

static void look(volatile uint32_t *w, uint32_t v, int yield)
{
	for (unsigned looks = 1; __atomic_load_n(w, __ATOMIC_ACQUIRE) != v; looks++)
		if (yield && looks % 1024 == 0) /* a look takes a nanosecond or less, a yield hundreds */
			sched_yield();
}

enum { batch_size = 100 };

static void flag(const char *wait, long count)
{
	int yield = !strcmp(wait, "yield");
	long warm = count / 10 + 1;
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	volatile uint32_t *there = (volatile uint32_t *)p, *back = (volatile uint32_t *)(p + 256);
	double *times = zeroed((size_t)count * sizeof *times);
	long batches = count / batch_size + 1;
	double *means = zeroed((size_t)batches * sizeof *means);
	uint32_t total = (uint32_t)(warm + count + batches * batch_size);
	pid_t child = fork();
	if (child < 0)
		die("fork");
	alarm(patience);
	if (child == 0) {
		for (uint32_t i = 1; i <= total; i++) {
			look(there, i, yield);
			__atomic_store_n(back, i, __ATOMIC_RELEASE);
		}
		_exit(0);
	}
	uint32_t i = 1;
	double clock = reading();
	for (long k = -warm; k < count; k++, i++) {
		double start = now();
		__atomic_store_n(there, i, __ATOMIC_RELEASE);
		look(back, i, yield);
		if (k >= 0)
			times[k] = now() - start - clock;
	}
	for (long b = 0; b < batches; b++) {
		double start = now();
		for (int k = 0; k < batch_size; k++, i++) {
			__atomic_store_n(there, i, __ATOMIC_RELEASE);
			look(back, i, yield);
		}
		means[b] = (now() - start) / batch_size;
	}
	waitpid(child, NULL, 0);
	qsort(means, (size_t)batches, sizeof *means, ascending);
	print_latency("flag", wait, -1, 4, times, count, quantile(means, batches, .5));
}

/* Copy. */

static void copies(size_t size, size_t total)
{
	int fd = memfd_create("raw", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)(2 * size)))
		die("memfd");
	char *from = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *to = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (from == MAP_FAILED || to == MAP_FAILED)
		die("mmap");
	memset(from, 1, size);
	memset(to + size, 0, size);
	size_t n = total / size + 1;
	for (size_t i = 0; i < n / 10 + 1; i++)
		memmove(to + size, from, size);
	struct span s = {.begun = now()};
	for (size_t i = 0; i < n; i++) {
		memmove(to + size, from, size);
		__asm__ volatile("" ::: "memory"); /* each copy is made */
	}
	s.ended = now();
	print_rate("memmove", "none", size, (double[]){rate((double)n * (double)size, s)}, 1);
}

/* TCP. */

/*
 * What the ends say to each other goes over a connection of its own: where both send, the kernel acknowledges otherwise. As many
 * bytes there and back go over it first: a process that the other end wakes is on the processor of that one, as a rule, and stays for a while.
 */
enum { settling = 2000 };

/* order is what one connection is for. */
struct order {
	char mode; /* of "latency", "bandwidth", "bidir": l, b or d; 0 if there is no more */
	char yield;
	int16_t cpu;
	uint32_t size;
	uint64_t warm, count; /* messages that do not count, and that do */
};

/* take receives all messages, and says when those that count came. */
static struct span take(int fd, char *in, const struct order *o)
{
	struct span s;
	for (uint64_t i = 0; i < o->warm; i++)
		all(fd, in, o->size, 0, o->yield);
	s.begun = now();
	for (uint64_t i = 0; i < o->count; i++)
		all(fd, in, o->size, 0, o->yield);
	s.ended = now();
	return s;
}

/* both sends and receives all messages at once, and says when those that count came. */
static struct span both(int fd, char *out, char *in, const struct order *o)
{
	struct span s = {0, 0};
	size_t size = o->size, before = o->warm * size, total = before + o->count * size, sent = 0, got = 0;
	while (sent < total || got < total) {
		ssize_t k = -1, r = -1;
		if (sent < total)
			k = some(fd, out + sent % size, size - sent % size, 1);
		if (got < total)
			r = some(fd, in + got % size, size - got % size, 0);
		if (k > 0)
			sent += (size_t)k;
		if (r > 0 && (got += (size_t)r) == before)
			s.begun = now();
		if (r > 0 && got == total)
			s.ended = now();
		if (k < 0 && r < 0)
			idle(o->yield);
	}
	return s;
}

/* client serves one until it has no more orders. */
static void client(int l)
{
	int says = accepted(l);
	struct order o;
	char byte = 0;
	for (int i = 0; i < settling; i++) {
		all(says, &byte, 1, 0, 1);
		all(says, &byte, 1, 1, 1);
	}
	for (all(says, (char *)&o, sizeof o, 0, 1); o.mode; all(says, (char *)&o, sizeof o, 0, 1)) {
		int fd = accepted(l);
		pin(o.cpu);
		char *in = zeroed(o.size), *out = zeroed(o.size);
		struct span s = {0, 0};
		all(says, &byte, 1, 1, o.yield); /* it polls from here on: a sender that began before would fill all buffers, and so they would stay */
		for (uint64_t i = 0; i < o.warm + o.count && o.mode == 'l'; i++) {
			all(fd, in, o.size, 0, o.yield);
			all(fd, in, o.size, 1, o.yield);
		}
		if (o.mode == 'b')
			s = take(fd, in, &o);
		else if (o.mode == 'd')
			s = both(fd, out, in, &o);
		all(says, (char *)&s, sizeof s, 1, o.yield);
		close(fd);
		free(in);
		free(out);
	}
	close(says);
}

/* sends is what one end does for latencies, or one way: it sends messages, may get each back, and returns what one takes in the mean. times may be NULL. */
static double sends(int fd, char *out, char *in, const struct order *o, double *times)
{
	double clock = reading(), begun = 0;
	for (uint64_t i = 0; i < o->warm + o->count; i++) {
		double start = now();
		if (i == o->warm)
			begun = start;
		all(fd, out, o->size, 1, o->yield);
		if (o->mode == 'l')
			all(fd, in, o->size, 0, o->yield);
		if (times && i >= o->warm)
			times[i - o->warm] = now() - start - clock;
	}
	return (now() - begun) / (double)o->count;
}

/* connection makes one, has it do what o says, and returns the megabytes a second, or what a message takes in the mean. */
static double connection(char **v, int says, char *out, char *in, const struct order *o, double *times)
{
	struct span s = {0, 0}, far;
	double mean = 0, bytes = (double)o->size * (double)o->count;
	char byte = 0;
	int fd = dial(v[0], number(v[1], 1));
	all(says, (char *)(uintptr_t)o, sizeof *o, 1, 1);
	pin(o->cpu);
	all(says, &byte, 1, 0, o->yield);
	if (o->mode == 'd')
		s = both(fd, out, in, o);
	else
		mean = sends(fd, out, in, o, times);
	all(says, (char *)&far, sizeof far, 0, o->yield);
	close(fd);
	if (o->mode == 'l')
		return mean;
	if (o->mode == 'b')
		return rate(bytes, far);
	return rate(2 * bytes, (struct span){s.begun < far.begun ? s.begun : far.begun, s.ended > far.ended ? s.ended : far.ended});
}

/* met is the connection by which the ends say to each other what they have to, when they have settled. */
static int met(char **v)
{
	int says = dial(v[0], number(v[1], 1));
	char byte = 0;
	for (int i = 0; i < settling; i++) {
		all(says, &byte, 1, 1, 1);
		all(says, &byte, 1, 0, 1);
	}
	return says;
}

static void part(int says)
{
	struct order o = {.mode = 0};
	all(says, (char *)&o, sizeof o, 1, 1);
	close(says);
}

static void tcp(char **v)
{
	const char *what = v[2], *wait = v[3];
	long count = number(v[6], 10);
	struct order o = {
		.mode = !strcmp(what, "bidir") ? 'd' : 'l',
		.yield = !strcmp(wait, "yield"),
		.cpu = (int16_t)number(v[4], -1),
		.size = (uint32_t)number(v[5], 1),
		.count = (uint64_t)count,
		.warm = (uint64_t)count / 10,
	};
	char *in = zeroed(o.size), *out = zeroed(o.size);
	double rates[connections], *times = zeroed((size_t)count * sizeof *times);
	int says = met(v);
	if (o.mode == 'l') {
		double mean = connection(v, says, out, in, &o, times);
		print_latency(what, wait, o.cpu, o.size, times, count, mean);
	} else {
		o.warm = warm(o.count);
		for (int k = 0; k < connections; k++)
			rates[k] = connection(v, says, out, in, &o, times);
		print_rate(what, wait, o.size, rates, connections);
	}
	part(says);
}

static int yields; /* how a peer waits */

/* one has one connection do an order, and returns what that does. */
static double one(char **far, char mode, long size, long count, uint64_t before, double *times)
{
	struct order o = {.mode = mode, .yield = (char)yields, .cpu = -1, .size = (uint32_t)size, .warm = before, .count = (uint64_t)count};
	char *in = zeroed(o.size), *out = zeroed(o.size);
	int says = met(far);
	double r = connection(far, says, out, in, &o, times);
	part(says);
	free(in);
	free(out);
	return r;
}

static void sent(char **far, long size, long count)
{
	printf("%.1f\n", one(far, 'b', size, count, warm((uint64_t)count), NULL));
}

static void pinged(char **far, long size, long count)
{
	double *times = zeroed((size_t)count * sizeof *times);
	one(far, 'l', size, count, 0, times);
	for (long i = 0; i < count; i++)
		printf("%c%.0f", i ? ',' : '[', times[i]);
	printf("]\n");
	free(times);
}

static int is(const char *s, const char *a, const char *b)
{
	return !strcmp(s, a) || !strcmp(s, b);
}

int main(int n, char **v)
{
	if (n == 4 && !strcmp(v[1], "flag") && is(v[2], "spin", "yield"))
		flag(v[2], number(v[3], 1));
	else if (n == 4 && !strcmp(v[1], "memmove"))
		copies((size_t)number(v[2], 1), (size_t)number(v[3], 1));
	else if (n == 3 && !strcmp(v[1], "serve"))
		client(listening(v[2]));
	else if (n > 3 && !strcmp(v[1], "peer") && is(v[2], "spin", "yield")) {
		yields = !strcmp(v[2], "yield");
		peer(n - 3, v + 3, client, sent, pinged);
	} else if (n == 9 && !strcmp(v[1], "tcp") && is(v[4], "latency", "bidir") && is(v[5], "spin", "yield"))
		tcp(v + 2);
	else
		usage();
	return 0;
}
