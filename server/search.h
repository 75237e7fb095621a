// Search in arrays that are sorted by a number. Any thread.

#ifndef FRMPS_SERVER_SEARCH_H
#define FRMPS_SERVER_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/**
 * @array: elements of so many bytes, of which each has its number `offset` bytes from its start;
 * the numbers never fall
 * Return: index of the first element whose number is above this one; count: there is none
 */
static inline uint32_t search_above(
	const void *array, uint32_t count, size_t bytes, size_t offset, uint64_t number)
{
	uint32_t low = 0, high = count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (*(const uint64_t *)((const char *)array + middle * bytes + offset) > number)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

#endif
