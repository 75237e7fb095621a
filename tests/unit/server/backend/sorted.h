// Counts what a test's process sorts, by standing before the C library's qsort(). For one file of a
// program.

#ifndef FRMPS_TESTS_UNIT_SERVER_BACKEND_SORTED_H
#define FRMPS_TESTS_UNIT_SERVER_BACKEND_SORTED_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

/* How many things were sorted by whoever sorted some. */
static uint64_t sorted;

void qsort(void *at, size_t count, size_t bytes, __compar_fn_t compare)
{
	void (*real)(void *, size_t, size_t, __compar_fn_t);

	*(void **)&real = dlsym(RTLD_NEXT, "qsort");
	sorted += count;
	real(at, count, bytes, compare);
}

#endif
