// Percentages as stock MPS writes them, the same for library and service.

#ifndef FRMPS_PROTOCOL_PERCENTAGE_H
#define FRMPS_PROTOCOL_PERCENTAGE_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Reads a number from 1 to 100. Parts of a percent are let go: who says 12.5 gets no more than 12.
 * Return: whether it is one
 */
bool percentage_parse(const char *text, uint32_t *ret_percent);

#endif
