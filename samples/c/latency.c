/* latency measures how long a message takes from one node to another. */
#include <stdio.h>
#include <string.h>

#include "common/sample.h"

static void show(const struct point *p)
{
    (void)p;
}

static void print(const struct flags *f, long iterations, const struct point *p)
{
    static const char *const columns[] = {"words",         "bytes", "iterations", "one way µs",
                                          "round trip µs", "MB/s",  NULL};
    char w[32], b[32], it[32];

    printf("%s between %s and %s, seed %llu\n", f->program, name_of_process(run.ranks[0]),
           name_of_process(run.ranks[1]), (unsigned long long)f->seed);
    table_header(columns);
    table_row(columns, format_text(w, sizeof w, "%llu", (unsigned long long)p->speed.words),
              format_text(b, sizeof b, "%llu", (unsigned long long)p->speed.bytes),
              format_text(it, sizeof it, "%ld", iterations), figure(p->speed.micros),
              figure(2 * p->speed.micros), figure(p->speed.mbps));
    printf("checked: %llu words in %llu messages, all as they were sent\n",
           (unsigned long long)p->checked.words, (unsigned long long)p->checked.messages);
}

int main(int argc, char **argv)
{
    struct text t = {NULL, 0, 0};
    char more[120];
    struct point p;
    struct flags f;
    uint32 words;
    long iterations;

    memset(&f, 0, sizeof f);
    f.program = "latency";
    f.usage = "numberofwords numberofiterations";
    f.help = "Measure the latency of single messages between two nodes by ping-pong: the time\n"
             "for one way is half that of a round trip, on average over all iterations, after a\n"
             "burst that warms up. Messages are made before the clock starts and checked, word by\n"
             "word, after it has stopped.";
    f.seeded = 1;
    parse_flags(&f, argc, argv, 2, 2);
    words = (uint32)number_arg(&f, 0, "numberofwords", 1, MAX_WORDS);
    iterations = number_arg(&f, 1, "numberofiterations", 1, MAX_ITERATIONS);
    join_node(&f);
    if (f.peer)
        follow();
    else
        lead(2, f.args);
    curve_measure(&ping_pong, &words, 1, iterations, &p, show);
    if (f.json) {
        put_point(&t, f.program, iterations, &p,
                  format_text(more, sizeof more,
                              ",\n    \"us_one_way\": %.9g,\n    \"us_round_trip\": %.9g",
                              p.speed.micros, 2 * p.speed.micros));
        printf("[\n%s\n]\n", t.bytes);
    } else {
        print(&f, iterations, &p);
    }
    dismiss();
    return 0;
}
