// See earlier.h.

#include "server/tools/earlier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes that are compared at a time: within a processor's cache. */
#define STEP_BYTES 65536u

struct entry {
	uint32_t number; /* of its file */
	const struct archive_piece *piece;
};

struct earlier {
	int folder;
	struct archive archive;
	struct entry *entries; /* by the hashes of their pieces */
	size_t count;
};

static int compare_entries(const void *left, const void *right)
{
	const struct archive_piece *a = ((const struct entry *)left)->piece,
				   *b = ((const struct entry *)right)->piece;

	return (a->hash > b->hash) - (a->hash < b->hash);
}

/* Return: 0 or -ENOMEM */
static int list(struct earlier *earlier)
{
	const struct archive *archive = &earlier->archive;
	size_t count = 0;

	for (uint32_t i = 0; i < archive->count; i++)
		count += archive->files[i].piece_count;
	earlier->entries = calloc(count + 1, sizeof(*earlier->entries));
	if (!earlier->entries)
		return -ENOMEM;
	for (uint32_t i = 0; i < archive->count; i++)
		for (size_t j = 0; j < archive->files[i].piece_count; j++)
			earlier->entries[earlier->count++] = (struct entry){i, &archive->files[i].pieces[j]};
	qsort(earlier->entries, earlier->count, sizeof(*earlier->entries), compare_entries);
	return 0;
}

/* Return: 0 or -1, with the reason */
static int read_folder(struct earlier *earlier, const char *path, char *ret_text)
{
	earlier->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (earlier->folder < 0) {
		snprintf(ret_text, ARCHIVE_TEXT, "cannot be read: %s", strerror(errno));
		return -1;
	}
	if (archive_read(earlier->folder, &earlier->archive, ret_text))
		return -1;
	if (!list(earlier))
		return 0;
	snprintf(ret_text, ARCHIVE_TEXT, "cannot be read: %s", strerror(ENOMEM));
	return -1;
}

struct earlier *earlier_open(const char *path, char *ret_text)
{
	struct earlier *earlier = calloc(1, sizeof(*earlier));

	if (!earlier) {
		snprintf(ret_text, ARCHIVE_TEXT, "cannot be read: %s", strerror(ENOMEM));
		return NULL;
	}
	return read_folder(earlier, path, ret_text) ? earlier_close(earlier) : earlier;
}

struct earlier *earlier_close(struct earlier *earlier)
{
	if (!earlier)
		return NULL;
	if (earlier->folder >= 0)
		close(earlier->folder);
	free(earlier->entries);
	archive_free(&earlier->archive);
	free(earlier);
	return NULL;
}

/* Nobody else can write to it, and nobody of ours does. */
static bool is_ours(int fd, uint64_t bytes)
{
	struct stat status;

	return !fstat(fd, &status) && S_ISREG(status.st_mode) && (uint64_t)status.st_size == bytes &&
	       status.st_uid == geteuid() && !(status.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH));
}

/* Read, not mapped: a file that somebody cuts off meanwhile is no signal then. */
static bool is_equal(int fd, const uint8_t *bytes, uint64_t count)
{
	uint8_t step[STEP_BYTES];
	ssize_t got;

	for (uint64_t at = 0; at < count; at += (uint64_t)got) {
		got = pread(fd, step, count - at < STEP_BYTES ? count - at : STEP_BYTES, (off_t)at);
		if (got <= 0 || memcmp(step, bytes + at, (size_t)got) != 0)
			return false;
	}
	return true;
}

/* The very file that was compared, whatever has its name by now. */
static bool link_file(int fd, int folder, const char *name)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return !linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW);
}

static const struct entry *find(const struct earlier *earlier, const struct archive_piece *piece)
{
	const struct entry key = {.piece = piece};

	return bsearch(&key, earlier->entries, earlier->count, sizeof(key), compare_entries);
}

bool earlier_link(const struct earlier *earlier, const struct archive_piece *piece, const uint8_t *bytes,
	int folder, const char *name)
{
	const struct entry *entry = find(earlier, piece);
	char there[ARCHIVE_NAME];
	bool is_linked;
	int fd;

	if (!entry)
		return false;
	fd = openat(earlier->folder, archive_name(there, entry->number, entry->piece),
		O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	is_linked =
		is_ours(fd, piece->bytes) && is_equal(fd, bytes, piece->bytes) && link_file(fd, folder, name);
	close(fd);
	return is_linked;
}
