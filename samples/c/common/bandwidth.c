/* The programs that draw a curve: the bandwidth between two nodes over the size of a message. */
#include <stdio.h>
#include <string.h>

#include "sample.h"

enum { MOST_SIZES = 32 };

static const char *const columns[] = {"words", "bytes", "MB/s", "µs/message", NULL};
static long iterations;
static int shown;

static void show(const struct point *p)
{
    char w[32], b[32];

    if (run.flags->json)
        return;
    if (!shown++) {
        printf("%s between %s and %s, %ld iterations, seed %llu\n", run.flags->program,
               name_of_process(run.ranks[0]), name_of_process(run.ranks[1]), iterations,
               (unsigned long long)run.flags->seed);
        table_header(columns);
    }
    table_row(columns, format_text(w, sizeof w, "%llu", (unsigned long long)p->speed.words),
              format_text(b, sizeof b, "%llu", (unsigned long long)p->speed.bytes),
              figure(p->speed.mbps), figure(p->speed.micros));
}

static void conclude(const struct flags *f, const struct point *points, int n)
{
    struct text t = {NULL, 0, 0};
    struct count sum = {0, 0};
    int i;

    for (i = 0; i < n; i++) {
        put(&t, i == 0 ? "[\n" : ",\n");
        put_point(&t, f->program, iterations, &points[i], "");
        sum.messages += points[i].checked.messages;
        sum.words += points[i].checked.words;
    }
    if (f->json)
        printf("%s\n]\n", t.bytes);
    else
        printf("checked: %llu words in %llu messages, all as they were sent\n",
               (unsigned long long)sum.words, (unsigned long long)sum.messages);
}

int bandwidth_main(int argc, char **argv, const char *name, const char *what,
                   const struct curve_kind *k)
{
    static struct point points[MOST_SIZES];
    char about[900], title[700];
    struct flags f;
    uint32 sizes[MOST_SIZES];
    long from, to, size;
    int n = 0;

    memset(&f, 0, sizeof f);
    f.program = name;
    f.usage = "iterations start_nwords end_nwords";
    f.help = format_text(about, sizeof about,
                         "Measure the bandwidth of %s.\n\n"
                         "The first message has start_nwords words, and the size doubles up to\n"
                         "end_nwords; each is measured with that many iterations, after a burst\n"
                         "that warms up. Messages are made before the clock starts and checked,\n"
                         "word by word, after it has stopped. A MB is 1 000 000 bytes.",
                         what);
    f.file_flag = "plot";
    f.seeded = 1;
    parse_flags(&f, argc, argv, 3, 3);
    iterations = number_arg(&f, 0, "iterations", 1, MAX_ITERATIONS);
    from = number_arg(&f, 1, "start_nwords", 1, MAX_WORDS);
    to = number_arg(&f, 2, "end_nwords", 1, MAX_WORDS);
    if (to < from)
        misused(&f, "end_nwords %ld is less than start_nwords %ld", to, from);
    if (f.file != NULL && (strlen(f.file) < 4 || strcmp(f.file + strlen(f.file) - 4, ".svg") != 0))
        misused(&f, "--plot %s: the name must end in .svg or .png, and this program draws .svg",
                f.file);
    for (size = from; size <= to; size *= 2)
        sizes[n++] = (uint32)size;
    join_node(&f);
    if (f.peer)
        follow();
    else
        lead(2, f.args);
    curve_measure(k, sizes, n, iterations, points, show);
    if (f.file != NULL) {
        char *a = vmmc_NodeToName(run.ranks[0].node), *b = vmmc_NodeToName(run.ranks[1].node);
        plot(f.file, format_text(title, sizeof title, "%s, %s to %s", name, a, b), points, n);
    }
    conclude(&f, points, n);
    dismiss();
    return 0;
}
