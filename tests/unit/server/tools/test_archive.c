// Folders with saved programs: all comes out as it went in, and a folder that is damaged, or that
// names what cannot be, is refused.

#include "server/tools/content.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/hash.h"
#include "protocol/wire.h"
#include "tests/lib/folder.h"
#include "tests/lib/suite.h"

#define PAGE	      4096u
#define MIB	      (UINT64_C(1) << 20)
#define FILES	      9
#define SPARSE	      4 /* the first of the contents */
#define EMPTY	      5
#define HOLLOW	      6
#define PLAIN	      7
#define ZEROES	      8
#define LARGE	      (11 * MIB + 5)
#define SPARSE_PIECES 5u
#define A_PIECE	      "memory/4.200000" /* of SPARSE */
#define A_HASH	      "\"0123456789abcdef\""
#define OF_BUNDLE     70000u

static const uint8_t question[] = {0, 1, 0x7f, 0x80, 0xff};

static int folder;
static struct archive archive, again;
static int fds[FILES], loaded[FILES], bundle, loaded_bundle;
static char text[ARCHIVE_TEXT];

static void fill(int fd, uint64_t offset, size_t bytes, unsigned seed)
{
	uint8_t *some = malloc(bytes);

	ck_assert_ptr_nonnull(some);
	for (size_t i = 0; i < bytes; i++)
		some[i] = (uint8_t)(seed + i * 7 + i / PAGE);
	ck_assert_int_eq(pwrite(fd, some, bytes, (off_t)offset), (ssize_t)bytes);
	free(some);
}

static int make_memory(uint64_t bytes, unsigned flags)
{
	int fd = memfd_create("content", MFD_CLOEXEC | flags);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

/* A small piece, three that lie side by side, and an end that is none of pages. */
static int make_sparse(void)
{
	int fd = make_memory(LARGE, MFD_ALLOW_SEALING);

	fill(fd, MIB, PAGE, 1);
	fill(fd, 2 * MIB, 5 * MIB, 2);
	fill(fd, LARGE - 5, 5, 3);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

/* Has no seals, unless /tmp is in memory. */
static int make_plain(void)
{
	int fd = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	fill(fd, 0, 3 * PAGE + 1, 4);
	return fd;
}

static int make_zeroes(void)
{
	static const uint8_t none[2 * PAGE];
	int fd = make_memory(0, 0);

	ck_assert_int_eq(write(fd, none, sizeof(none)), (ssize_t)sizeof(none));
	return fd;
}

static void make_archive(void)
{
	static const struct archive_file files[FILES] = {
		{.kind = ARCHIVE_MAPPING, .pid = 41, .place = UINT64_C(0x7ffff7ff0000)},
		{.kind = ARCHIVE_DESCRIPTOR, .pid = 42, .place = 17},
		{.kind = ARCHIVE_SOCKET, .pid = 41, .place = 4711},
		{.kind = ARCHIVE_PROCESS, .pid = 41},
		[SPARSE] = {.kind = ARCHIVE_CONTENT},
		[EMPTY] = {.kind = ARCHIVE_CONTENT},
		[HOLLOW] = {.kind = ARCHIVE_CONTENT},
		[PLAIN] = {.kind = ARCHIVE_CONTENT},
		[ZEROES] = {.kind = ARCHIVE_CONTENT},
	};

	archive = (struct archive){.root = 40, .count = FILES};
	archive.files = malloc(sizeof(files));
	ck_assert_ptr_nonnull(archive.files);
	memcpy(archive.files, files, sizeof(files));
	archive.files[2].packet = malloc(sizeof(question));
	ck_assert_ptr_nonnull(archive.files[2].packet);
	memcpy(archive.files[2].packet, question, sizeof(question));
	archive.files[2].packet_bytes = sizeof(question);
}

static void open_folder(const char *name)
{
	if (folder >= 0)
		close(folder);
	folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(folder, 0);
}

/* All of it, as a tool stores it. */
static void set_up(void)
{
	folder_enter_in_memory();
	ck_assert_int_eq(mkdir("saved", 0700), 0);
	folder = -1;
	open_folder("saved");
	make_archive();
	for (int i = 0; i < FILES; i++)
		fds[i] = loaded[i] = -1;
	fds[SPARSE] = make_sparse();
	fds[EMPTY] = make_memory(0, 0);
	fds[HOLLOW] = make_memory(3 * PAGE, MFD_ALLOW_SEALING);
	fds[PLAIN] = make_plain();
	fds[ZEROES] = make_zeroes();
	bundle = make_memory(0, 0);
	loaded_bundle = -1;
	fill(bundle, 0, OF_BUNDLE, 5);
	ck_assert_int_eq(content_store_bundle(folder, bundle, &archive), 0);
	ck_assert_int_eq(content_measure(&archive, fds), 0);
	ck_assert_int_eq(content_store(folder, &archive, fds, NULL), 0);
	ck_assert_int_eq(archive_write(folder, &archive), 0);
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void forget_loaded(void)
{
	for (int i = 0; i < FILES; i++)
		close_one(&loaded[i]);
	close_one(&loaded_bundle);
	archive_free(&again);
}

static void tear_down(void)
{
	forget_loaded();
	for (int i = 0; i < FILES; i++)
		close_one(&fds[i]);
	close_one(&bundle);
	close_one(&folder);
	archive_free(&archive);
	folder_leave();
}

/*
 * Whole
 */

static void read_archive(void)
{
	ck_assert_msg(!archive_read(folder, &again, text), "%s", text);
}

static uint64_t size_of(int fd)
{
	struct stat status;

	ck_assert_int_eq(fstat(fd, &status), 0);
	return (uint64_t)status.st_size;
}

static void expect_same_bytes(int fd, int other)
{
	static uint8_t bytes[1 << 16], others[1 << 16];
	const uint64_t size = size_of(fd);

	ck_assert_uint_eq(size_of(other), size);
	for (uint64_t at = 0; at < size; at += sizeof(bytes)) {
		ssize_t got = pread(fd, bytes, sizeof(bytes), (off_t)at);

		ck_assert_int_gt(got, 0);
		ck_assert_int_eq(pread(other, others, sizeof(others), (off_t)at), got);
		ck_assert_int_eq(memcmp(bytes, others, (size_t)got), 0);
	}
}

static uint64_t blocks_of(int fd)
{
	struct stat status;

	ck_assert_int_eq(fstat(fd, &status), 0);
	return (uint64_t)status.st_blocks;
}

/* Return: of content_load(), content_await_rest() or content_await() */
static int load_all(void)
{
	struct copies *load;
	uint64_t place = 0;
	int r = content_load(folder, &again, again.count, loaded, &load);

	while (!r && (r = content_await_rest(load)) == -EAGAIN)
		r = 0;
	while (!r && place != UINT64_MAX)
		r = content_await(load, &place);
	content_end(load);
	return r;
}

static void expect_loaded(void)
{
	read_archive();
	ck_assert_int_eq(content_load_bundle(folder, &again, &loaded_bundle), 0);
	expect_same_bytes(bundle, loaded_bundle);
	ck_assert_int_eq(load_all(), 0);
	for (int i = 0; i < FILES; i++) {
		ck_assert_int_eq(loaded[i] >= 0, fds[i] >= 0);
		if (loaded[i] >= 0)
			expect_same_bytes(fds[i], loaded[i]);
	}
}

TEST(archive, all_comes_out_as_it_went_in)
{
	read_archive();
	ck_assert_int_eq(again.root, archive.root);
	ck_assert_uint_eq(again.count, FILES);
	ck_assert_uint_eq(again.bundle_hash, archive.bundle_hash);
	for (int i = 0; i < FILES; i++) {
		const struct archive_file *file = &again.files[i], *was = &archive.files[i];

		ck_assert_int_eq(file->kind, was->kind);
		ck_assert_str_eq(archive_kind_name(file->kind), archive_kind_name(was->kind));
		ck_assert_int_eq(file->pid, was->pid);
		ck_assert_uint_eq(file->place, was->place);
		ck_assert_int_eq(file->seals, was->seals);
		ck_assert_uint_eq(file->packet_bytes, was->packet_bytes);
	}
	ck_assert_uint_eq(again.files[SPARSE].piece_count, SPARSE_PIECES);
	for (size_t i = 0; i < SPARSE_PIECES; i++) {
		const struct archive_piece *piece = &again.files[SPARSE].pieces[i],
					   *was = &archive.files[SPARSE].pieces[i];

		ck_assert_uint_eq(piece->offset, was->offset);
		ck_assert_uint_eq(piece->bytes, was->bytes);
		ck_assert_uint_eq(piece->hash, was->hash);
		ck_assert_int_eq(piece->fate, ARCHIVE_STORED);
	}
	ck_assert_mem_eq(again.files[2].packet, question, sizeof(question));
}

TEST(archive, contents_come_out_as_they_went_in)
{
	const int plain_seals = fcntl(fds[PLAIN], F_GET_SEALS);

	expect_loaded();
	ck_assert_int_eq(fcntl(loaded[SPARSE], F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
	ck_assert_int_eq(fcntl(loaded[HOLLOW], F_GET_SEALS), 0);
	/* Of a file that can have none. */
	ck_assert_int_eq(fcntl(loaded[ZEROES], F_GET_SEALS), F_SEAL_SEAL);
	ck_assert_int_eq(fcntl(loaded[PLAIN], F_GET_SEALS), plain_seals < 0 ? 0 : plain_seals);
}

/* Return: files in the folder of pieces that begin so */
static unsigned count_pieces(const char *begin)
{
	int fd = openat(folder, ARCHIVE_MEMORY, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *all = fdopendir(fd);
	const struct dirent *entry;
	unsigned count = 0;

	ck_assert_ptr_nonnull(all);
	while ((entry = readdir(all)))
		count += !strncmp(entry->d_name, begin, strlen(begin));
	closedir(all);
	return count;
}

/* One of its pieces cannot be read for a while: who opens a file with a lease waits for its end. */
TEST(archive, memory_is_there_as_far_as_is_said)
{
	int held = openat(folder, A_PIECE, O_RDONLY | O_CLOEXEC);
	struct copies *load;
	uint64_t place = 0;

	/* Whoever waits for it is told. */
	signal(SIGIO, SIG_IGN);
	ck_assert_int_eq(fcntl(held, F_SETLEASE, F_WRLCK), 0);
	read_archive();
	ck_assert_int_eq(content_load(folder, &again, SPARSE, loaded, &load), 0);
	ck_assert_int_eq(content_await_rest(load), 0);
	while (place != 2 * MIB)
		ck_assert_int_eq(content_await(load, &place), 0);
	for (int i = PLAIN; i < FILES; i++)
		expect_same_bytes(fds[i], loaded[i]);
	close(held);
	while (place != UINT64_MAX)
		ck_assert_int_eq(content_await(load, &place), 0);
	content_end(load);
	for (int i = SPARSE; i < FILES; i++)
		expect_same_bytes(fds[i], loaded[i]);
}

/* All threads may be in the middle of something. */
TEST(archive, a_load_can_be_left)
{
	struct copies *load;

	read_archive();
	ck_assert_int_eq(content_load(folder, &again, SPARSE, loaded, &load), 0);
	ck_assert_ptr_null(content_end(load));
	ck_assert_ptr_null(content_end(NULL));
}

/* A hole costs nothing, in the folder and behind it. */
TEST(archive, holes_stay_holes)
{
	expect_loaded();
	ck_assert_uint_eq(count_pieces("4."), SPARSE_PIECES);
	ck_assert_uint_eq(archive_bytes(&again, ARCHIVE_STORED), PAGE + 5 * MIB + 5 + 3 * PAGE + 1);
	ck_assert_uint_eq(archive_bytes(&archive, ARCHIVE_STORED), archive_bytes(&again, ARCHIVE_STORED));
	ck_assert_uint_lt(blocks_of(loaded[SPARSE]) * 512, 6 * MIB);
	ck_assert_uint_eq(archive.files[HOLLOW].piece_count, 0);
	ck_assert_uint_eq(count_pieces("6."), 0);
	ck_assert_uint_eq(blocks_of(loaded[HOLLOW]), 0);
}

TEST(archive, zeroes_become_holes)
{
	expect_loaded();
	ck_assert_uint_eq(archive.files[ZEROES].piece_count, 1);
	ck_assert_int_eq(archive.files[ZEROES].pieces[0].fate, ARCHIVE_ZEROES);
	ck_assert_uint_eq(archive_bytes(&archive, ARCHIVE_ZEROES), 2 * PAGE);
	ck_assert_uint_eq(again.files[ZEROES].piece_count, 0);
	ck_assert_uint_eq(count_pieces("8."), 0);
	ck_assert_uint_eq(blocks_of(loaded[ZEROES]), 0);
}

/* Others may have links to them. */
TEST(archive, pieces_are_read_only)
{
	struct stat status;

	ck_assert_int_eq(fstatat(folder, A_PIECE, &status, 0), 0);
	ck_assert_uint_eq(status.st_mode & 07777, 0400);
}

/* Whatever a copy makes of the bytes that are zero. */
TEST_LOOP(archive, a_copied_folder_is_the_same, 0, 2)
{
	folder_shell(_i ? "cp -r --sparse=always saved copy" : "cp -r --sparse=never saved copy");
	open_folder("copy");
	expect_loaded();
}

TEST(archive, nothing_is_overwritten)
{
	struct archive other = {0};

	ck_assert_int_eq(content_store(folder, &archive, fds, NULL), -EEXIST);
	ck_assert_int_eq(content_store_bundle(folder, bundle, &other), -EEXIST);
	ck_assert_int_eq(archive_write(folder, &archive), -EEXIST);
}

/* As on a full disk. */
TEST(archive, what_has_no_room_is_an_error)
{
	const struct rlimit limit = {.rlim_cur = MIB, .rlim_max = RLIM_INFINITY};

	folder_shell("mkdir full");
	open_folder("full");
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_int_eq(content_store(folder, &archive, fds, NULL), -EFBIG);
}

/* By a program that frees memory while the tool stores it, whatever of it is gone. */
TEST_LOOP(archive, what_is_freed_since_is_noticed, 0, 3)
{
	const off_t places[] = {MIB, 3 * MIB, 2 * MIB}, counts[] = {PAGE, PAGE, 5 * MIB};

	folder_shell("mkdir late");
	open_folder("late");
	ck_assert_int_eq(
		fallocate(fds[SPARSE], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, places[_i], counts[_i]),
		0);
	ck_assert_int_eq(content_store(folder, &archive, fds, NULL), -EBADMSG);
}

TEST(archive, what_is_cut_off_since_is_noticed)
{
	folder_shell("mkdir late");
	open_folder("late");
	ck_assert_int_eq(ftruncate(fds[PLAIN], PAGE), 0);
	ck_assert_int_eq(content_store(folder, &archive, fds, NULL), -EBADMSG);
}

/*
 * Damaged contents
 */

static int open_file(const char *name)
{
	int fd;

	ck_assert_int_eq(fchmodat(folder, name, 0600, 0), 0);
	fd = openat(folder, name, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void change_byte(const char *name, off_t at)
{
	int fd = open_file(name);
	uint8_t byte;

	ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
	byte ^= 0x10;
	ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static off_t bytes_of(const char *name)
{
	struct stat status;

	ck_assert_int_eq(fstatat(folder, name, &status, 0), 0);
	return status.st_size;
}

static void cut(const char *name, off_t bytes)
{
	int fd = open_file(name);

	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	close(fd);
}

/* @content: else, the bundle */
static void expect_bad(bool content, int r)
{
	read_archive();
	if (content)
		ck_assert_int_eq(load_all(), r);
	else
		ck_assert_int_eq(content_load_bundle(folder, &again, &loaded_bundle), r);
	ck_assert_int_lt(content ? -1 : loaded_bundle, 0);
	forget_loaded();
}

TEST_LOOP(archive, another_byte_is_noticed, 0, 2)
{
	const char *name = _i ? A_PIECE : "bundle";
	const off_t bytes = bytes_of(name), places[] = {0, bytes / 2, bytes - 1};

	for (unsigned i = 0; i < 3; i++) {
		change_byte(name, places[i]);
		expect_bad(_i, -EBADMSG);
		change_byte(name, places[i]);
	}
	expect_loaded();
}

TEST_LOOP(archive, a_missing_end_is_noticed, 0, 2)
{
	const char *name = _i ? A_PIECE : "bundle";

	cut(name, bytes_of(name) - 1);
	expect_bad(_i, -EBADMSG);
	cut(name, 0);
	expect_bad(_i, -EBADMSG);
	ck_assert_int_eq(unlinkat(folder, name, 0), 0);
	expect_bad(_i, -ENOENT);
}

/*
 * Damaged manifests
 */

#define NONE	   "no manifest"
#define DAMAGED	   "not what was written"
#define FOREIGN	   "another version"
#define IMPOSSIBLE "impossible values"

static void expect_refused(const char *why)
{
	ck_assert_int_eq(archive_read(folder, &again, text), -1);
	ck_assert_msg(strstr(text, why), "%s", text);
	archive_free(&again);
}

static void put_manifest(const char *bytes, size_t count)
{
	int fd = openat(folder, "frmps.json", O_WRONLY | O_TRUNC | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, count), (ssize_t)count);
	close(fd);
}

static char *get_manifest(size_t *ret_bytes)
{
	int fd = openat(folder, "frmps.json", O_RDONLY | O_CLOEXEC);
	char *bytes;

	*ret_bytes = size_of(fd);
	bytes = calloc(1, *ret_bytes + 1);
	ck_assert_ptr_nonnull(bytes);
	ck_assert_int_eq(read(fd, bytes, *ret_bytes), (ssize_t)*ret_bytes);
	close(fd);
	return bytes;
}

TEST(manifest, every_byte_counts)
{
	size_t count;
	char *bytes = get_manifest(&count);

	for (size_t i = 0; i < count; i++) {
		bytes[i] ^= 1;
		put_manifest(bytes, count);
		expect_refused("");
		bytes[i] ^= 1;
	}
	put_manifest(bytes, count);
	read_archive();
	free(bytes);
}

TEST(manifest, a_part_of_it_is_none)
{
	size_t count;
	char *bytes = get_manifest(&count);

	for (size_t i = 0; i < count; i++) {
		put_manifest(bytes, i);
		expect_refused(NONE);
	}
	free(bytes);
}

TEST(manifest, what_is_none_is_refused)
{
	const char *const others[] = {"", "[]", "1", "{}", "{\"saved\": null", "null"};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		put_manifest(others[i], strlen(others[i]));
		expect_refused(NONE);
	}
	put_manifest("{\"saved\": {}}", 13);
	expect_refused(DAMAGED);
	/* Longer than any. */
	cut("frmps.json", INT64_C(1) << 40);
	expect_refused(NONE);
	ck_assert_int_eq(unlinkat(folder, "frmps.json", 0), 0);
	expect_refused(NONE);
}

/* Writes what somebody has saved who knows how. */
static void write_saved(json_t *saved)
{
	char *bytes = json_dumps(saved, JSON_COMPACT | JSON_SORT_KEYS), hash[20], *all;
	int count;

	ck_assert_ptr_nonnull(bytes);
	snprintf(hash, sizeof(hash), "%016" PRIx64, hash_add(HASH_START, bytes, strlen(bytes)));
	count = asprintf(&all, "{\"hash\": \"%s\", \"saved\": %s}", hash, bytes);
	ck_assert_int_gt(count, 0);
	put_manifest(all, (size_t)count);
	free(all);
	free(bytes);
}

static json_t *read_saved(void)
{
	size_t count;
	char *bytes = get_manifest(&count);
	json_t *manifest = json_loadb(bytes, count, 0, NULL), *saved;

	saved = json_incref(json_object_get(manifest, "saved"));
	json_decref(manifest);
	free(bytes);
	ck_assert_ptr_nonnull(saved);
	return saved;
}

/* @file: -1: of all of it. @value: JSON; NULL: there is none */
static void write_with(int file, const char *name, const char *value)
{
	json_t *saved = read_saved(), *place = saved, *other;

	if (file >= 0)
		place = json_array_get(json_object_get(saved, "files"), (size_t)file);
	other = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
	ck_assert(!value || other);
	if (other)
		json_object_set_new(place, name, other);
	else
		json_object_del(place, name);
	write_saved(saved);
	json_decref(saved);
}

#define MOST "9223372036854775807"

static const struct {
	int file;
	const char *name, *value, *why; /* why: NULL: it is possible */
} changes[] = {
	{-1, "format", "2", NULL},
	{-1, "format", "1", FOREIGN},
	{-1, "format", "3", FOREIGN},
	{-1, "format", "\"2\"", FOREIGN},
	{-1, "format", NULL, FOREIGN},
	{-1, "root", "2147483647", NULL},
	{-1, "root", "0", IMPOSSIBLE},
	{-1, "root", "-40", IMPOSSIBLE},
	{-1, "root", "4294967336", IMPOSSIBLE},
	{-1, "root", "\"40\"", IMPOSSIBLE},
	{-1, "root", NULL, IMPOSSIBLE},
	{-1, "bundle", "\"0123456789abcdef\"", NULL},
	{-1, "bundle", "\"0123456789abcde\"", IMPOSSIBLE},
	{-1, "bundle", "\"0123456789abcdeg\"", IMPOSSIBLE},
	{-1, "bundle", "\"-0x0000000000001\"", IMPOSSIBLE},
	{-1, "bundle", "1", IMPOSSIBLE},
	{-1, "bundle", NULL, IMPOSSIBLE},
	{-1, "files", "[]", IMPOSSIBLE},
	{-1, "files", "{}", IMPOSSIBLE},
	{-1, "files", "[1]", IMPOSSIBLE},
	{-1, "files", NULL, IMPOSSIBLE},
	{0, "kind", "\"content\"", IMPOSSIBLE},
	{0, "kind", "\"\"", IMPOSSIBLE},
	{0, "kind", "0", IMPOSSIBLE},
	{0, "kind", NULL, IMPOSSIBLE},
	{0, "pid", "0", IMPOSSIBLE},
	{0, "pid", "-1", IMPOSSIBLE},
	{0, "pid", "4294967337", IMPOSSIBLE},
	{0, "pid", NULL, IMPOSSIBLE},
	{0, "place", MOST, NULL},
	{0, "place", "-1", IMPOSSIBLE},
	{0, "place", "4096.0", IMPOSSIBLE},
	{0, "place", "\"4096\"", IMPOSSIBLE},
	{0, "place", NULL, IMPOSSIBLE},
	{1, "place", "2147483647", NULL},
	{1, "place", "4294967296", IMPOSSIBLE},
	{2, "packet", NULL, NULL},
	{2, "packet", "\"\"", IMPOSSIBLE},
	{2, "packet", "\"0\"", IMPOSSIBLE},
	{2, "packet", "\"012\"", IMPOSSIBLE},
	{2, "packet", "\"0g\"", IMPOSSIBLE},
	{2, "packet", "\"g0\"", IMPOSSIBLE},
	{2, "packet", "7", IMPOSSIBLE},
	{SPARSE, "seals", "2147483648", IMPOSSIBLE},
	{SPARSE, "seals", "-2", IMPOSSIBLE},
	{SPARSE, "seals", NULL, IMPOSSIBLE},
	{SPARSE, "place", "4096", IMPOSSIBLE},
	{SPARSE, "pieces", "[]", NULL},
	{SPARSE, "pieces", "[[0, 2097152, " A_HASH "]]", NULL},
	{SPARSE, "pieces", "[[0, 2097153, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[11534331, 10, " A_HASH "]]", NULL},
	{SPARSE, "pieces", "[[11534331, 11, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[11534341, 1, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[" MOST ", 1, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[1, " MOST ", " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[" MOST ", " MOST ", " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[-1, 1, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[0, 0, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[0, -1, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[0, 10, " A_HASH "], [10, 10, " A_HASH "]]", NULL},
	{SPARSE, "pieces", "[[0, 10, " A_HASH "], [9, 10, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[10, 10, " A_HASH "], [0, 10, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[0, 10, " A_HASH "], [0, 10, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[0]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[0, 10]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[0, 10, \"0123456789abcde\"]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[0, 10, 7]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[[\"0\", 10, " A_HASH "]]", IMPOSSIBLE},
	{SPARSE, "pieces", "[10]", IMPOSSIBLE},
	{SPARSE, "pieces", "{}", IMPOSSIBLE},
	{SPARSE, "pieces", NULL, IMPOSSIBLE},
};

TEST_LOOP(manifest, what_cannot_be_is_refused, 0, sizeof(changes) / sizeof(*changes))
{
	write_with(changes[_i].file, changes[_i].name, changes[_i].value);
	if (changes[_i].why)
		expect_refused(changes[_i].why);
	else
		read_archive();
}

/* No reader of JSON can have this one. */
TEST(manifest, a_number_beyond_all_is_refused)
{
	const char *all = "{\"hash\": \"0123456789abcdef\", \"saved\": {\"format\": 9223372036854775808}}";

	put_manifest(all, strlen(all));
	expect_refused(NONE);
}

TEST(manifest, more_files_than_any_program_has_are_refused)
{
	json_t *saved = read_saved(), *files = json_object_get(saved, "files"), *one;

	one = json_array_get(files, 3);
	while (json_array_size(files) <= 1 << 20)
		json_array_append(files, one);
	write_saved(saved);
	json_decref(saved);
	expect_refused(IMPOSSIBLE);
}

TEST_LOOP(manifest, a_packet_is_no_longer_than_any, 0, 2)
{
	const size_t count = 2 * (WIRE_PACKET_MAX + (size_t)_i);
	char *value = malloc(count + 3);

	ck_assert_ptr_nonnull(value);
	memset(value, '0', count + 2);
	value[0] = value[count + 1] = '"';
	value[count + 2] = '\0';
	write_with(2, "packet", value);
	free(value);
	if (_i)
		expect_refused(IMPOSSIBLE);
	else
		read_archive();
}

/* The pieces are possible, and not those of the file. */
TEST(manifest, pieces_of_another_file_are_noticed)
{
	write_with(SPARSE, "pieces", "[[2097152, 10, " A_HASH "]]");
	expect_bad(true, -EBADMSG);
	write_with(SPARSE, "pieces", "[[4096, 10, " A_HASH "]]");
	expect_bad(true, -ENOENT);
}

TEST_LOOP(manifest, a_file_of_an_impossible_size_is_refused, 0, 2)
{
	write_with(EMPTY, "place", MOST);
	write_with(EMPTY, "pieces", _i ? "[[9223372036854775800, 7, " A_HASH "]]" : "[]");
	read_archive();
	if (_i)
		ck_assert_int_lt(load_all(), 0);
	else
		load_all();
}

TEST(manifest, impossible_seals_are_refused)
{
	write_with(EMPTY, "seals", "2147483647");
	read_archive();
	ck_assert_int_eq(load_all(), -EINVAL);
}

int main(void)
{
	Suite *suite = suite_create("archive");
	TCase *whole = suite_case(suite, "archive"), *manifest = suite_case(suite, "manifest");

	tcase_add_checked_fixture(whole, set_up, tear_down);
	tcase_add_checked_fixture(manifest, set_up, tear_down);
	suite_add(whole, "archive");
	suite_add(manifest, "manifest");
	return suite_run(suite);
}
