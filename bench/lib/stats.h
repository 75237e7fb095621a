// Samples and their summary. A benchmark program prints one JSON object per measurement on standard
// output; bench/run collects them.

#ifndef FRMPS_BENCH_LIB_STATS_H
#define FRMPS_BENCH_LIB_STATS_H

#include <stddef.h>
#include <stdint.h>

struct samples {
	double *value;
	size_t count, room;
};

void samples_init(struct samples *samples, size_t room);
void samples_deinit(struct samples *samples);
/** Adds a value; silently full beyond `room`. */
void samples_add(struct samples *samples, double value);

/** Prints {"name": …, "unit": …, "n": …, "min": …, "p10": …, "median": …, "p90": …, "p99": …,
 * "p999": …, "max": …} on a line of standard output. Sorts the samples. */
void samples_print(struct samples *samples, const char *name, const char *unit);

/**
 * Prints {"name": …, "unit": …, "n": …, "ranks": […]} on a line of standard output: the sorted
 * samples, or `most` of these at equal distances, with the least and the largest. Sorts the
 * samples. @most: 2 at least
 */
void samples_print_ranks(struct samples *samples, const char *name, const char *unit, size_t most);

#endif
