// Lines of /proc/self/maps, which the caller has read (connect_read_text()). Pure.

#ifndef FRMPS_CLIENT_STATE_MAPS_H
#define FRMPS_CLIENT_STATE_MAPS_H

#include <stdbool.h>
#include <stdint.h>

/* "from-to rwxp offset device inode path". */
struct mapping {
	uint64_t from, to, offset, inode;
	unsigned int device[2];
	const char *modes;
	const char *path; /* in the line: up to its end; may be empty */
};

/** Return: true for a sound line. */
bool maps_read_line(const char *line, struct mapping *ret_mapping);
/** The next line; NULL after the last. */
const char *maps_next_line(const char *line);
/** The mapping with an address. Return: false if there is none */
bool maps_find(const char *maps, uint64_t address, struct mapping *ret_mapping);
/** True if both show the same file, or both none. */
bool maps_is_same_file(const struct mapping *one, const struct mapping *other);

#endif
