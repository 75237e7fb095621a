// Files, whatever a single call of the kernel does: it may be interrupted, do a part, or raise a
// signal. Any thread; only file_read_all() is a cancellation point.

#ifndef FRMPS_CLIENT_STATE_FILE_H
#define FRMPS_CLIENT_STATE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* As an offset: where the file is. */
#define FILE_HERE INT64_C(-1)

/**
 * As pwrite(2), or write(2) with FILE_HERE. A closed pipe and the program's limit of files
 * (RLIMIT_FSIZE) are errors alone: the program gets no SIGPIPE or SIGXFSZ.
 */
ssize_t file_write(int fd, const void *from, size_t bytes, int64_t offset);

/**
 * Writes into a memfd that has these bytes, also where files of the program may not be so long.
 * @from: memory that may end anywhere
 * Return: the bytes that could be written; -1 with errno set if there are none: EFAULT without
 * memory
 */
ssize_t file_fill(int memfd, const void *from, size_t bytes, uint64_t offset);

/** Reads so many bytes from the beginning of a file. Return: false with errno set, to 0 if the file
 * is shorter */
bool file_read_all(int fd, void *to, uint64_t bytes);

/** Writes so many bytes at an offset. Return: false with errno set */
bool file_write_all(int fd, const void *from, uint64_t bytes, uint64_t offset);

#endif
