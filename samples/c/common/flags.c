#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sample.h"

void misused(const struct flags *f, const char *format, ...)
{
    va_list ap;

    fprintf(stderr, "%s: ", f->program);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "\nusage: %s %s [flags]\nRun '%s --help' for more.\n", f->program, f->usage,
            f->program);
    exit(2);
}

/* A duration as Go writes it: numbers with units, as in 1h2m3.5s or 300ms. -1 is none. */
static double duration(const char *text)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"µs", 1e-6}, {"ns", 1e-9},
                 {"h", 3600},  {"m", 60},    {"s", 1}};
    double sum = 0;

    if (strcmp(text, "0") == 0)
        return 0;
    if (*text == '\0')
        return -1;
    while (*text != '\0') {
        char *behind;
        double n = strtod(text, &behind);
        size_t i;
        for (i = 0; i < sizeof units / sizeof *units; i++)
            if (strncmp(behind, units[i].name, strlen(units[i].name)) == 0)
                break;
        if (behind == text || *text < '0' || *text > '9' || i == sizeof units / sizeof *units)
            return -1;
        sum += n * units[i].seconds;
        text = behind + strlen(units[i].name);
    }
    return sum;
}

static void help(const struct flags *f)
{
    printf("%s\n\n"
           "It joins the node whose socket VMMC_SOCKET names, and spawns the other processes\n"
           "of the run itself, on the nodes that VMMCHOSTS names (if it is not set, those of the\n"
           "session): from this node on, in that order, and again from the first one if there\n"
           "are too few.\n\n"
           "Exit status: 0 all is well, 1 it failed, 2 it was called wrongly.\n\n"
           "Usage:\n  %s %s [flags]\n\nFlags:\n"
           "      --json           print a JSON array of objects\n"
           "      --timeout time   give up after this time (default 10m0s)\n",
           f->help, f->program, f->usage);
    if (f->seeded)
        printf("      --seed number    draw all that is random from this number (default: a new "
               "one each time)\n");
    if (f->file_flag != NULL && strcmp(f->file_flag, "plot") == 0)
        printf("      --plot file      draw the curve into a file, .svg\n");
    else if (f->file_flag != NULL)
        printf("      --pattern file   write who sent to whom, and the figures, as JSON\n");
    printf("  -h, --help           help for %s\n", f->program);
    exit(0);
}

/* The value of a flag that takes one, or NULL if arg is another flag. */
static char *value_of(const struct flags *f, const char *name, char *arg, char *next,
                      int *used_next)
{
    size_t n = strlen(name);

    if (strncmp(arg, "--", 2) != 0 || strncmp(arg + 2, name, n) != 0)
        return NULL;
    if (arg[2 + n] == '=')
        return arg + 3 + n;
    if (arg[2 + n] != '\0')
        return NULL;
    if (next == NULL)
        misused(f, "flag needs an argument: --%s", name);
    *used_next = 1;
    return next;
}

static void take_flag(struct flags *f, char *arg, char *next, int *used_next)
{
    char *v, *behind;

    if (strcmp(arg, "--json") == 0) {
        f->json = 1;
    } else if (strcmp(arg, "--peer") == 0) {
        f->peer = 1;
    } else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
        help(f);
    } else if ((v = value_of(f, "timeout", arg, next, used_next)) != NULL) {
        f->timeout = duration(v);
        if (f->timeout <= 0)
            misused(f, "--timeout %s: wanted a time of more than 0", v);
        snprintf(f->timeout_text, sizeof f->timeout_text, "%s", v);
    } else if (f->seeded && (v = value_of(f, "seed", arg, next, used_next)) != NULL) {
        f->seed = strtoull(v, &behind, 10);
        if (*v < '0' || *v > '9' || *behind != '\0')
            misused(f, "--seed %s: wanted a number", v);
    } else if (f->file_flag != NULL &&
               (v = value_of(f, f->file_flag, arg, next, used_next)) != NULL) {
        f->file = v;
    } else {
        misused(f, "unknown flag: %s", arg);
    }
}

void parse_flags(struct flags *f, int argc, char **argv, int min_args, int max_args)
{
    int i, only_args = 0, given = 0;

    f->timeout = 600;
    strcpy(f->timeout_text, "10m0s");
    /* Drawn anew, and short enough to be typed again. */
    f->seed = mix((uint64_t)time(NULL) << 20 ^ (uint64_t)getpid() ^
                  (uint64_t)(seconds() * 1e9)) >> 32;
    for (i = 1; i < argc; i++) {
        int used_next = 0;
        if (!only_args && strcmp(argv[i], "--") == 0) {
            only_args = 1;
        } else if (!only_args && argv[i][0] == '-' && argv[i][1] != '\0') {
            take_flag(f, argv[i], argv[i + 1], &used_next);
            i += used_next;
        } else {
            if (given < max_args)
                f->args[given] = argv[i];
            given++;
        }
    }
    if (given < min_args || given > max_args) {
        if (min_args == max_args)
            misused(f, "accepts %d arg(s), received %d", max_args, given);
        misused(f, "accepts at most %d arg(s), received %d", max_args, given);
    }
    f->nargs = given;
    f->args[given] = NULL;
}

long number_arg(const struct flags *f, int i, const char *name, long min, long max)
{
    char *behind;
    long v = strtol(f->args[i], &behind, 10);

    if (f->args[i][0] == '\0' || *behind != '\0' || v < min || v > max)
        misused(f, "%s \"%s\": wanted a number from %ld to %ld", name, f->args[i], min, max);
    return v;
}

/* A rank would need more than 1 GiB for what the others send to it. */
void check_memory(const struct flags *f, long nodes, long words)
{
    long most = 8 * (long)MAX_WORDS / (nodes - 1);

    if (words > most)
        misused(f, "%ld words: with %ld nodes a message has at most %ld", words, nodes, most);
}
