// See archive.h.

#include "server/tools/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/hash.h"
#include "protocol/wire.h"

#define MANIFEST "frmps.json"
/* The form of the folder. */
#define FORMAT 2
/* More is no manifest of a program that the service can have. */
#define MANIFEST_MOST (64 << 20)
#define FILES_MOST    (1 << 20)

static const char *const kinds[ARCHIVE_KINDS] = {"mapping", "descriptor", "socket", "process", "content"};

const char *archive_kind_name(enum archive_kind kind)
{
	return kinds[kind];
}

void archive_free(struct archive *archive)
{
	for (uint32_t i = 0; i < archive->count; i++) {
		free(archive->files[i].packet);
		free(archive->files[i].pieces);
	}
	free(archive->files);
	*archive = (struct archive){0};
}

const char *archive_name(char name[ARCHIVE_NAME], uint32_t number, const struct archive_piece *piece)
{
	snprintf(name, ARCHIVE_NAME, ARCHIVE_MEMORY "/%" PRIu32 ".%" PRIx64, number, piece->offset);
	return name;
}

uint64_t archive_bytes(const struct archive *archive, enum archive_fate fate)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < archive->count; i++)
		for (size_t j = 0; j < archive->files[i].piece_count; j++)
			if (archive->files[i].pieces[j].fate == fate)
				bytes += archive->files[i].pieces[j].bytes;
	return bytes;
}

/*
 * Writing
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

/* Return: NULL without memory: no piece is left out */
static json_t *pieces_json(const struct archive_file *file)
{
	json_t *pieces = json_array();
	int r = 0;

	for (size_t i = 0; !r && i < file->piece_count; i++) {
		const struct archive_piece *piece = &file->pieces[i];

		if (piece->fate != ARCHIVE_ZEROES)
			r = json_array_append_new(
				pieces, json_pack("[I, I, o]", (json_int_t)piece->offset,
						(json_int_t)piece->bytes, hash_text(piece->hash)));
	}
	if (!r)
		return pieces;
	json_decref(pieces);
	return NULL;
}

/* Return: NULL without memory */
static json_t *file_json(const struct archive_file *file)
{
	const json_int_t place = (json_int_t)file->place;
	json_t *json;

	if (file->kind == ARCHIVE_CONTENT)
		return json_pack("{s:s, s:I, s:i, s:o}", "kind", kinds[file->kind], "place", place, "seals",
			file->seals, "pieces", pieces_json(file));
	json = json_pack("{s:s, s:I, s:i}", "kind", kinds[file->kind], "place", place, "pid", (int)file->pid);
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

/* Return: NULL without memory */
static json_t *manifest_of(const struct archive *archive)
{
	json_t *files = json_array(), *saved;

	for (uint32_t i = 0; i < archive->count; i++)
		if (json_array_append_new(files, file_json(&archive->files[i]))) {
			json_decref(files);
			return NULL;
		}
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

/*
 * Reading
 */

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

/* @from: where the piece before it ends. @size: of the file */
static bool read_piece(const json_t *json, json_int_t from, json_int_t size, struct archive_piece *piece)
{
	const json_int_t most = (json_int_t)ARCHIVE_PIECE;
	json_int_t offset, bytes;

	if (!read_number(json_array_get(json, 0), from, size, &offset) ||
		!read_number(json_array_get(json, 1), 1, size - offset < most ? size - offset : most, &bytes))
		return false;
	*piece = (struct archive_piece){
		.offset = (uint64_t)offset, .bytes = (uint64_t)bytes, .fate = ARCHIVE_STORED};
	return read_hash(json_array_get(json, 2), &piece->hash);
}

/* Pieces are in order, and within the file. */
static bool read_pieces(const json_t *json, struct archive_file *file)
{
	json_int_t end = 0;
	size_t index;
	json_t *one;

	file->pieces = calloc(json_array_size(json) + 1, sizeof(*file->pieces));
	if (!file->pieces)
		return false;
	json_array_foreach (json, index, one) {
		struct archive_piece *piece = &file->pieces[index];

		if (!read_piece(one, end, (json_int_t)file->place, piece))
			return false;
		file->piece_count++;
		end = (json_int_t)(piece->offset + piece->bytes);
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
	return read_pieces(json_object_get(json, "pieces"), file);
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
