// See content.h.

#include "server/tools/content.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "protocol/hash.h"
#include "server/file.h"
#include "server/session/records.h"
#include "server/tools/earlier.h"

#define BUNDLE	"bundle"
#define THREADS 16u
/* Pieces that are worth a word, and the longest wait for them. */
#define NEWS	64u
#define WAIT_NS 100000000

/*
 * Bytes
 */

/* Return: 0 or -errno; -EBADMSG: the file is too short */
static int read_at(int fd, uint8_t *bytes, uint64_t count, uint64_t offset)
{
	for (uint64_t at = 0; at < count;) {
		ssize_t got = pread(fd, bytes + at, count - at, (off_t)(offset + at));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EBADMSG;
		at += (uint64_t)got;
	}
	return 0;
}

/* Return: 0 or -errno */
static int write_at(int fd, const uint8_t *bytes, uint64_t count, uint64_t offset)
{
	for (uint64_t at = 0; at < count;) {
		ssize_t put = pwrite(fd, bytes + at, count - at, (off_t)(offset + at));

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		at += (uint64_t)put;
	}
	return 0;
}

/* Opened anew: with a position of its own, and without direct I/O. */
static int open_again(int fd)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static int close_written(int fd, int r)
{
	if (close(fd) && !r)
		r = -errno;
	return r;
}

/*
 * Pieces of a file
 */

static int add_piece(struct archive_file *file, uint64_t offset, uint64_t bytes)
{
	struct archive_piece *pieces =
		reallocarray(file->pieces, file->piece_count + 1, sizeof(*file->pieces));

	if (!pieces)
		return -ENOMEM;
	file->pieces = pieces;
	pieces[file->piece_count++] = (struct archive_piece){.offset = offset, .bytes = bytes};
	return 0;
}

/* Pieces end where pages of device memory do. */
static int add_pieces(struct archive_file *file, uint64_t from, uint64_t to)
{
	int r = 0;

	for (uint64_t at = from, end; !r && at < to; at = end) {
		end = (at / ARCHIVE_PIECE + 1) * ARCHIVE_PIECE;
		end = end < to ? end : to;
		r = add_piece(file, at, end - at);
	}
	return r;
}

/* Where a file has bytes. Return: 0 or -errno */
static int find_pieces(int fd, struct archive_file *file)
{
	off_t at = 0, end;
	int r = 0;

	while (!r && (uint64_t)at < file->place) {
		at = lseek(fd, at, SEEK_DATA);
		if (at < 0)
			return errno == ENXIO ? 0 : -errno;
		end = lseek(fd, at, SEEK_HOLE);
		if (end < 0)
			return -errno;
		r = add_pieces(file, (uint64_t)at, (uint64_t)end);
		at = end;
	}
	return r;
}

static int measure(int fd, struct archive_file *file)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return -errno;
	file->place = (uint64_t)status.st_size;
	file->seals = fcntl(fd, F_GET_SEALS);
	free(file->pieces);
	file->pieces = NULL;
	file->piece_count = 0;
	return find_pieces(fd, file);
}

static bool are_same_places(const struct archive_file *file, const struct archive_file *other)
{
	if (file->piece_count != other->piece_count)
		return false;
	for (size_t i = 0; i < file->piece_count; i++)
		if (file->pieces[i].offset != other->pieces[i].offset ||
			file->pieces[i].bytes != other->pieces[i].bytes)
			return false;
	return true;
}

/* The owner of a file may give pages back meanwhile. Return: 0, -EBADMSG or -errno */
static int compare_places(int fd, const struct archive_file *file)
{
	struct archive_file now = {.place = file->place};
	int r = find_pieces(fd, &now);

	if (!r && !are_same_places(file, &now))
		r = -EBADMSG;
	free(now.pieces);
	return r;
}

/*
 * Copies of pieces, by several threads
 */

struct work {
	uint32_t file;
	struct archive_piece *piece;
	bool is_done;
};

struct copies {
	int folder;
	const struct archive *archive;
	int *fds; /* of its contents */
	const struct earlier *earlier;
	/* Return: 0, -EBADMSG or -errno */
	int (*copy)(const struct copies *copies, uint32_t file, struct archive_piece *piece, uint8_t *buffer);
	uint32_t memory; /* loading: the first of the files of device memory, which are the last works */
	struct work *works;
	size_t work_count, rest_count; /* of all; of files that are none of device memory */
	pthread_t threads[THREADS];
	unsigned started;
	pthread_mutex_t lock; /* of these: */
	pthread_cond_t news;
	size_t next, done, seen;
	int error; /* the first; 0: none */
};

/* Return: NULL: there is no more */
static struct work *take_work(struct copies *copies)
{
	struct work *work = NULL;

	pthread_mutex_lock(&copies->lock);
	if (!copies->error && copies->next < copies->work_count)
		work = &copies->works[copies->next++];
	pthread_mutex_unlock(&copies->lock);
	return work;
}

static void end_work(struct copies *copies, struct work *work, int r)
{
	pthread_mutex_lock(&copies->lock);
	copies->error = copies->error ? copies->error : r;
	copies->done += !r;
	work->is_done = !r;
	pthread_cond_signal(&copies->news);
	pthread_mutex_unlock(&copies->lock);
}

static void *copy_some(void *context)
{
	struct copies *copies = context;
	uint8_t *buffer = malloc(ARCHIVE_PIECE);
	struct work *work;

	while ((work = take_work(copies)))
		end_work(copies, work,
			buffer ? copies->copy(copies, work->file, work->piece, buffer) : -ENOMEM);
	free(buffer);
	return NULL;
}

static bool is_content(const struct archive *archive, uint32_t file)
{
	return archive->files[file].kind == ARCHIVE_CONTENT;
}

static bool is_memory(const struct copies *copies, uint32_t file)
{
	return file >= copies->memory && file - copies->memory < KEPT_SWAP_FILES;
}

static size_t count_pieces(const struct archive *archive)
{
	size_t count = 0;

	for (uint32_t i = 0; i < archive->count; i++)
		count += is_content(archive, i) ? archive->files[i].piece_count : 0;
	return count;
}

/* The files take turns: those who write the same file in memory wait for each other. */
static void list_pieces(struct copies *copies, bool of_memory)
{
	const struct archive *archive = copies->archive;
	bool is_more = true;

	for (size_t turn = 0; is_more; turn++) {
		is_more = false;
		for (uint32_t i = 0; i < archive->count; i++) {
			if (!is_content(archive, i) || is_memory(copies, i) != of_memory ||
				turn >= archive->files[i].piece_count)
				continue;
			copies->works[copies->work_count++] =
				(struct work){.file = i, .piece = &archive->files[i].pieces[turn]};
			is_more = true;
		}
	}
}

/* Return: 0 or -ENOMEM */
static int begin_copies(struct copies *copies)
{
	pthread_mutex_init(&copies->lock, NULL);
	pthread_cond_init(&copies->news, NULL);
	copies->works = calloc(count_pieces(copies->archive) + 1, sizeof(*copies->works));
	if (!copies->works)
		return -ENOMEM;
	list_pieces(copies, false);
	copies->rest_count = copies->work_count;
	list_pieces(copies, true);
	while (copies->started < THREADS &&
		!pthread_create(&copies->threads[copies->started], NULL, copy_some, copies))
		copies->started++;
	if (!copies->started)
		copy_some(copies);
	return 0;
}

/* Return: 0, -EBADMSG or -errno */
static int end_copies(struct copies *copies)
{
	while (copies->started)
		pthread_join(copies->threads[--copies->started], NULL);
	free(copies->works);
	pthread_cond_destroy(&copies->news);
	pthread_mutex_destroy(&copies->lock);
	return copies->error;
}

/*
 * Storing
 */

static bool is_zero(const uint8_t *bytes, uint64_t count)
{
	return !bytes[0] && !memcmp(bytes, bytes + 1, count - 1);
}

static int write_piece(int folder, const char *name, const uint8_t *bytes, uint64_t count)
{
	const int to = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);

	return to < 0 ? -errno : close_written(to, write_at(to, bytes, count, 0));
}

static int store_piece(
	const struct copies *copies, uint32_t file, struct archive_piece *piece, uint8_t *buffer)
{
	char name[ARCHIVE_NAME];
	int r = read_at(copies->fds[file], buffer, piece->bytes, piece->offset);

	if (r)
		return r;
	if (is_zero(buffer, piece->bytes)) {
		piece->fate = ARCHIVE_ZEROES;
		return 0;
	}
	piece->hash = hash_add(HASH_START, buffer, piece->bytes);
	archive_name(name, file, piece);
	if (copies->earlier && earlier_link(copies->earlier, piece, buffer, copies->folder, name)) {
		piece->fate = ARCHIVE_SHARED;
		return 0;
	}
	piece->fate = ARCHIVE_STORED;
	return write_piece(copies->folder, name, buffer, piece->bytes);
}

int content_measure(struct archive *archive, const int *fds)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < archive->count; i++)
		if (is_content(archive, i))
			r = measure(fds[i], &archive->files[i]);
	return r;
}

/* Return: 0, -EBADMSG or -errno */
static int store_all(struct copies *copies, const int *fds)
{
	const struct archive *archive = copies->archive;
	int r = 0;

	for (uint32_t i = 0; !r && i < archive->count; i++)
		if (is_content(archive, i) && (copies->fds[i] = open_again(fds[i])) < 0)
			r = -errno;
	r = r ? r : begin_copies(copies);
	r = r ? r : end_copies(copies);
	for (uint32_t i = 0; !r && i < archive->count; i++)
		if (is_content(archive, i))
			r = compare_places(copies->fds[i], &archive->files[i]);
	return r;
}

int content_store(int folder, struct archive *archive, const int *fds, const struct earlier *earlier)
{
	struct copies copies = {.folder = folder,
		.archive = archive,
		.earlier = earlier,
		.copy = store_piece,
		.memory = archive->count};
	int r = mkdirat(folder, ARCHIVE_MEMORY, 0700) ? -errno : 0;

	copies.fds = malloc((archive->count + 1) * sizeof(*copies.fds));
	if (r || !copies.fds) {
		free(copies.fds);
		return r ? r : -ENOMEM;
	}
	for (uint32_t i = 0; i < archive->count; i++)
		copies.fds[i] = -1;
	r = store_all(&copies, fds);
	for (uint32_t i = 0; i < archive->count; i++)
		if (copies.fds[i] >= 0)
			close(copies.fds[i]);
	free(copies.fds);
	return r;
}

/*
 * Loading
 */

static int load_piece(
	const struct copies *copies, uint32_t file, struct archive_piece *piece, uint8_t *buffer)
{
	char name[ARCHIVE_NAME];
	int from = openat(copies->folder, archive_name(name, file, piece), O_RDONLY | O_CLOEXEC), r;

	if (from < 0)
		return -errno;
	r = read_at(from, buffer, piece->bytes, 0);
	close(from);
	if (!r && hash_add(HASH_START, buffer, piece->bytes) != piece->hash)
		r = -EBADMSG;
	if (r)
		return r;
	/* Pages that are written whole need not be cleared first. */
	fallocate(copies->fds[file], 0, (off_t)piece->offset, (off_t)piece->bytes);
	return write_at(copies->fds[file], buffer, piece->bytes, piece->offset);
}

/* Return: negative: see errno */
static int make_memory(void)
{
	return memfd_create("frmps-restored", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

/* Return: 0 or -errno */
static int make_files(const struct copies *copies)
{
	const struct archive *archive = copies->archive;
	const int folder = file_huge_folder();
	int *fds = copies->fds, r = 0;

	for (uint32_t i = 0; !r && i < archive->count; i++) {
		if (!is_content(archive, i))
			continue;
		fds[i] = is_memory(copies, i) ? file_in_memory(folder, "frmps-restored") : make_memory();
		if (fds[i] < 0 || ftruncate(fds[i], (off_t)archive->files[i].place) < 0)
			r = -errno;
	}
	if (folder >= 0)
		close(folder);
	return r;
}

int content_load(
	int folder, const struct archive *archive, uint32_t memory, int *fds, struct copies **ret_copies)
{
	struct copies *copies = *ret_copies = calloc(1, sizeof(*copies));
	int r;

	if (!copies)
		return -ENOMEM;
	*copies = (struct copies){
		.folder = folder, .archive = archive, .fds = fds, .copy = load_piece, .memory = memory};
	r = make_files(copies);
	r = r ? r : begin_copies(copies);
	if (r) {
		free(copies);
		*ret_copies = NULL;
	}
	return r;
}

/* Waits for that, for a moment. Holds the lock afterwards. Return: as copies.error */
static int await(struct copies *copies, bool (*is_there)(const struct copies *copies))
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += WAIT_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&copies->lock);
	while (!is_there(copies) && !copies->error &&
		!pthread_cond_clockwait(&copies->news, &copies->lock, CLOCK_MONOTONIC, &until))
		;
	return copies->error;
}

/* The first byte of device memory that may be missing. */
static uint64_t find_place(const struct copies *copies)
{
	uint64_t place = UINT64_MAX;

	for (size_t i = copies->rest_count; i < copies->work_count; i++)
		if (!copies->works[i].is_done && copies->works[i].piece->offset < place)
			place = copies->works[i].piece->offset;
	return place;
}

static bool has_news(const struct copies *copies)
{
	return copies->done >= copies->seen + NEWS || copies->done == copies->work_count;
}

int content_await(struct copies *copies, uint64_t *ret_place)
{
	int r = await(copies, has_news);

	copies->seen = copies->done;
	*ret_place = find_place(copies);
	pthread_mutex_unlock(&copies->lock);
	return r;
}

static bool is_rest_done(const struct copies *copies)
{
	for (size_t i = 0; i < copies->rest_count; i++)
		if (!copies->works[i].is_done)
			return false;
	return true;
}

int content_await_rest(struct copies *copies)
{
	const struct archive *archive = copies->archive;
	int r = await(copies, is_rest_done);

	if (!r && !is_rest_done(copies))
		r = -EAGAIN;
	pthread_mutex_unlock(&copies->lock);
	for (uint32_t i = 0; !r && i < archive->count; i++)
		if (is_content(archive, i) && !is_memory(copies, i) && archive->files[i].seals > 0 &&
			fcntl(copies->fds[i], F_ADD_SEALS, archive->files[i].seals) < 0)
			r = -errno;
	return r;
}

struct copies *content_end(struct copies *copies)
{
	if (!copies)
		return NULL;
	/* Works that nobody has begun are none any more. */
	pthread_mutex_lock(&copies->lock);
	copies->error = -ECANCELED;
	pthread_mutex_unlock(&copies->lock);
	end_copies(copies);
	free(copies);
	return NULL;
}

/*
 * The bundle: a file without holes
 */

/* Return: 0, -EBADMSG or -errno */
static int copy_file(int from, int to, uint64_t *ret_hash)
{
	uint8_t *buffer = malloc(ARCHIVE_PIECE);
	struct stat status;
	int r = !buffer ? -ENOMEM : fstat(from, &status) < 0 ? -errno : 0;

	*ret_hash = HASH_START;
	for (uint64_t at = 0, bytes; !r && at < (uint64_t)status.st_size; at += bytes) {
		bytes = (uint64_t)status.st_size - at;
		bytes = bytes < ARCHIVE_PIECE ? bytes : ARCHIVE_PIECE;
		r = read_at(from, buffer, bytes, at);
		r = r ? r : write_at(to, buffer, bytes, at);
		*ret_hash = r ? 0 : hash_add(*ret_hash, buffer, bytes);
	}
	free(buffer);
	return r;
}

int content_store_bundle(int folder, int fd, struct archive *archive)
{
	const int to = openat(folder, BUNDLE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	return to < 0 ? -errno : close_written(to, copy_file(fd, to, &archive->bundle_hash));
}

int content_load_bundle(int folder, const struct archive *archive, int *ret_fd)
{
	int from = openat(folder, BUNDLE, O_RDONLY | O_CLOEXEC), to = make_memory();
	int r = from < 0 || to < 0 ? -errno : 0;
	uint64_t hash;

	r = r ? r : copy_file(from, to, &hash);
	if (!r && hash != archive->bundle_hash)
		r = -EBADMSG;
	if (from >= 0)
		close(from);
	if (r && to >= 0)
		close(to);
	*ret_fd = r ? -1 : to;
	return r;
}
