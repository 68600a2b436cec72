/*
 * Both ends of calls by C's own RPC over TCP: rpcgen's stubs and libtirpc, as programs use them.
 *
 *   null serve PATH HOST   prints where it listens, and serves until its input ends
 *   null call ADDRESS      for each line of its input, a number, makes so many calls and prints how
 *                          many nanoseconds each took, as an array of JSON
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <rpc/rpc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "null.h"

void bench_1(struct svc_req *, SVCXPRT *);

static void die(const char *what)
{
	fprintf(stderr, "libtirpc's end: %s: %s\n", what, strerror(errno));
	exit(1);
}

void *benchnull_1_svc(void *arg, struct svc_req *req)
{
	static char nothing;
	(void)arg;
	(void)req;
	return &nothing;
}

static void address(struct sockaddr_in *at, const char *host, int port)
{
	memset(at, 0, sizeof *at);
	at->sin_family = AF_INET;
	at->sin_port = htons((uint16_t)port);
	errno = EINVAL;
	if (inet_pton(AF_INET, host, &at->sin_addr) != 1)
		die(host);
}

static void serve(const char *host)
{
	struct sockaddr_in at;
	socklen_t len = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	address(&at, host, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 8) ||
	    getsockname(fd, (struct sockaddr *)&at, &len))
		die("listen");
	SVCXPRT *all = svc_vc_create(fd, 0, 0);
	if (!all || !svc_reg(all, BENCH, BENCHVERS, bench_1, NULL))
		die("register");
	printf("%s:%d\n", host, ntohs(at.sin_port));
	fflush(stdout);
	for (;;) { /* what svc_run does, and standard input */
		struct pollfd fds[64];
		int n = svc_max_pollfd;
		char c;
		if (n >= (int)(sizeof fds / sizeof *fds))
			n = sizeof fds / sizeof *fds - 1;
		memcpy(fds, svc_pollfd, (size_t)n * sizeof *fds);
		fds[n].fd = 0;
		fds[n].events = POLLIN;
		fds[n].revents = 0;
		int ready = poll(fds, (nfds_t)n + 1, -1);
		if (ready < 0 && errno != EINTR)
			die("poll");
		if (ready <= 0)
			continue;
		if (fds[n].revents) {
			if (read(0, &c, 1) <= 0)
				exit(0);
			ready--;
		}
		if (ready > 0)
			svc_getreq_poll(fds, ready);
	}
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void call(char *where)
{
	struct sockaddr_in at;
	char *port = strrchr(where, ':');
	int fd = RPC_ANYSOCK, n;

	errno = EINVAL;
	if (!port)
		die(where);
	*port++ = 0;
	address(&at, where, atoi(port));
	CLIENT *c = clnttcp_create(&at, BENCH, BENCHVERS, &fd, 0, 0);
	if (!c) {
		clnt_pcreateerror("libtirpc's end: connect");
		exit(1);
	}
	while (scanf("%d", &n) == 1) {
		for (int i = 0; i < n; i++) {
			int64_t start = now();
			if (!benchnull_1(NULL, c)) {
				clnt_perror(c, "libtirpc's end: call");
				exit(1);
			}
			printf("%c%lld", i ? ',' : '[', (long long)(now() - start));
		}
		printf("]\n");
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "serve"))
		serve(argv[3]);
	if (argc != 3 || strcmp(argv[1], "call")) {
		fprintf(stderr, "libtirpc's end: called wrongly; its source says how\n");
		return 2;
	}
	call(argv[2]);
	return 0;
}
