// See stats.h.

#include "bench/lib/stats.h"

#include <stdio.h>
#include <stdlib.h>

void samples_init(struct samples *samples, size_t room)
{
	*samples = (struct samples){.value = malloc(room * sizeof(double)), .room = room};
	if (!samples->value)
		abort();
}

void samples_deinit(struct samples *samples)
{
	free(samples->value);
}

void samples_add(struct samples *samples, double value)
{
	if (samples->count < samples->room)
		samples->value[samples->count++] = value;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(const struct samples *samples, double q)
{
	if (samples->count == 0)
		return 0;
	return samples->value[(size_t)(q * (double)(samples->count - 1) + 0.5)];
}

void samples_print(struct samples *samples, const char *name, const char *unit)
{
	qsort(samples->value, samples->count, sizeof(double), compare);
	printf("{\"name\": \"%s\", \"unit\": \"%s\", \"n\": %zu, \"min\": %.6g, \"p10\": %.6g, \"median\": "
	       "%.6g, "
	       "\"p90\": %.6g, \"p99\": %.6g, \"p999\": %.6g, \"max\": %.6g}\n",
		name, unit, samples->count, quantile(samples, 0), quantile(samples, 0.1),
		quantile(samples, 0.5), quantile(samples, 0.9), quantile(samples, 0.99),
		quantile(samples, 0.999), quantile(samples, 1));
	fflush(stdout);
}

void samples_print_ranks(struct samples *samples, const char *name, const char *unit, size_t most)
{
	size_t count = samples->count < most ? samples->count : most;

	qsort(samples->value, samples->count, sizeof(double), compare);
	printf("{\"name\": \"%s\", \"unit\": \"%s\", \"n\": %zu, \"ranks\": [", name, unit, samples->count);
	for (size_t i = 0; i < count; i++)
		printf("%s%.6g", i ? ", " : "",
			quantile(samples, count > 1 ? (double)i / (double)(count - 1) : 0));
	printf("]}\n");
	fflush(stdout);
}
