/*
 * floor: what a link of vmmc and a first import cannot do without, with no library: what they are above raw TCP and
 * above a memfd by design, and not by how well they are made. It prints objects of JSON, one a line.
 *
 *   floor serve ADDR                       prints its port, serves one client of "floor tcp"
 *   floor tcp ADDR PORT SIZE COUNT
 *       A header of 64 bytes before each message, a frame of 64 bytes back for every 256 KiB, or two messages of
 *       128 to 256 KiB, at most 8 messages that are not acknowledged, memory that other processes map where they arrive,
 *       and for each direction a connection of its own, with what vmmc sets for a near end. Messages that may go
 *       together are written by one call. Both ends yield while they wait. 8 messages are 256 KiB at least.
 *   floor peer serve PATH HOST, floor peer send ADDRESS
 *       A peer of "vmmc bench bandwidth", as above, of messages of 32 KiB at least.
 *   floor import COUNT
 *       An import and its link by way of a third process, four packets, with all pages and descriptors.
 */
#define _GNU_SOURCE
#define PROGRAM "floor"
#include "measure.h"
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* Links. */

enum { frame = 64, in_flight = 8, near_buffer = 1056 << 10, together = 4, least_acknowledged = 256 << 10 };

/* way is one direction, at one of its ends. */
struct way {
	int fd;
	size_t size;
	uint64_t count, messages, acked; /* to move in all; moved, and acknowledged, so far */
	char *memory, header[frame], back[frame];
	size_t at, back_at; /* bytes of the present messages, headers included, and of the present frame back */
	size_t present;     /* messages that one call moves */
	uint64_t since;     /* bytes that came since the last frame back */
};

/* shared is memory of a file, as exported memory is. */
static char *shared(size_t size)
{
	int fd = memfd_create("floor", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size))
		die("memfd");
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	close(fd);
	memset(p, 1, size);
	return p;
}

/* near_by is what a link sets where the other end is near: see internal/link/conn_tcp.go. */
static void near_by(int fd)
{
	int bytes = near_buffer;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes))
		die("setting up a connection");
}

/* move moves what is left of the present messages, or some of it; -1 where the socket was not ready. */
static ssize_t move(struct way *w, int out)
{
	struct iovec v[2 * together];
	size_t n = 0, whole = frame + w->size, at = w->at % whole;
	for (size_t i = w->at / whole; i < w->present; i++, at = 0) {
		size_t of_payload = at > frame ? at - frame : 0;
		if (at < frame)
			v[n++] = (struct iovec){w->header + at, frame - at};
		v[n++] = (struct iovec){w->memory + of_payload, w->size - of_payload};
	}
	struct msghdr m = {.msg_iov = v, .msg_iovlen = n};
	ssize_t k = out ? sendmsg(w->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) : recvmsg(w->fd, &m, MSG_DONTWAIT);
	if (k < 0 && errno != EAGAIN && errno != EINTR)
		die(out ? "sendmsg" : "recvmsg");
	if (k == 0)
		gone();
	if (k > 0 && (w->at += (size_t)k) == w->present * whole) {
		w->messages += w->present;
		w->since += w->present * w->size;
		w->at = 0;
	}
	return k;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* acknowledged_each is what one frame back is for: see AckStride in internal/link/pacing. */
static size_t acknowledged_each(size_t size)
{
	return size <= least_acknowledged && 2 * size > least_acknowledged ? 2 * size : least_acknowledged;
}

/* may is how many messages go out now: as many as make up one frame back. */
static size_t may(const struct way *w)
{
	size_t room = in_flight - (size_t)(w->messages - w->acked), left = (size_t)(w->count - w->messages);
	size_t whole = acknowledged_each(w->size) / w->size;
	return least(least(room, left), least(whole ? whole : 1, together));
}

/* post sends, and looks for what came back only where it cannot. */
static int post(struct way *w)
{
	if (w->at == 0)
		w->present = may(w);
	if (w->present && move(w, 1) > 0)
		return 1;
	if (w->acked == w->count)
		return 0;
	ssize_t k = some(w->fd, w->back + w->back_at, frame - w->back_at, 0);
	if (k < 0)
		return 0;
	if ((w->back_at += (size_t)k) == frame) {
		w->back_at = 0;
		memcpy(&w->acked, w->back, sizeof w->acked);
	}
	return 1;
}

static int take(struct way *w)
{
	w->present = 1;
	if (w->messages == w->count || move(w, 0) < 0)
		return 0;
	if (w->since >= acknowledged_each(w->size) || (w->messages == w->count && w->since > 0)) {
		w->since = 0;
		memcpy(w->back, &w->messages, sizeof w->messages);
		all(w->fd, w->back, frame, 1, 1);
	}
	return 1;
}

/* run moves all that is to be moved, and says when what counts began and was over. Either way may be NULL. */
static struct span run(struct way *out, struct way *in, uint64_t before, uint64_t count)
{
	struct span s = {0, 0};
	count += before;
	if (out)
		out->count = count;
	if (in)
		in->count = count;
	while ((out && out->acked < count) || (in && in->messages < count)) {
		int moved = out ? post(out) : 0;
		moved |= in ? take(in) : 0;
		if (!moved)
			idle(1);
		if (s.begun == 0 && ((out && out->acked >= before) || (in && in->messages >= before)))
			s.begun = now();
	}
	s.ended = now();
	return s;
}

struct order {
	uint64_t size, warm, count, both, more; /* more is how many connections, or pairs of them, come after this one */
};

static struct way *begin(int fd, uint64_t size, char *memory)
{
	struct way *w = zeroed(sizeof *w);
	near_by(fd);
	w->fd = fd, w->size = size, w->memory = memory;
	return w;
}

static void end(struct way *w)
{
	if (!w)
		return;
	close(w->fd);
	free(w);
}

/* client serves one until no more connections come. */
static void client(int l)
{
	char byte = 0;
	struct order o;
	do {
		int fd = accepted(l);
		all(fd, (char *)&o, sizeof o, 0, 1);
		char *to = shared(o.size), *from = o.both ? zeroed(o.size) : NULL;
		all(fd, &byte, 1, 1, 1); /* it looks from here on, see raw.c */
		struct way *in = begin(fd, o.size, to), *out = NULL;
		if (o.both)
			out = begin(accepted(l), o.size, from);
		run(out, in, o.warm, o.count);
		(void)!recv(fd, &byte, 1, 0); /* the client's end: it has read all */
		end(in);
		end(out);
		munmap(to, o.size);
		free(from);
	} while (o.more > 0);
}

static void tcp(char **v)
{
	long port = number(v[1], 1);
	struct order o = {.size = (uint64_t)number(v[2], least_acknowledged / in_flight), .count = (uint64_t)number(v[3], 10), .both = 1};
	o.warm = warm(o.count);
	char *from = zeroed(o.size), *to = shared(o.size), byte;
	double rates[connections];
	for (int k = 0; k < connections; k++) {
		int fd = dial(v[0], port);
		o.more = (uint64_t)(connections - 1 - k);
		all(fd, (char *)&o, sizeof o, 1, 1);
		all(fd, &byte, 1, 0, 1);
		struct way *out = begin(fd, o.size, from), *in = begin(dial(v[0], port), o.size, to);
		rates[k] = rate(2 * (double)o.size * (double)o.count, run(out, in, o.warm, o.count));
		end(out);
		end(in);
	}
	print_rate("bidir", "acknowledged", o.size, rates, connections);
}

static void sent(char **far, long size, long count)
{
	struct order o = {.size = (uint64_t)size, .warm = warm((uint64_t)count), .count = (uint64_t)count};
	if (o.size < least_acknowledged / in_flight)
		usage();
	char *from = zeroed(o.size), byte;
	int fd = dial(far[0], number(far[1], 1));
	all(fd, (char *)&o, sizeof o, 1, 1);
	all(fd, &byte, 1, 0, 1);
	struct way *out = begin(fd, o.size, from);
	printf("%.1f\n", rate((double)o.size * (double)o.count, run(out, NULL, o.warm, o.count)));
	end(out);
	free(from);
}

/* Imports. */

enum { page = 4096, packet = 200, most = 8 };

struct fds {
	int n, fd[most];
};

static int serves; /* this process is not the one that measures */

static void hand(int s, const struct fds *f)
{
	char b[packet] = {0};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof f->fd)] = {0};
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)f->n)};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)f->n);
	memcpy(CMSG_DATA(h), f->fd, sizeof(int) * (size_t)f->n);
	if (sendmsg(s, &m, MSG_NOSIGNAL) != packet)
		die("sendmsg");
}

/* given is 0 where there is no packet. */
static int given(int s, struct fds *f)
{
	char b[packet];
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof f->fd)];
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	ssize_t k = recvmsg(s, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (k == 0) /* in the child that serves: all is done */
		serves ? _exit(0) : gone();
	if (k < 0) {
		if (errno != EAGAIN && errno != EINTR)
			die("recvmsg");
		return 0;
	}
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	f->n = h ? (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
	if (h)
		memcpy(f->fd, CMSG_DATA(h), sizeof(int) * (size_t)f->n);
	return 1;
}

static void drop(struct fds *f)
{
	for (int i = 0; i < f->n; i++)
		close(f->fd[i]);
	f->n = 0;
}

/* file is a page that is sealed and touched, as all that is shared. */
static int file(char **at)
{
	int fd = memfd_create("floor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, page) || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
		die("memfd");
	*at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*at == MAP_FAILED)
		die("mmap");
	**at = 1;
	return fd;
}

static char *mapped(int fd)
{
	char *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	p[64] = 1;
	return p;
}

static int waits_for(int a, int b)
{
	int e = epoll_create1(EPOLL_CLOEXEC);
	int s[2] = {a, b};
	for (int i = 0; i < 2 && s[i] >= 0; i++) {
		struct epoll_event v = {.events = EPOLLIN | EPOLLET, .data.fd = s[i]};
		if (e < 0 || epoll_ctl(e, EPOLL_CTL_ADD, s[i], &v))
			die("epoll");
	}
	return e;
}

/* daemon_of passes on what comes from either. */
static void daemon_of(int importer, int exporter)
{
	struct epoll_event v[2];
	struct fds f;
	for (int e = waits_for(importer, exporter);;) {
		int n = epoll_wait(e, v, 2, -1);
		for (int i = 0; i < n; i++)
			while (given(v[i].data.fd, &f)) {
				hand(v[i].data.fd == importer ? exporter : importer, &f);
				drop(&f);
			}
	}
}

/* exporter gives, for the importer's pages, its own, its buffer, and a socket. */
static void exporter(int s)
{
	struct epoll_event v;
	struct fds f;
	char *own, *buffer, *back = NULL, *maps[2] = {NULL, NULL};
	int process = file(&own), exported = file(&buffer), pair[2] = {-1, -1}, back_file = -1;
	for (int e = waits_for(s, -1);;) {
		epoll_wait(e, &v, 1, -1);
		while (given(s, &f)) {
			char *old[3] = {maps[0], maps[1], back}; /* of the link before, which ends after the answer */
			int ended[2] = {back_file, pair[0]};
			for (int i = 0; i < 2; i++)
				maps[i] = mapped(f.fd[i]);
			drop(&f);
			back_file = file(&back);
			if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
				die("socketpair");
			hand(s, &(struct fds){4, {exported, process, back_file, pair[1]}});
			close(pair[1]);
			for (int i = 0; i < 3 && old[i]; i++)
				munmap(old[i], page);
			for (int i = 0; i < 2 && ended[i] >= 0; i++)
				close(ended[i]);
		}
	}
}

static void import(long count)
{
	int near[2], far[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, near) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, far))
		die("socketpair");
	alarm(patience);
	pid_t d = fork();
	if (d == 0) {
		serves = 1;
		alarm(patience);
		close(near[0]), close(far[1]);
		daemon_of(near[1], far[0]);
	}
	pid_t x = fork();
	if (x == 0) {
		serves = 1;
		alarm(patience);
		close(near[0]), close(near[1]), close(far[0]);
		exporter(far[1]);
	}
	if (d < 0 || x < 0)
		die("fork");
	close(near[1]), close(far[0]), close(far[1]);
	char *own, *ring, *maps[3];
	int process = file(&own);
	double *times = zeroed((size_t)count * sizeof *times);
	for (long k = -count / 10; k < count; k++) {
		struct fds f;
		usleep(500); /* the others sleep when it comes */
		double start = now();
		int ring_file = file(&ring);
		hand(near[0], &(struct fds){2, {process, ring_file}});
		close(ring_file);
		while (!given(near[0], &f))
			idle(1);
		for (int i = 0; i < 3; i++)
			maps[i] = mapped(f.fd[i]);
		for (int i = 0; i < 3; i++)
			munmap(maps[i], page);
		munmap(ring, page);
		drop(&f);
		if (k >= 0)
			times[k] = 2 * (now() - start); /* print_latency halves it */
	}
	close(near[0]);
	waitpid(d, NULL, 0);
	waitpid(x, NULL, 0);
	print_latency("import", "looking", -1, page, times, count, 0);
}

int main(int n, char **v)
{
	if (n == 3 && !strcmp(v[1], "serve"))
		client(listening(v[2]));
	else if (n > 2 && !strcmp(v[1], "peer"))
		peer(n - 2, v + 2, client, sent, NULL);
	else if (n == 6 && !strcmp(v[1], "tcp"))
		tcp(v + 2);
	else if (n == 3 && !strcmp(v[1], "import"))
		import(number(v[2], 10));
	else
		usage();
	return 0;
}
