// Where the random numbers of a test begin. They are the same in each run, unless FRMPS_TEST_SEED
// says another number (tests/fuzz.py).

#ifndef FRMPS_TESTS_LIB_SEED_H
#define FRMPS_TESTS_LIB_SEED_H

#include <stdint.h>
#include <stdlib.h>

/** @usual: without FRMPS_TEST_SEED; different places of a test have different ones */
static inline uint32_t seed_of(uint32_t usual)
{
	const char *text = getenv("FRMPS_TEST_SEED");

	return text ? usual ^ (uint32_t)strtoul(text, NULL, 10) * UINT32_C(2654435761) : usual;
}

#endif
