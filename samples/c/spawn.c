/* spawn spawns itself on the next node, a level lower, until the level is 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sample.h"

enum { DEEPEST = 256 };

static void print(const char *at, int levels)
{
    static const char *const columns[] = {"level", "node", "process", "ms to spawn the next",
                                          NULL};
    char node[256], l[32], p[32];
    double level, pid, took;
    int i;

    table_header(columns);
    for (i = 0; i <= levels; i++) {
        if ((at = find_number(at, "level", &level)) == NULL ||
            (at = find_string(at, "Node", node, sizeof node)) == NULL ||
            (at = find_number(at, "PID", &pid)) == NULL)
            fail("the result of the processes below is not understood");
        took = 0;
        if (level > 0 && (at = find_number(at, "ms_to_spawn", &took)) == NULL)
            fail("the result of the processes below is not understood");
        table_row(columns, format_text(l, sizeof l, "%.0f", level), node,
                  format_text(p, sizeof p, "%.0f", pid), level > 0 ? figure(took) : "-");
    }
}

int main(int argc, char **argv)
{
    struct text t = {NULL, 0, 0}, below = {NULL, 0, 0};
    struct flags f;
    struct rank self;
    char next[32], *args[2] = {next, NULL};
    long level = 1;
    double start;

    memset(&f, 0, sizeof f);
    f.program = "spawn";
    f.usage = "[level]";
    f.help = "Spawn this program on the next node with level-1, until level is 0. The default\n"
             "level is 1. Each process tells its parent which were spawned below it; the table\n"
             "says how long it took from the call of vmmc_Spawn until the two knew each other.";
    parse_flags(&f, argc, argv, 0, 1);
    if (f.nargs > 0)
        level = number_arg(&f, 0, "level", 0, DEEPEST);
    join_node(&f);
    if (f.peer)
        follow();
    self.node = vmmc_MyNode();
    self.pid = vmmc_MyPid();
    put(&t, "[{\"level\":%ld,\"process\":", level);
    put_process(&t, self);
    if (level > 0) {
        const char *at;
        double lower;
        int n = 0;
        start = seconds();
        format_text(next, sizeof next, "%ld", level - 1);
        lead(2, args);
        put(&t, ",\"ms_to_spawn\":%.9g", (seconds() - start) * 1e3);
        gather(1, &below);
        for (at = below.bytes; (at = find_number(at, "level", &lower)) != NULL; n++)
            ;
        if (n != level)
            fail("%d processes were spawned, wanted %ld", n, level);
        dismiss();
        put(&t, "},%s", below.bytes + 1); /* the array below without its bracket */
    } else {
        put(&t, "}]");
    }
    if (f.peer)
        report(&t);
    if (f.json)
        printf("%s\n", t.bytes);
    else
        print(t.bytes, (int)level);
    return 0;
}
