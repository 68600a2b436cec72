/* all2all measures the bandwidth of messages from all nodes to all others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sample.h"

enum { BURST = 1024 }; /* iterations at most */

static int nodes, pairwise;
static uint32 words, first; /* first is the number of the burst's first iteration */
static int32 *memory;       /* the messages of a burst, iteration by iteration */
static struct random order;

/* This rank's message of an iteration to rank r. */
static int32 *message(uint32 i, int r)
{
    return memory + ((size_t)i * (size_t)nodes + (size_t)r) * words;
}

/* In step k a rank sends to the k-th after it, and awaits the message of the k-th before it. */
static void iterate_pairwise(uint32 i)
{
    int k;

    for (k = 1; k < nodes; k++) {
        int to = (run.rank + k) % nodes, from = (run.rank - k + nodes) % nodes;
        pair_send(&mesh.pairs[to], message(i, to), words);
        pair_receive(&mesh.pairs[from]);
    }
}

/* A rank sends to all others in an order of its own, then awaits the messages of all. */
static void iterate_random(uint32 i)
{
    int to[MAX_NODES], k;

    permute(&order, to, nodes - 1);
    for (k = 0; k < nodes - 1; k++) {
        int r = (run.rank + 1 + to[k]) % nodes;
        pair_send(&mesh.pairs[r], message(i, r), words);
    }
    for (k = 0; k < nodes; k++)
        if (k != run.rank)
            pair_receive(&mesh.pairs[k]);
}

/* Does n iterations and returns the time that took. */
static double burst(uint32 n)
{
    double start, took;
    uint32 i;
    int r;

    for (i = 0; i < n; i++)
        for (r = 0; r < nodes; r++)
            if (r != run.rank)
                mesh_fill(r, first + i, message(i, r), words);
    mesh_barrier();
    start = seconds();
    for (i = 0; i < n; i++) {
        if (pairwise)
            iterate_pairwise(i);
        else
            iterate_random(i);
    }
    mesh_barrier(); /* all have all */
    took = seconds() - start;
    for (r = 0; r < nodes; r++) {
        struct pair *p = &mesh.pairs[r];
        if (r == run.rank)
            continue;
        for (i = 0; i < n; i++)
            mesh_check(r, first + i, pair_received(p, n - 1 - i) + p->stride - words, words);
        pair_free(p);
    }
    first += n;
    return took;
}

static double measure(long iterations)
{
    uint32 places = places_for(words, nodes - 1, BURST);
    double took = 0;
    long left;

    if ((long)places > iterations)
        places = iterations < 2 ? 2 : (uint32)iterations;
    mesh_open(room_for(words, places));
    mesh_lay(words, places);
    order = seeded(run.flags->seed, (uint64_t)run.rank);
    memory = malloc((size_t)places * (size_t)nodes * words * WORD);
    if (memory == NULL)
        fail("no memory for a burst of messages");
    burst((long)places < iterations ? places : (uint32)iterations);
    memset(&mesh.checked, 0, sizeof mesh.checked);
    for (left = iterations; left > 0;) {
        uint32 n = (long)places < left ? places : (uint32)left;
        took += burst(n);
        left -= n;
    }
    return took;
}

static void gather_checked(uint64_t messages)
{
    int r;

    for (r = 1; r < nodes; r++) {
        struct text t = {NULL, 0, 0};
        double m, w;
        const char *at;
        gather(r, &t);
        if ((at = find_number(t.bytes, "messages", &m)) == NULL ||
            find_number(at, "words", &w) == NULL)
            fail("the result of %s is not understood: %s", name_of_rank(r), t.bytes);
        mesh.checked.messages += (uint64_t)m;
        mesh.checked.words += (uint64_t)w;
        free(t.bytes);
    }
    if (mesh.checked.messages != messages)
        fail("%llu messages were checked, %llu were sent",
             (unsigned long long)mesh.checked.messages, (unsigned long long)messages);
}

static void print_json(const struct flags *f, long iterations, const struct speed *s)
{
    struct text t = {NULL, 0, 0};

    put(&t, "[\n  {\n    \"program\": \"%s\",\n    \"method\": \"%s\",\n", f->program, f->args[0]);
    put_ranks(&t, "    ");
    put(&t, "    \"seed\": %llu,\n    \"iterations\": %ld,\n", (unsigned long long)f->seed,
        iterations);
    put_speed(&t, s, "    ");
    put(&t,
        "    \"mb_per_s_per_process\": %.9g,\n"
        "    \"checked\": {\"messages\": %llu, \"words\": %llu}\n  }\n]\n",
        s->mbps / nodes, (unsigned long long)mesh.checked.messages,
        (unsigned long long)mesh.checked.words);
    fputs(t.bytes, stdout);
    free(t.bytes);
}

static void print(const struct flags *f, long iterations, const struct speed *s)
{
    static const char *const columns[] = {"words",      "bytes", "messages",
                                          "µs/message", "MB/s",  "MB/s per process", NULL};
    char w[32], b[32], m[32];
    int r;

    printf("%s %s among %d processes, %ld iterations, seed %llu\n", f->program, f->args[0], nodes,
           iterations, (unsigned long long)f->seed);
    table_header(columns);
    table_row(columns, format_text(w, sizeof w, "%llu", (unsigned long long)s->words),
              format_text(b, sizeof b, "%llu", (unsigned long long)s->bytes),
              format_text(m, sizeof m, "%llu", (unsigned long long)s->messages),
              figure(s->micros), figure(s->mbps), figure(s->mbps / nodes));
    for (r = 0; r < nodes; r++)
        printf("rank %d: %s\n", r, name_of_process(run.ranks[r]));
    printf("checked: %llu words in %llu messages, all as they were sent\n",
           (unsigned long long)mesh.checked.words, (unsigned long long)mesh.checked.messages);
}

int main(int argc, char **argv)
{
    struct text t = {NULL, 0, 0};
    struct flags f;
    struct speed s;
    uint64_t messages;
    long iterations;
    double took;

    memset(&f, 0, sizeof f);
    f.program = "all2all";
    f.usage = "method numberofnodes numberofwords numberofiterations";
    f.help =
        "Measure the bandwidth of messages from all nodes to all others. In each iteration\n"
        "each process sends one message to each other one. The method is the order:\n\n"
        "  pairwise  in step k a process sends to the k-th after it, and awaits the message of\n"
        "            the k-th before it, so that all are busy with one other at a time\n"
        "  random    each sends to all others in an order of its own, drawn anew each time,\n"
        "            then awaits the messages of all\n\n"
        "Messages are made before the clock starts and checked, word by word, after it has\n"
        "stopped, after a burst of iterations that warms up. A MB is 1 000 000 bytes.";
    f.seeded = 1;
    parse_flags(&f, argc, argv, 4, 4);
    pairwise = strcmp(f.args[0], "pairwise") == 0;
    if (!pairwise && strcmp(f.args[0], "random") != 0)
        misused(&f, "method \"%s\": wanted pairwise or random", f.args[0]);
    nodes = (int)number_arg(&f, 1, "numberofnodes", 2, MAX_NODES);
    words = (uint32)number_arg(&f, 2, "numberofwords", 1, MAX_WORDS);
    iterations = number_arg(&f, 3, "numberofiterations", 1, MAX_ITERATIONS);
    check_memory(&f, nodes, words);
    join_node(&f);
    if (f.peer)
        follow();
    else
        lead(nodes, f.args);
    took = measure(iterations);
    if (run.rank != 0) {
        put(&t, "{\"messages\":%llu,\"words\":%llu}", (unsigned long long)mesh.checked.messages,
            (unsigned long long)mesh.checked.words);
        report(&t);
    }
    messages = (uint64_t)iterations * (uint64_t)nodes * (uint64_t)(nodes - 1);
    gather_checked(messages);
    s = speed_of(words, messages, took);
    if (f.json)
        print_json(&f, iterations, &s);
    else
        print(&f, iterations, &s);
    dismiss();
    return 0;
}
