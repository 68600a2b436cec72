/* What the sample programs share. They use the calls of the manual alone; see ../README.md. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <stddef.h>
#include <stdint.h>
#include <vmmc.h>

#define WORD 4u
#define MAX_WORDS (64u << 20 >> 2)
#define MAX_ITERATIONS (1L << 30)
#define MAX_NODES 64

/* flags.c: the command line. */

struct flags {
    const char *program;
    const char *usage;    /* the arguments, as in "num_nodes nwords iterations" */
    const char *help;     /* what the program does */
    const char *file_flag; /* "plot", "pattern", or NULL */
    int seeded;           /* reports whether the program takes --seed */

    int json, peer;
    uint64_t seed;
    double timeout; /* in seconds */
    char timeout_text[32];
    char *file;

    char *args[8]; /* without the flags, and a NULL behind them */
    int nargs;
};

void parse_flags(struct flags *f, int argc, char **argv, int min_args, int max_args);
long number_arg(const struct flags *f, int i, const char *name, long min, long max);
void check_memory(const struct flags *f, long nodes, long words);
void misused(const struct flags *f, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

/* ranks.c and wait.c: the processes of a run. */

struct rank {
    vmmc_node_t node;
    vmmc_pid_t pid;
};

struct text {
    char *bytes;
    size_t length, room;
};

/* The run of this process. There is one. */
struct run {
    const struct flags *flags;
    struct rank ranks[MAX_NODES];
    int nranks, rank;
};

extern struct run run;

void join_node(const struct flags *f);
void lead(int nranks, char **args);
void follow(void);
void gather(int rank, struct text *result);
void report(const struct text *result) __attribute__((noreturn));
void dismiss(void);
void end(void) __attribute__((noreturn));

/*
 * Ends the run: with the reason that a member has told, or with this one. A process that another
 * has spawned tells its parent; the one that a shell has started prints.
 */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void check(vmmc_result_t res, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *name_of_rank(int rank);
const char *name_of_process(struct rank r);

/* Waits until a word of this process's memory differs from old, and returns it. */
uint32 await_word(int32 *word, uint32 old);
uint32 load_word(int32 *word);
void store_word(int32 *word, uint32 value);

/* One round of waiting: looks after the run, and leaves the processor now and then. */
struct waiting {
    unsigned long rounds;
    double since, looked;
};

void wait_a_round(struct waiting *w);
void look_after_run(void);

/* For loops that send or receive without a wait that lasts. Looks after the run every 50 ms. */
void look_now_and_then(void);

double seconds(void);

int32 *exportable(size_t nwords, const char *purpose);
void import_buffer(struct rank from, uint32 id, vmmc_imphandle_t *handle, int32 **proxy,
                   uint32 *nwords);

/* wait.c knows of these. */
extern volatile int dismissed, result_given;
extern char told_failure[1100];
void set_deadline(double after);
void ping_members(void);

/* text.c */

void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *find_number(const char *at, const char *key, double *value);
const char *find_string(const char *at, const char *key, char *to, size_t size);
void put_process(struct text *t, struct rank r);
void put_ranks(struct text *t, const char *indent);
const char *figure(double v);
void table_header(const char *const *names);
void table_row(const char *const *names, ...);
char *format_text(char *to, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct speed {
    uint64_t words, bytes, messages;
    double seconds, mbps, micros;
};

struct speed speed_of(uint64_t words, uint64_t messages, double took);
void put_speed(struct text *t, const struct speed *s, const char *indent);

/* mesh.c: buffers between all ranks. */

struct count {
    uint64_t messages, words;
};

struct pair {
    int32 *mem, *remote;
    uint32 stride, places, *seen, last;
    uint32 sent, received, send_to, receive_at, unused, read;
};

struct mesh {
    int nranks;
    struct pair pairs[MAX_NODES];
    struct count checked;
    uint32 epoch;
};

extern struct mesh mesh;

uint32 places_for(uint32 words, int pairs, uint32 limit);
size_t room_for(uint32 words, uint32 places);
void mesh_open(size_t room);
void mesh_lay(uint32 words, uint32 places);
void mesh_barrier(void);
void mesh_fill(int to, uint32 number, int32 *message, uint32 words);
void mesh_fill_for(int from, int to, uint32 number, int32 *message, uint32 words);
void mesh_check(int from, uint32 number, const int32 *message, uint32 words);
void pair_send(struct pair *p, int32 *message, uint32 words);
int32 *pair_receive(struct pair *p);
int32 *pair_received(struct pair *p, uint32 ago);
int32 *pair_own(struct pair *p, uint32 place);
void pair_fetch(struct pair *p, uint32 place, int32 *to, uint32 words);
void pair_free(struct pair *p);
void pair_confirm(struct pair *p);
void pair_await_confirm(struct pair *p);
void pair_await_free(struct pair *p);

/* random.c: numbers that follow from a seed. */

struct random {
    uint64_t high, low;
};

struct random seeded(uint64_t a, uint64_t b);
uint64_t draw(struct random *r, uint64_t below);
void permute(struct random *r, int *order, int n);
uint64_t mix(uint64_t x);

/* curve.c: messages of several sizes between two ranks. */

struct point {
    struct speed speed;
    struct count checked;
};

struct curve_kind {
    int ways;
    void (*prepare)(void), (*move)(void), (*verify)(void);
};

extern const struct curve_kind ping_pong, oneway, bidir, fetch;

int curve_measure(const struct curve_kind *k, const uint32 *sizes, int nsizes, long iterations,
                  struct point *points, void (*show)(const struct point *));
int bandwidth_main(int argc, char **argv, const char *name, const char *what,
                   const struct curve_kind *k);
void put_point(struct text *t, const char *program, long iterations, const struct point *p,
               const char *more);

/* plot.c: draws a curve as an SVG picture. */
void plot(const char *file, const char *title, const struct point *points, int n);

/* relay.c: routes through all ranks. */

enum route { CHAIN, ONE2ALL, ALL2ALL };

int relay_main(int argc, char **argv, const char *name, const char *rule, enum route kind);

#endif
