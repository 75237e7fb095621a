// Whole files, whatever a single call of the kernel does: it may be interrupted, or do a part. Any
// thread; both functions are cancellation points.

#ifndef FRMPS_CLIENT_STATE_FILE_H
#define FRMPS_CLIENT_STATE_FILE_H

#include <stdbool.h>
#include <stdint.h>

/** Reads so many bytes from the beginning of a file. Return: false with errno set, to 0 if the file
 * is shorter */
bool file_read_all(int fd, void *to, uint64_t bytes);

/** Writes so many bytes at an offset. Return: false with errno set */
bool file_write_all(int fd, const void *from, uint64_t bytes, uint64_t offset);

#endif
