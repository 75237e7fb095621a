// See archive.h.

#include "server/tools/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/hash.h"
#include "protocol/wire.h"

#define MANIFEST "frmps.json"
#define BUNDLE	 "bundle"
/* The form of the folder. */
#define FORMAT 1
/* A copy's step. */
#define STEP_BYTES (UINT64_C(4) << 20)
/* More is no manifest of a program that the service can have. */
#define MANIFEST_MOST (64 << 20)
#define FILES_MOST    (1 << 20)
/* As many as there are files of device memory. */
#define THREADS 7u

static const char *const kinds[ARCHIVE_KINDS] = {"mapping", "descriptor", "socket", "process", "content"};

const char *archive_kind_name(enum archive_kind kind)
{
	return kinds[kind];
}

void archive_free(struct archive *archive)
{
	for (uint32_t i = 0; i < archive->count; i++) {
		free(archive->files[i].packet);
		free(archive->files[i].parts);
	}
	free(archive->files);
	*archive = (struct archive){0};
}

/*
 * Content
 */

/* Return: 0 or -errno; -EBADMSG: the source is too short */
static int copy_step(
	int from, uint64_t from_offset, int to, uint64_t to_offset, uint8_t *buffer, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t got = pread(from, buffer + at, bytes - at, (off_t)(from_offset + at));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EBADMSG;
		at += (size_t)got;
	}
	for (size_t at = 0; at < bytes;) {
		ssize_t put = pwrite(to, buffer + at, bytes - at, (off_t)(to_offset + at));

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		at += (size_t)put;
	}
	return 0;
}

/* Copies all parts. @packed: the file that has them one behind the other is the source, else the
 * target. @ret_hash: of them. Return: as copy_step() */
static int copy_parts(const struct archive_file *file, int from, int to, bool packed, uint64_t *ret_hash)
{
	uint8_t *buffer = malloc(STEP_BYTES);
	int r = buffer ? 0 : -ENOMEM;
	uint64_t dense = 0, hash = HASH_START;

	for (size_t i = 0; !r && i < file->part_count; i++) {
		const struct archive_part *part = &file->parts[i];

		for (uint64_t at = 0, bytes; !r && at < part->bytes; at += bytes, dense += bytes) {
			const uint64_t sparse = part->offset + at;

			bytes = part->bytes - at < STEP_BYTES ? part->bytes - at : STEP_BYTES;
			r = copy_step(
				from, packed ? dense : sparse, to, packed ? sparse : dense, buffer, bytes);
			if (!r)
				hash = hash_add(hash, buffer, bytes);
		}
	}
	*ret_hash = hash;
	free(buffer);
	return r;
}

static int add_part(struct archive_file *file, uint64_t offset, uint64_t bytes)
{
	struct archive_part *parts = reallocarray(file->parts, file->part_count + 1, sizeof(*parts));

	if (!parts)
		return -ENOMEM;
	file->parts = parts;
	parts[file->part_count++] = (struct archive_part){offset, bytes};
	return 0;
}

/* Where a file has bytes. Return: 0 or -errno */
static int find_parts(int fd, struct archive_file *file)
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
		r = add_part(file, (uint64_t)at, (uint64_t)(end - at));
		at = end;
	}
	return r;
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

static int measure(int fd, struct archive_file *file)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return -errno;
	file->place = (uint64_t)status.st_size;
	file->seals = fcntl(fd, F_GET_SEALS);
	return find_parts(fd, file);
}

/* The owner of a file may give pages back meanwhile. Return: 0, -EBADMSG or -errno */
static int compare_parts(int fd, const struct archive_file *file)
{
	struct archive_file now = {.place = file->place};
	int r = find_parts(fd, &now);

	if (!r && (now.part_count != file->part_count ||
			  (now.part_count &&
				  memcmp(now.parts, file->parts, now.part_count * sizeof(*now.parts)))))
		r = -EBADMSG;
	free(now.parts);
	return r;
}

/* @file: measured. Return: 0, -EBADMSG or -errno */
static int store(int folder, const char *name, int fd, struct archive_file *file)
{
	int from = open_again(fd), to, r = 0;

	if (from < 0)
		return -errno;
	to = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (to < 0)
		r = -errno;
	else
		r = close_written(to, copy_parts(file, from, to, false, &file->hash));
	r = r ? r : compare_parts(from, file);
	close(from);
	return r;
}

/* Return: 0, -EBADMSG or -errno */
static int load(int folder, const char *name, const struct archive_file *file, int *ret_fd)
{
	int from = openat(folder, name, O_RDONLY | O_CLOEXEC);
	int to = memfd_create("frmps-restored", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = from < 0 || to < 0 || ftruncate(to, (off_t)file->place) < 0 ? -errno : 0;
	uint64_t hash = 0;

	r = r ? r : copy_parts(file, from, to, true, &hash);
	if (!r && hash != file->hash)
		r = -EBADMSG;
	if (!r && file->seals > 0 && fcntl(to, F_ADD_SEALS, file->seals) < 0)
		r = -errno;
	if (from >= 0)
		close(from);
	if (r && to >= 0)
		close(to);
	*ret_fd = r ? -1 : to;
	return r;
}

/*
 * Contents, by several threads
 */

struct copies {
	int folder;
	struct archive_file *files;
	uint32_t count;
	int *fds;
	bool is_loading;
	atomic_uint next; /* file */
	atomic_int error; /* the first; 0: none */
};

static int copy_one(struct copies *copies, uint32_t number)
{
	char name[24];

	snprintf(name, sizeof(name), "memory.%" PRIu32, number);
	return copies->is_loading ? load(copies->folder, name, &copies->files[number], &copies->fds[number])
				  : store(copies->folder, name, copies->fds[number], &copies->files[number]);
}

static void *copy_some(void *context)
{
	struct copies *copies = context;
	uint32_t number;

	while (!atomic_load(&copies->error) &&
		(number = atomic_fetch_add(&copies->next, 1)) < copies->count) {
		int r = copies->files[number].kind == ARCHIVE_CONTENT ? copy_one(copies, number) : 0,
		    none = 0;

		if (r)
			atomic_compare_exchange_strong(&copies->error, &none, r);
	}
	return NULL;
}

static int copy_all(struct copies *copies)
{
	pthread_t threads[THREADS];
	unsigned started = 0;

	while (started < THREADS && !pthread_create(&threads[started], NULL, copy_some, copies))
		started++;
	copy_some(copies);
	while (started--)
		pthread_join(threads[started], NULL);
	return atomic_load(&copies->error);
}

int archive_measure(struct archive *archive, const int *fds)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < archive->count; i++)
		if (archive->files[i].kind == ARCHIVE_CONTENT)
			r = measure(fds[i], &archive->files[i]);
	return r;
}

int archive_store(int folder, struct archive *archive, const int *fds)
{
	struct copies copies = {.folder = folder,
		.files = archive->files,
		.count = archive->count,
		.fds = (int *)(uintptr_t)fds};

	return copy_all(&copies);
}

int archive_load(int folder, const struct archive *archive, int *fds)
{
	struct copies copies = {.folder = folder,
		.files = archive->files,
		.count = archive->count,
		.fds = fds,
		.is_loading = true};

	return copy_all(&copies);
}

/*
 * The bundle
 */

int archive_store_bundle(int folder, int fd, struct archive *archive)
{
	struct archive_file file = {0};
	int r = measure(fd, &file);

	r = r ? r : store(folder, BUNDLE, fd, &file);
	archive->bundle_hash = file.hash;
	free(file.parts);
	return r;
}

int archive_load_bundle(int folder, const struct archive *archive, int *ret_fd)
{
	struct archive_file file = {.hash = archive->bundle_hash, .part_count = 1};
	struct archive_part part = {0};
	struct stat status;

	if (fstatat(folder, BUNDLE, &status, 0) < 0)
		return -errno;
	file.parts = &part;
	file.place = part.bytes = (uint64_t)status.st_size;
	return load(folder, BUNDLE, &file, ret_fd);
}

/*
 * The manifest
 */

static json_t *hash_text(uint64_t hash)
{
	char text[20];

	snprintf(text, sizeof(text), "%016" PRIx64, hash);
	return json_string(text);
}

static json_t *packet_text(const struct archive_file *file)
{
	char *text = calloc(1, 2 * file->packet_bytes + 1);
	json_t *json;

	for (size_t i = 0; text && i < file->packet_bytes; i++)
		snprintf(text + 2 * i, 3, "%02x", file->packet[i]);
	json = text ? json_string(text) : NULL;
	free(text);
	return json;
}

static json_t *parts_json(const struct archive_file *file)
{
	json_t *parts = json_array();

	for (size_t i = 0; i < file->part_count; i++)
		json_array_append_new(parts, json_pack("[I, I]", (json_int_t)file->parts[i].offset,
						     (json_int_t)file->parts[i].bytes));
	return parts;
}

static json_t *file_json(const struct archive_file *file)
{
	json_t *json = json_pack("{s:s, s:I}", "kind", kinds[file->kind], "place", (json_int_t)file->place);

	if (file->kind == ARCHIVE_CONTENT) {
		json_object_set_new(json, "parts", parts_json(file));
		json_object_set_new(json, "seals", json_integer(file->seals));
		json_object_set_new(json, "hash", hash_text(file->hash));
		return json;
	}
	json_object_set_new(json, "pid", json_integer(file->pid));
	if (file->packet)
		json_object_set_new(json, "packet", packet_text(file));
	return json;
}

/* The text that the manifest's own checksum is of. */
static char *dump(const json_t *json)
{
	return json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
}

static uint64_t hash_json(const json_t *json)
{
	char *text = dump(json);
	uint64_t hash = text ? hash_add(HASH_START, text, strlen(text)) : 0;

	free(text);
	return hash;
}

static json_t *manifest_of(const struct archive *archive)
{
	json_t *files = json_array(), *saved;

	for (uint32_t i = 0; i < archive->count; i++)
		json_array_append_new(files, file_json(&archive->files[i]));
	saved = json_pack("{s:i, s:i, s:o, s:o}", "format", FORMAT, "root", (int)archive->root, "bundle",
		hash_text(archive->bundle_hash), "files", files);
	return json_pack("{s:o, s:o}", "hash", hash_text(hash_json(saved)), "saved", saved);
}

/* Buffered: Jansson reads and writes a descriptor by single bytes and words. Return: 0 or -errno */
static int open_manifest(int folder, int flags, const char *mode, FILE **ret_file)
{
	int fd = openat(folder, MANIFEST, flags | O_CLOEXEC, 0600), r;

	*ret_file = fd < 0 ? NULL : fdopen(fd, mode);
	r = *ret_file ? 0 : -errno;
	if (r && fd >= 0)
		close(fd);
	return r;
}

int archive_write(int folder, const struct archive *archive)
{
	FILE *file;
	json_t *manifest;
	int r = open_manifest(folder, O_WRONLY | O_CREAT | O_EXCL, "w", &file);

	if (r)
		return r;
	manifest = manifest_of(archive);
	r = manifest ? 0 : -ENOMEM;
	if (manifest && json_dumpf(manifest, file, JSON_INDENT(1)))
		r = errno ? -errno : -EIO;
	json_decref(manifest);
	if (fclose(file) && !r)
		r = -errno;
	return r;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hash(const json_t *json, uint64_t *ret_hash)
{
	const char *text = json_string_value(json);

	if (!text || strlen(text) != 16)
		return false;
	*ret_hash = 0;
	for (; *text; text++) {
		if (digit(*text) < 0)
			return false;
		*ret_hash = 16 * *ret_hash + (uint64_t)digit(*text);
	}
	return true;
}

/* Return: false if it is no number of that range */
static bool read_number(const json_t *json, json_int_t least, json_int_t most, json_int_t *ret_number)
{
	*ret_number = json_integer_value(json);
	return json_is_integer(json) && *ret_number >= least && *ret_number <= most;
}

static bool read_packet(const char *text, struct archive_file *file)
{
	size_t bytes = strlen(text) / 2;

	if (!bytes || strlen(text) % 2 || bytes > WIRE_PACKET_MAX)
		return false;
	file->packet = calloc(1, bytes);
	file->packet_bytes = file->packet ? bytes : 0;
	for (size_t i = 0; i < file->packet_bytes; i++) {
		int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		file->packet[i] = (uint8_t)(16 * high + low);
	}
	return file->packet;
}

/* Parts are in order, and within the file. */
static bool read_parts(const json_t *json, struct archive_file *file)
{
	const json_int_t size = (json_int_t)file->place;
	json_int_t end = 0, offset, bytes;
	size_t index;
	json_t *one;

	file->parts = calloc(json_array_size(json) + 1, sizeof(*file->parts));
	if (!file->parts)
		return false;
	json_array_foreach (json, index, one) {
		if (!read_number(json_array_get(one, 0), end, size, &offset) ||
			!read_number(json_array_get(one, 1), 1, size - offset, &bytes))
			return false;
		file->parts[file->part_count++] = (struct archive_part){(uint64_t)offset, (uint64_t)bytes};
		end = offset + bytes;
	}
	return json_is_array(json);
}

static bool read_kind(const json_t *json, enum archive_kind *ret_kind)
{
	const char *name = json_string_value(json);

	for (int i = 0; name && i < ARCHIVE_KINDS; i++)
		if (!strcmp(name, kinds[i])) {
			*ret_kind = (enum archive_kind)i;
			return true;
		}
	return false;
}

static bool read_pid(const json_t *json, pid_t *ret_pid)
{
	json_int_t pid;
	bool is = read_number(json, 1, INT_MAX, &pid);

	*ret_pid = is ? (pid_t)pid : 0;
	return is;
}

static bool read_file(const json_t *json, struct archive_file *file)
{
	const json_t *packet = json_object_get(json, "packet");
	json_int_t place, seals;

	if (!read_kind(json_object_get(json, "kind"), &file->kind) ||
		!read_number(json_object_get(json, "place"), 0,
			file->kind == ARCHIVE_DESCRIPTOR ? INT_MAX : INT64_MAX, &place))
		return false;
	file->place = (uint64_t)place;
	if (file->kind != ARCHIVE_CONTENT)
		return read_pid(json_object_get(json, "pid"), &file->pid) &&
		       (!packet || (json_is_string(packet) && read_packet(json_string_value(packet), file)));
	if (!read_number(json_object_get(json, "seals"), -1, INT_MAX, &seals))
		return false;
	file->seals = (int)seals;
	return read_hash(json_object_get(json, "hash"), &file->hash) &&
	       read_parts(json_object_get(json, "parts"), file);
}

static bool read_saved(const json_t *saved, struct archive *archive)
{
	const json_t *files = json_object_get(saved, "files");
	size_t count = json_array_size(files);

	if (!count || count > FILES_MOST || !read_pid(json_object_get(saved, "root"), &archive->root) ||
		!read_hash(json_object_get(saved, "bundle"), &archive->bundle_hash))
		return false;
	archive->files = calloc(count, sizeof(*archive->files));
	for (size_t i = 0; archive->files && i < count; i++) {
		archive->count++;
		if (!read_file(json_array_get(files, i), &archive->files[i]))
			return false;
	}
	return archive->files;
}

static json_t *load_manifest(int folder)
{
	struct stat status;
	json_t *json = NULL;
	FILE *file;

	if (open_manifest(folder, O_RDONLY, "r", &file))
		return NULL;
	if (!fstat(fileno(file), &status) && status.st_size <= MANIFEST_MOST)
		json = json_loadf(file, 0, NULL);
	fclose(file);
	return json;
}

int archive_read(int folder, struct archive *archive, char *ret_text)
{
	json_t *manifest = load_manifest(folder);
	const json_t *saved = json_object_get(manifest, "saved");
	const char *text = NULL;
	uint64_t hash;

	*archive = (struct archive){0};
	if (!saved)
		text = "has no saved program: there is no manifest (" MANIFEST "), or none that can be read";
	else if (!read_hash(json_object_get(manifest, "hash"), &hash) || hash != hash_json(saved))
		text = "is damaged: the manifest (" MANIFEST ") is not what was written";
	else if (json_integer_value(json_object_get(saved, "format")) != FORMAT)
		text = "was written by another version";
	else if (!read_saved(saved, archive))
		text = "is damaged: the manifest (" MANIFEST ") has impossible values";
	json_decref(manifest);
	if (!text)
		return 0;
	snprintf(ret_text, ARCHIVE_TEXT, "%s", text);
	return -1;
}
