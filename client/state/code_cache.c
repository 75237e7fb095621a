// See code_cache.h. Runs on the program's threads. The settings are constant after the start. A
// file is read into private memory before its check, so that no other process can change or
// truncate the checked bytes.

#include "client/state/code_cache.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/state/device.h"
#include "client/state/file.h"
#include "client/state/log.h"
#include "client/state/session.h"
#include "protocol/fatbin.h"
#include "protocol/hash.h"

#define FOLDER	      "frmps"
#define MAGIC	      UINT64_C(0x31636a73706d7266) /* "frmpsjc1" */
#define BYTES_DEFAULT (UINT64_C(1) << 30)	   /* as the driver's */
/* Larger images are compiled each time: an entry is read and compared as a whole. */
#define ENTRY_BYTES_MAX (UINT64_C(64) << 20)
/* Most files in a folder: more than the programs of a user have texts. */
#define FILES_MAX 65536u

struct entry_header {
	uint64_t magic;
	uint64_t image_bytes, code_bytes, code_sum;
	uint32_t option_count, relocatable;
	int32_t driver_version, arch;
	char device[DEVICE_NAME_MAX];
};

static struct {
	char folder[PATH_MAX - 64]; /* "": switched off */
	size_t made_from;	    /* folders with longer paths are the cache's to make */
	uint64_t bytes_most;
} cache;

/* ---- start ---- */

/* @made_from: bytes of the longest path that is not the cache's to make. Return: false: too long */
static bool name_folder(const char *path, const char *below, size_t made_from)
{
	int n = snprintf(cache.folder, sizeof(cache.folder), "%s%s/" FOLDER, path, below);

	cache.made_from = made_from;
	return n > 0 && (size_t)n < sizeof(cache.folder);
}

void code_cache_start(void)
{
	const char *path = getenv("CUDA_CACHE_PATH"), *disable = getenv("CUDA_CACHE_DISABLE"),
		   *most = getenv("CUDA_CACHE_MAXSIZE"), *home = getenv("HOME");
	bool is_named;

	cache.bytes_most = most && most[0] ? strtoull(most, NULL, 10) : BYTES_DEFAULT;
	if (path && path[0])
		is_named = name_folder(path, "", strlen(path) - 1);
	else
		is_named = home && home[0] == '/' && name_folder(home, "/.nv/ComputeCache", strlen(home));
	if (!is_named || (disable && atoi(disable)))
		cache.folder[0] = '\0';
}

/* ---- images to look up ---- */

/* Of the session's device: 10 * major + minor. */
static unsigned arch(void)
{
	const struct client_device *device = device_get(device_own());
	int major = 0, minor = 0;

	device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major);
	device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor);
	return (unsigned)(10 * major + minor);
}

/* True for code that the driver may choose: then nothing is compiled. */
static bool fatbin_has_code(const uint8_t *image, uint64_t bytes)
{
	struct fatbin_header header;
	struct fatbin_entry entry;

	memcpy(&header, image, sizeof(header));
	for (uint64_t at = header.header_bytes; at <= bytes && bytes - at >= sizeof(entry);
		at += entry.header_bytes + entry.payload_bytes) {
		memcpy(&entry, image + at, sizeof(entry));
		if (entry.header_bytes < sizeof(entry) || entry.header_bytes > bytes - at ||
			entry.payload_bytes > bytes - at - entry.header_bytes)
			break;
		if (fatbin_is_for(image + at, arch()))
			return true;
	}
	return false;
}

/* An image that needs a compilation, with everything that its code depends on. */
struct wanted {
	struct entry_header header;
	const uint8_t *image;
	const struct jit *jit;
	char path[PATH_MAX];
};

static bool needs_compiler(const uint8_t *image, uint64_t bytes)
{
	uint32_t magic;

	if (bytes < sizeof(struct fatbin_header))
		return false;
	memcpy(&magic, image, sizeof(magic));
	if (magic == FATBIN_MAGIC)
		return !fatbin_has_code(image, bytes);
	return memcmp(image, ELFMAG, SELFMAG) != 0;
}

static void name(struct wanted *wanted)
{
	uint64_t sum = hash_add(HASH_START, &wanted->header, sizeof(wanted->header));

	sum = hash_add(sum, wanted->jit->options, wanted->jit->count * sizeof(wanted->jit->options[0]));
	sum = hash_add(sum, wanted->image, wanted->header.image_bytes);
	snprintf(wanted->path, sizeof(wanted->path), "%s/%016llx", cache.folder, (unsigned long long)sum);
}

static void want_end(struct wanted *wanted)
{
	munmap((void *)(uintptr_t)wanted->image, wanted->header.image_bytes);
}

/* Return: true if the image needs a compilation, and its code may be cached; then want_end() it */
static bool want(const struct image *image, const struct jit *jit, struct wanted *ret)
{
	void *view;

	if (!cache.folder[0] || jit->info.at || jit->error.at || image->bytes > ENTRY_BYTES_MAX)
		return false;
	view = mmap(NULL, image->bytes, PROT_READ, MAP_PRIVATE, image->fd, 0);
	if (view == MAP_FAILED)
		return false;
	memset(&ret->header, 0, sizeof(ret->header));
	ret->header.magic = MAGIC;
	ret->header.image_bytes = image->bytes;
	ret->header.option_count = jit->count;
	ret->header.relocatable = image->relocatable;
	ret->header.driver_version = session_self()->connection.driver_version;
	ret->header.arch = (int32_t)arch();
	snprintf(ret->header.device, sizeof(ret->header.device), "%s", device_get(device_own())->name);
	ret->image = view;
	ret->jit = jit;
	if (!needs_compiler(view, image->bytes)) {
		want_end(ret);
		return false;
	}
	name(ret);
	return true;
}

/* ---- entries ---- */

/* Uses statx(), because older C libraries lack the symbols of fstat() and fstatat(). @name: "": the
 * file itself
 * Return: true for a regular file */
static bool look_at(int fd, const char *name, struct statx *ret)
{
	return statx(fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, ret) == 0 &&
	       S_ISREG(ret->stx_mode);
}

/* A whole file that only this user and root can have written; NULL: none. The caller's. */
static uint8_t *read_file(const char *path, uint64_t *ret_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct statx status;
	uint8_t *bytes = NULL;

	if (fd < 0)
		return NULL;
	if (look_at(fd, "", &status) && !(status.stx_mode & 022) &&
		(status.stx_uid == geteuid() || status.stx_uid == 0) && status.stx_size > 0 &&
		status.stx_size <= 2 * ENTRY_BYTES_MAX)
		bytes = malloc(status.stx_size);
	*ret_bytes = bytes ? status.stx_size : 0;
	if (bytes && !file_read_all(fd, bytes, *ret_bytes)) {
		free(bytes);
		bytes = NULL;
	}
	if (bytes)
		futimens(fd, NULL); /* used now */
	close(fd);
	return bytes;
}

/* Return: the code in an entry; NULL for an invalid entry, or an entry of another image */
static const uint8_t *code_of(
	const uint8_t *file, uint64_t bytes, const struct wanted *wanted, uint64_t *ret_bytes)
{
	uint64_t options = wanted->jit->count * sizeof(wanted->jit->options[0]),
		 image = wanted->header.image_bytes;
	struct entry_header header, same;
	const uint8_t *at = file + sizeof(header);

	if (bytes < sizeof(header) + options + image)
		return NULL;
	memcpy(&header, file, sizeof(header));
	same = header;
	same.code_bytes = same.code_sum = 0;
	if (memcmp(&same, &wanted->header, sizeof(same)) != 0 || !header.code_bytes ||
		header.code_bytes != bytes - sizeof(header) - options - image)
		return NULL;
	if (memcmp(at, wanted->jit->options, options) != 0 || memcmp(at + options, wanted->image, image) != 0)
		return NULL;
	at += options + image;
	if (hash_add(HASH_START, at, header.code_bytes) != header.code_sum)
		return NULL;
	*ret_bytes = header.code_bytes;
	return at;
}

static bool find(const struct wanted *wanted, struct image *ret_code)
{
	uint64_t bytes, code_bytes = 0;
	uint8_t *file = read_file(wanted->path, &bytes);
	const uint8_t *code = file ? code_of(file, bytes, wanted, &code_bytes) : NULL;
	bool found = code && image_copy(code, code_bytes, false, ret_code) == CUDA_SUCCESS;

	free(file);
	return found;
}

bool code_cache_find(const struct image *image, const struct jit *jit, struct image *ret_code)
{
	int saved = errno, cancelable;
	struct wanted wanted;
	bool found;

	if (!want(image, jit, &wanted))
		return false;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	found = find(&wanted, ret_code);
	pthread_setcancelstate(cancelable, NULL);
	want_end(&wanted);
	errno = saved;
	return found;
}

/* ---- room ---- */

struct kept {
	char name[32];
	struct statx_timestamp used;
	uint64_t bytes;
};

static int by_use(const void *a, const void *b)
{
	const struct kept *one = a, *other = b;

	if (one->used.tv_sec != other->used.tv_sec)
		return one->used.tv_sec < other->used.tv_sec ? -1 : 1;
	return (one->used.tv_nsec > other->used.tv_nsec) - (one->used.tv_nsec < other->used.tv_nsec);
}

static size_t list(DIR *folder, struct kept **ret, uint64_t *ret_bytes)
{
	struct kept *files = NULL, *more;
	size_t count = 0, room = 0;
	struct dirent *file;
	struct statx status;

	*ret_bytes = 0;
	while (count < FILES_MAX && (file = readdir(folder))) {
		if (strlen(file->d_name) >= sizeof(files->name) ||
			!look_at(dirfd(folder), file->d_name, &status))
			continue;
		if (count == room) {
			room = room ? 2 * room : 64;
			more = realloc(files, room * sizeof(*files));
			if (!more)
				break;
			files = more;
		}
		strcpy(files[count].name, file->d_name); /* fits, as its length was looked at */
		files[count].used = status.stx_mtime;
		files[count++].bytes = status.stx_size;
		*ret_bytes += status.stx_size;
	}
	*ret = files;
	return count;
}

/* Removes the least recently used files until there is room for so many bytes. */
static void make_room(uint64_t bytes)
{
	DIR *folder = opendir(cache.folder);
	struct kept *files;
	uint64_t all;
	size_t count;

	if (!folder)
		return;
	count = list(folder, &files, &all);
	if (files && all + bytes > cache.bytes_most)
		qsort(files, count, sizeof(*files), by_use);
	for (size_t i = 0; i < count && all + bytes > cache.bytes_most; i++) {
		unlinkat(dirfd(folder), files[i].name, 0);
		all -= files[i].bytes;
	}
	free(files);
	closedir(folder);
}

/* ---- keeping ---- */

static bool write_entry(int fd, const struct wanted *wanted, const uint8_t *code)
{
	const struct entry_header *header = &wanted->header;
	uint64_t options = header->option_count * sizeof(wanted->jit->options[0]), at = sizeof(*header);

	return file_write_all(fd, header, sizeof(*header), 0) &&
	       file_write_all(fd, wanted->jit->options, options, at) &&
	       file_write_all(fd, wanted->image, header->image_bytes, at + options) &&
	       file_write_all(fd, code, header->code_bytes, at + options + header->image_bytes);
}

/* Most programs compile nothing, and get no folders. */
static void make_folders(void)
{
	char path[sizeof(cache.folder)];

	strcpy(path, cache.folder);
	for (char *end = path + cache.made_from + 1; (end = strchr(end, '/')); end++) {
		*end = '\0';
		mkdir(path, 0700);
		*end = '/';
	}
	mkdir(path, 0700);
}

static void keep(struct wanted *wanted, const uint8_t *code, uint64_t bytes)
{
	char temporary[PATH_MAX];
	bool written;
	int fd;

	wanted->header.code_bytes = bytes;
	wanted->header.code_sum = hash_add(HASH_START, code, bytes);
	make_folders();
	make_room(sizeof(wanted->header) + wanted->header.image_bytes + bytes);
	snprintf(temporary, sizeof(temporary), "%s/.XXXXXX", cache.folder);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return;
	written = write_entry(fd, wanted, code);
	close(fd);
	if (!written || rename(temporary, wanted->path) < 0) {
		client_log(CLIENT_LOG_INFO, "compiled code is not kept in %s: %s", cache.folder,
			strerror(errno));
		unlink(temporary);
	}
}

static void keep_file(struct wanted *wanted, int code_fd)
{
	struct statx status;
	void *code;

	if (!look_at(code_fd, "", &status) || status.stx_size == 0 || status.stx_size > ENTRY_BYTES_MAX ||
		sizeof(wanted->header) + wanted->header.image_bytes + status.stx_size > cache.bytes_most)
		return;
	code = mmap(NULL, status.stx_size, PROT_READ, MAP_PRIVATE, code_fd, 0);
	if (code == MAP_FAILED)
		return;
	keep(wanted, code, status.stx_size);
	munmap(code, status.stx_size);
}

void code_cache_keep(const struct image *image, const struct jit *jit, int code_fd)
{
	int saved = errno, cancelable;
	struct wanted wanted;

	if (!want(image, jit, &wanted))
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	keep_file(&wanted, code_fd);
	pthread_setcancelstate(cancelable, NULL);
	want_end(&wanted);
	errno = saved;
}
