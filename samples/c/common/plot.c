/* Draws the bandwidth over the size of a message, which has a logarithmic axis. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sample.h"

enum { WIDTH = 640, HEIGHT = 400, LEFT = 70, RIGHT = 20, TOP = 40, BOTTOM = 60 };

static double low, high, top; /* the ends of the axes */

static double x_of(double bytes)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (log2(bytes) - low) / (high - low);
}

static double y_of(double mbps)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * mbps / top;
}

static const char *size_text(uint64_t bytes)
{
    static char out[32];

    if (bytes >= 1u << 20)
        return format_text(out, sizeof out, "%.3g Mi", (double)bytes / (1u << 20));
    if (bytes >= 1u << 10)
        return format_text(out, sizeof out, "%.3g Ki", (double)bytes / (1u << 10));
    return format_text(out, sizeof out, "%llu", (unsigned long long)bytes);
}

/* Marks are 1, 2 or 5 times a power of ten apart, at most twelve of them. */
static double step_of(double to)
{
    double step = pow(10, ceil(log10(to)));

    if (to / step * 20 <= 12)
        return step / 20;
    if (to / step * 10 <= 12)
        return step / 10;
    return to / step * 5 <= 12 ? step / 5 : step / 2;
}

static void marks(FILE *out, const struct point *points, int n)
{
    int i, every = (n + 11) / 12;
    double v, step = step_of(top);

    for (i = 0; i < n; i += every) {
        double x = x_of((double)points[i].speed.bytes);
        fprintf(out,
                "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#ddd'/>\n"
                "<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n",
                x, TOP, x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18,
                size_text(points[i].speed.bytes));
    }
    for (v = 0; v <= top; v += step)
        fprintf(out,
                "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#ddd'/>\n"
                "<text x='%d' y='%.1f' text-anchor='end'>%.4g</text>\n",
                LEFT, y_of(v), WIDTH - RIGHT, y_of(v), LEFT - 6, y_of(v) + 4, v);
}

static void curve(FILE *out, const struct point *points, int n)
{
    int i;

    fprintf(out, "<polyline fill='none' stroke='#004499' stroke-width='1.5' points='");
    for (i = 0; i < n; i++)
        fprintf(out, "%.1f,%.1f ", x_of((double)points[i].speed.bytes), y_of(points[i].speed.mbps));
    fprintf(out, "'/>\n");
    for (i = 0; i < n; i++)
        fprintf(out, "<circle cx='%.1f' cy='%.1f' r='3' fill='#004499'/>\n",
                x_of((double)points[i].speed.bytes), y_of(points[i].speed.mbps));
}

void plot(const char *file, const char *title, const struct point *points, int n)
{
    FILE *out = fopen(file, "w");
    int i, bad;

    if (out == NULL)
        fail("draw %s: %s", file, strerror(errno));
    low = log2((double)points[0].speed.bytes / 1.2);
    high = log2((double)points[n - 1].speed.bytes * 1.2);
    for (top = 0, i = 0; i < n; i++)
        top = points[i].speed.mbps > top ? points[i].speed.mbps : top;
    top *= 1.08;
    if (top <= 0)
        top = 1;
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "font-family='sans-serif' font-size='11'>\n<rect width='100%%' height='100%%' "
            "fill='white'/>\n<text x='%d' y='22' font-size='14' text-anchor='middle'>%s</text>\n",
            WIDTH, HEIGHT, WIDTH / 2, title);
    marks(out, points, n);
    fprintf(out,
            "<text x='%d' y='%d' text-anchor='middle'>message size (bytes)</text>\n"
            "<text x='16' y='%d' text-anchor='middle' transform='rotate(-90 16 %d)'>bandwidth "
            "(MB/s)</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, (TOP + HEIGHT - BOTTOM) / 2,
            (TOP + HEIGHT - BOTTOM) / 2);
    curve(out, points, n);
    fprintf(out, "</svg>\n");
    bad = ferror(out);
    if (fclose(out) != 0 || bad)
        fail("draw %s: %s", file, strerror(errno));
}
