#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

char *format_text(char *to, size_t size, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(to, size, format, ap);
    va_end(ap);
    return to;
}

/* Appends to a text, which grows as needed. */
void put(struct text *t, const char *format, ...)
{
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    if (t->length + (size_t)n + 1 > t->room) {
        size_t room = 2 * t->room + (size_t)n + 64;
        char *bytes = realloc(t->bytes, room);
        if (bytes == NULL)
            fail("no memory for a text of %lu bytes", (unsigned long)room);
        t->bytes = bytes;
        t->room = room;
    }
    va_start(ap, format);
    vsnprintf(t->bytes + t->length, t->room - t->length, format, ap);
    va_end(ap);
    t->length += (size_t)n;
}

/*
 * The members exchange JSON whose form they know: each key is looked for behind the one before it.
 * The result is where to go on, NULL if there is no such key.
 */
const char *find_number(const char *at, const char *key, double *value)
{
    char quoted[40], *behind;

    at = strstr(at, format_text(quoted, sizeof quoted, "\"%s\":", key));
    if (at == NULL)
        return NULL;
    at += strlen(quoted);
    *value = strtod(at, &behind);
    return behind == at ? NULL : behind;
}

const char *find_string(const char *at, const char *key, char *to, size_t size)
{
    char quoted[40];
    const char *end;

    at = strstr(at, format_text(quoted, sizeof quoted, "\"%s\":\"", key));
    if (at == NULL)
        return NULL;
    at += strlen(quoted);
    end = strchr(at, '"');
    if (end == NULL || (size_t)(end - at) >= size)
        return NULL;
    memcpy(to, at, (size_t)(end - at));
    to[end - at] = '\0';
    return end;
}

void put_process(struct text *t, struct rank r)
{
    char *node = vmmc_NodeToName(r.node);

    put(t, "{\"Node\":\"%s\",\"PID\":%lu}", node == NULL ? "" : node, (unsigned long)r.pid);
}

void put_ranks(struct text *t, const char *indent)
{
    int i;

    put(t, "%s\"ranks\": [", indent);
    for (i = 0; i < run.nranks; i++) {
        put(t, i == 0 ? "" : ", ");
        put_process(t, run.ranks[i]);
    }
    put(t, "],\n");
}

/* A measured number with three digits that mean something. There are eight at a time. */
const char *figure(double v)
{
    static char out[8][32];
    static int next;

    next = (next + 1) % 8;
    return format_text(out[next], sizeof out[next], "%.*f",
                       v >= 100 ? 0 : v >= 10 ? 1 : v >= 1 ? 2 : 3, v);
}

/* The cells of a column are as wide as its name, and at least 10. */
static void cell(const char *name, const char *text, int first)
{
    size_t i, letters = 0, bytes = strlen(text), width = strlen(name);

    for (i = 0; text[i] != '\0'; i++)
        letters += (text[i] & 0xc0) != 0x80;
    if (width < 10)
        width = 10;
    printf("%s%*s", first ? "" : "  ", (int)(width + bytes - letters), text);
}

void table_header(const char *const *names)
{
    int i;

    for (i = 0; names[i] != NULL; i++)
        cell(names[i], names[i], i == 0);
    printf("\n");
    fflush(stdout);
}

/* A row of as many texts as there are names. */
void table_row(const char *const *names, ...)
{
    va_list ap;
    int i;

    va_start(ap, names);
    for (i = 0; names[i] != NULL; i++)
        cell(names[i], va_arg(ap, const char *), i == 0);
    va_end(ap);
    printf("\n");
    fflush(stdout);
}

struct speed speed_of(uint64_t words, uint64_t messages, double took)
{
    struct speed s = {words, words * WORD, messages, took, 0, 0};

    s.micros = took * 1e6 / (double)messages;
    if (took > 0)
        s.mbps = (double)s.bytes * (double)messages / 1e6 / took;
    return s;
}

void put_speed(struct text *t, const struct speed *s, const char *indent)
{
    put(t,
        "%s\"words\": %llu,\n%s\"bytes\": %llu,\n%s\"messages\": %llu,\n%s\"seconds\": %.9g,\n"
        "%s\"mb_per_s\": %.9g,\n%s\"us_per_message\": %.9g,\n",
        indent, (unsigned long long)s->words, indent, (unsigned long long)s->bytes, indent,
        (unsigned long long)s->messages, indent, s->seconds, indent, s->mbps, indent, s->micros);
}
