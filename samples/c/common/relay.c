/*
 * The programs that send messages along a route through all ranks. Each rank draws the same route
 * from the seed and does its part. What was sent and received is recorded, must agree, and is
 * checked against the manual's pattern.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

enum {
    AHEAD = 8,    /* messages to one rank that may be waiting there */
    MOST = 4 << 20, /* messages of a run */
    SHOWN = 12    /* messages that are printed */
};

struct message {
    uint32 step;
    int from, to;
    uint32 place; /* in its step, at its sender */
};

struct messages {
    struct message *all;
    size_t n, room;
};

static const char *const patterns[] = {"A->B, B->C, ..., X->A",
                                       "A->others, others->B, B->others, ..., others->A",
                                       "All->All, All->All, ..."};
static enum route kind;
static long nodes, words, iterations;
static struct messages sent, received;

static void add(struct messages *m, uint32 step, int from, int to)
{
    if (m->n == m->room) {
        m->room = 2 * m->room + 64;
        m->all = realloc(m->all, m->room * sizeof *m->all);
        if (m->all == NULL)
            fail("no memory for %lu messages of a route", (unsigned long)m->room);
    }
    m->all[m->n].step = step;
    m->all[m->n].from = from;
    m->all[m->n].to = to;
    m->all[m->n++].place = 0;
}

/* All ranks but one, in random order. */
static void others(struct random *r, int but, int *out)
{
    int i;

    permute(r, out, (int)nodes - 1);
    for (i = 0; i < nodes - 1; i++)
        out[i] += out[i] >= but;
}

static void hop(struct random *r, struct messages *m, uint32 *step, int from, int to)
{
    int order[MAX_NODES], i;

    if (kind == CHAIN) {
        add(m, (*step)++, from, to);
        return;
    }
    others(r, from, order);
    for (i = 0; i < nodes - 1; i++)
        add(m, *step, from, order[i]);
    others(r, to, order);
    for (i = 0; i < nodes - 1; i++)
        add(m, *step + 1, order[i], to);
    *step += 2;
}

/*
 * Draws a route. In a chain, and with one to all, each iteration draws a rank that is not the one
 * before it; if the last one is not the master, the master follows.
 */
static void draw_route(struct messages *m)
{
    struct random r = seeded(run.flags->seed, (uint64_t)nodes);
    int order[MAX_NODES * MAX_NODES], at = 0, pairs = (int)(nodes * (nodes - 1)), k;
    uint32 step = 0;
    long i;

    for (i = 0; i < iterations; i++) {
        if (kind == ALL2ALL) {
            permute(&r, order, pairs);
            for (k = 0; k < pairs; k++) {
                int from = order[k] / (int)(nodes - 1), to = order[k] % (int)(nodes - 1);
                add(m, (uint32)i, from, to + (to >= from));
            }
            continue;
        }
        k = (int)draw(&r, (uint64_t)nodes - 1);
        k += k >= at;
        hop(&r, m, &step, at, k);
        at = k;
    }
    if (at != 0)
        hop(&r, m, &step, at, 0);
}

/* In a step a rank sends before it awaits anything. */
static void walk(const struct messages *m)
{
    int32 *message = malloc((size_t)words * WORD);
    size_t begin, end, i;

    if (message == NULL)
        fail("no memory for a message of %ld words", words);
    for (begin = 0; begin < m->n; begin = end) {
        for (end = begin; end < m->n && m->all[end].step == m->all[begin].step; end++)
            ;
        for (i = begin; i < end; i++) {
            const struct message *s = &m->all[i];
            if (s->from != run.rank)
                continue;
            mesh_fill(s->to, s->step, message, (uint32)words);
            pair_send(&mesh.pairs[s->to], message, (uint32)words);
            add(&sent, s->step, s->from, s->to);
        }
        for (i = begin; i < end; i++) {
            const struct message *s = &m->all[i];
            struct pair *p = &mesh.pairs[s->from];
            if (s->to != run.rank)
                continue;
            /* The content depends on the step, so what is recorded is what has come. */
            mesh_check(s->from, s->step, pair_receive(p) + p->stride - words, (uint32)words);
            pair_free(p);
            add(&received, s->step, s->from, s->to);
        }
    }
    free(message);
}

static void put_messages(struct text *t, const char *name, const struct messages *m)
{
    size_t i;

    put(t, "\"%s\":[", name);
    for (i = 0; i < m->n; i++)
        put(t, "%s{\"step\":%lu,\"from\":%d,\"to\":%d}", i == 0 ? "" : ",",
            (unsigned long)m->all[i].step, m->all[i].from, m->all[i].to);
    put(t, "]");
}

static const char *take_messages(const char *at, const char *name, struct messages *m)
{
    char quoted[40];
    double step, from, to;

    at = strstr(at, format_text(quoted, sizeof quoted, "\"%s\":", name));
    if (at == NULL)
        return NULL;
    at += strlen(quoted);
    if (*at != '[') /* null: there are none */
        return at;
    while (*++at == '{') {
        if ((at = find_number(at, "step", &step)) == NULL ||
            (at = find_number(at, "from", &from)) == NULL ||
            (at = find_number(at, "to", &to)) == NULL || *at++ != '}')
            return NULL;
        add(m, (uint32)step, (int)from, (int)to);
        if (*at != ',')
            break;
    }
    return at;
}

/* Adds what the other ranks have done to what this one has. */
static void gather_all(void)
{
    int r;

    for (r = 1; r < run.nranks; r++) {
        struct text t = {NULL, 0, 0};
        double messages, checked;
        const char *at;
        gather(r, &t);
        if ((at = take_messages(t.bytes, "sent", &sent)) == NULL ||
            (at = take_messages(at, "received", &received)) == NULL ||
            (at = find_number(at, "messages", &messages)) == NULL ||
            find_number(at, "words", &checked) == NULL)
            fail("the result of %s is not understood", name_of_rank(r));
        mesh.checked.messages += (uint64_t)messages;
        mesh.checked.words += (uint64_t)checked;
        free(t.bytes);
    }
}

static int three(long a, long b, long c)
{
    return a != 0 ? (a > 0) - (a < 0) : b != 0 ? (b > 0) - (b < 0) : (c > 0) - (c < 0);
}

static int by_ends(const void *a, const void *b)
{
    const struct message *m = a, *o = b;

    return three((long)m->step - (long)o->step, m->from - o->from, m->to - o->to);
}

static int by_place(const void *a, const void *b)
{
    const struct message *m = a, *o = b;

    return three((long)m->step - (long)o->step, (long)m->place - (long)o->place,
                 m->from - o->from);
}

static void in_step(const char *what, const struct message *m)
{
    fail("message %d->%d of step %lu was %s", m->from, m->to, (unsigned long)m->step, what);
}

/* Puts what all ranks have sent in order, and compares it with what they have received. */
static void join_records(void)
{
    size_t i;

    for (i = 1; i < sent.n; i++)
        if (sent.all[i].from == sent.all[i - 1].from && sent.all[i].step == sent.all[i - 1].step)
            sent.all[i].place = sent.all[i - 1].place + 1;
    qsort(sent.all, sent.n, sizeof *sent.all, by_ends);
    qsort(received.all, received.n, sizeof *received.all, by_ends);
    for (i = 1; i < sent.n; i++)
        if (by_ends(&sent.all[i - 1], &sent.all[i]) == 0)
            in_step("sent twice", &sent.all[i]);
    for (i = 0; i < sent.n && i < received.n; i++) {
        int order = by_ends(&sent.all[i], &received.all[i]);
        if (order < 0)
            in_step("sent and not received", &sent.all[i]);
        if (order > 0)
            in_step("received and not sent, or received twice", &received.all[i]);
    }
    if (sent.n > i)
        in_step("sent and not received", &sent.all[i]);
    if (received.n > i)
        in_step("received and not sent, or received twice", &received.all[i]);
    qsort(sent.all, sent.n, sizeof *sent.all, by_place);
}

/*
 * Checks a step of the recorded route by the manual's pattern, and returns the rank that the next
 * one begins with. It shares nothing with draw_route.
 */
static int check_step(size_t begin, size_t end, uint32 step, int at)
{
    char seen[MAX_NODES * MAX_NODES] = {0};
    int to = sent.all[begin].to, gathers = kind == ONE2ALL && step % 2 == 1;
    size_t i, want = kind == CHAIN ? 1 : kind == ONE2ALL ? (size_t)nodes - 1
                                                         : (size_t)(nodes * (nodes - 1));

    for (i = begin; i < end; i++) {
        const struct message *m = &sent.all[i];
        char *mark = &seen[m->from * MAX_NODES + m->to];
        if (m->step != step || m->from == m->to || (*mark)++)
            in_step("not of the pattern", m);
        if (kind != ALL2ALL && !gathers && m->from != at)
            in_step("not from the rank before", m);
        if (gathers && (m->to != to || m->to == at))
            in_step("not to the one next rank", m);
    }
    if (end - begin != want)
        fail("step %lu has %lu messages, wanted %lu", (unsigned long)step,
             (unsigned long)(end - begin), (unsigned long)want);
    return kind == CHAIN || gathers ? to : at;
}

static void check_route(void)
{
    size_t begin, end;
    uint32 steps = 0, hops;
    int at = 0;

    for (begin = 0; begin < sent.n; begin = end, steps++) {
        for (end = begin; end < sent.n && sent.all[end].step == sent.all[begin].step; end++)
            ;
        at = check_step(begin, end, steps, at);
    }
    hops = kind == ONE2ALL ? steps / 2 : steps;
    if (kind == ONE2ALL && steps % 2 != 0)
        fail("after %lu steps the last one is not answered", (unsigned long)steps);
    if (at != 0)
        fail("the messages end at rank %d, not at the master", at);
    if ((long)hops != iterations && !(kind != ALL2ALL && (long)hops == iterations + 1))
        fail("%lu ranks were chosen in %ld iterations", (unsigned long)hops, iterations);
}

static void put_result(struct text *t, const struct speed *s, const char *indent)
{
    size_t i;

    put(t, "{\n%s\"program\": \"%s\",\n", indent, run.flags->program);
    put_ranks(t, indent);
    put(t, "%s\"seed\": %llu,\n%s\"iterations\": %ld,\n", indent,
        (unsigned long long)run.flags->seed, indent, iterations);
    put_speed(t, s, indent);
    put(t, "%s\"checked\": {\"messages\": %llu, \"words\": %llu},\n%s\"kind\": \"%s\",\n%s", indent,
        (unsigned long long)mesh.checked.messages, (unsigned long long)mesh.checked.words, indent,
        patterns[kind], indent);
    put(t, "\"pattern\": [");
    for (i = 0; i < sent.n; i++)
        put(t, "%s\n%s  {\"step\": %lu, \"from\": %d, \"to\": %d}", i == 0 ? "" : ",", indent,
            (unsigned long)sent.all[i].step, sent.all[i].from, sent.all[i].to);
    put(t, "\n%s]\n%.*s}", indent, (int)strlen(indent) - 2, indent);
}

static void save(const struct speed *s)
{
    struct text t = {NULL, 0, 0};
    FILE *out = fopen(run.flags->file, "w");
    int bad;

    if (out == NULL)
        fail("write %s: %s", run.flags->file, strerror(errno));
    put_result(&t, s, "  ");
    fprintf(out, "%s\n", t.bytes);
    bad = ferror(out);
    if (fclose(out) != 0 || bad)
        fail("write %s: %s", run.flags->file, strerror(errno));
    free(t.bytes);
}

static void print(const struct speed *s)
{
    static const char *const columns[] = {"words",    "bytes",      "iterations",
                                          "messages", "µs/message", "MB/s", NULL};
    char w[32], b[32], it[32], m[32];
    size_t i;
    int r;

    printf("%s among %d processes, seed %llu\n", run.flags->program, run.nranks,
           (unsigned long long)run.flags->seed);
    table_header(columns);
    table_row(columns, format_text(w, sizeof w, "%llu", (unsigned long long)s->words),
              format_text(b, sizeof b, "%llu", (unsigned long long)s->bytes),
              format_text(it, sizeof it, "%ld", iterations),
              format_text(m, sizeof m, "%llu", (unsigned long long)s->messages),
              figure(s->micros), figure(s->mbps));
    for (r = 0; r < run.nranks; r++)
        printf("rank %d: %s\n", r, name_of_process(run.ranks[r]));
    printf("pattern: ");
    for (i = 0; i < sent.n && i < SHOWN; i++)
        printf("%s%d->%d", i == 0 ? "" : sent.all[i].step == sent.all[i - 1].step ? " " : ", ",
               sent.all[i].from, sent.all[i].to);
    printf("%s\nchecked: it is %s\nchecked: %llu words in %llu messages, all as they were sent\n",
           sent.n > SHOWN ? " ..." : "", patterns[kind], (unsigned long long)mesh.checked.words,
           (unsigned long long)mesh.checked.messages);
}

static void relay(const struct flags *f)
{
    struct text t = {NULL, 0, 0};
    struct messages route = {NULL, 0, 0};
    struct speed s;
    uint32 places = places_for((uint32)words, (int)nodes - 1, AHEAD);
    double start;

    mesh_open(room_for((uint32)words, places));
    mesh_lay((uint32)words, places);
    draw_route(&route);
    mesh_barrier();
    start = seconds();
    walk(&route);
    mesh_barrier();
    s.seconds = seconds() - start;
    free(route.all);
    if (run.rank != 0) {
        put(&t, "{");
        put_messages(&t, "sent", &sent);
        put(&t, ",");
        put_messages(&t, "received", &received);
        put(&t, ",\"checked\":{\"messages\":%llu,\"words\":%llu}}",
            (unsigned long long)mesh.checked.messages, (unsigned long long)mesh.checked.words);
        report(&t);
    }
    gather_all();
    join_records();
    check_route();
    s = speed_of((uint64_t)words, sent.n, s.seconds);
    if (f->file != NULL)
        save(&s);
    if (f->json) {
        put(&t, "[\n  ");
        put_result(&t, &s, "    ");
        printf("%s\n]\n", t.bytes);
    } else {
        print(&s);
    }
}

int relay_main(int argc, char **argv, const char *name, const char *rule, enum route k)
{
    char about[1000];
    struct flags f;
    long most;

    memset(&f, 0, sizeof f);
    kind = k;
    f.program = name;
    f.usage = "num_nodes nwords iterations";
    f.help = format_text(about, sizeof about,
                         "Send messages of nwords words %s, where A is\n"
                         "the master and the others are drawn at random. %s\n\n"
                         "Each message is checked word by word where it arrives. Who sent to whom\n"
                         "is recorded and checked against the above. The time is that of the\n"
                         "whole run: it has the making and the checking of the messages in it. A\n"
                         "MB is 1 000 000 bytes.",
                         patterns[k], rule);
    f.file_flag = "pattern";
    f.seeded = 1;
    parse_flags(&f, argc, argv, 3, 3);
    nodes = number_arg(&f, 0, "num_nodes", 2, MAX_NODES);
    words = number_arg(&f, 1, "nwords", 1, MAX_WORDS);
    iterations = number_arg(&f, 2, "iterations", 1, MAX_ITERATIONS);
    check_memory(&f, nodes, words);
    most = k == CHAIN     ? iterations + 1
           : k == ONE2ALL ? 2 * (iterations + 1) * (nodes - 1)
                          : iterations * nodes * (nodes - 1);
    if (most > MOST)
        misused(&f, "%ld iterations: up to %ld messages, at most %d can be recorded", iterations,
                most, MOST);
    join_node(&f);
    if (f.peer)
        follow();
    else
        lead((int)nodes, f.args);
    relay(&f);
    dismiss();
    return 0;
}
