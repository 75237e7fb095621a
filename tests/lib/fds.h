// Open file descriptors of this process, for leak checks.

#ifndef FRMPS_TESTS_LIB_FDS_H
#define FRMPS_TESTS_LIB_FDS_H

#include <stddef.h>

/** Number of open descriptors, not counting the one that looking takes. */
unsigned fds_count(void);
/** Writes "3 → /dev/null, 5 → socket:[1]" style text into @text, cut off at @size bytes, always
 * NUL-terminated. */
void fds_describe(char *text, size_t size);

#endif
