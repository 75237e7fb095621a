// Pieces that a checkpoint shares with an earlier one: those with the same bytes and no others,
// whatever is wrong with the earlier folder. Each folder is whole without the other. linkat() is
// the test's, and fails, kills or cheats.

#include "server/tools/earlier.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/tools/content.h"
#include "tests/lib/folder.h"
#include "tests/lib/suite.h"

#define PAGE	 4096u
#define WHOLE	 ((size_t)ARCHIVE_PIECE)
#define MEMORIES 2
#define LARGE	 (4 * WHOLE + 5) /* of the first: five pieces, the second of which is zero */
#define SMALL	 (2 * WHOLE)	 /* of the other: a hole, and a piece */
#define PIECES	 5u		 /* that are stored */
#define A_PIECE	 "first/memory/0.400000"

/*
 * Links
 */

static _Atomic enum { LINKS_ARE_MADE, LINKS_FAIL, LINKS_KILL, LINKS_COME_LATE } links;
static atomic_int links_left; /* before that begins */

/* Puts another file in the place of a piece, which is about to be linked. */
static void replace(void)
{
	ck_assert_int_eq(rename("other", A_PIECE), 0);
}

int linkat(int from, const char *path, int to, const char *name, int flags)
{
	if (links != LINKS_ARE_MADE && atomic_fetch_sub(&links_left, 1) <= 0) {
		if (links == LINKS_KILL)
			raise(SIGKILL);
		if (links == LINKS_FAIL) {
			errno = EXDEV;
			return -1;
		}
		links = LINKS_ARE_MADE;
		replace();
	}
	return (int)syscall(SYS_linkat, from, path, to, name, flags);
}

/*
 * A program with two files of memory
 */

static uint8_t *memory[MEMORIES];
static int fds[MEMORIES];
static size_t sizes[MEMORIES];
static struct archive archive;
static char text[ARCHIVE_TEXT];

static void fill(uint8_t *at, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)(seed + i * 7 + i / PAGE);
}

static void set_up(void)
{
	folder_enter_in_memory();
	links = LINKS_ARE_MADE;
	links_left = 0;
	sizes[0] = LARGE;
	sizes[1] = SMALL;
	for (int i = 0; i < MEMORIES; i++) {
		fds[i] = memfd_create("content", MFD_CLOEXEC);
		ck_assert_int_ge(fds[i], 0);
		ck_assert_int_eq(ftruncate(fds[i], (off_t)sizes[i]), 0);
		memory[i] = mmap(NULL, 5 * WHOLE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
		ck_assert_ptr_ne(memory[i], MAP_FAILED);
	}
	fill(memory[0], WHOLE, 1);
	memset(memory[0] + WHOLE, 0, WHOLE);
	fill(memory[0] + 2 * WHOLE, WHOLE, 2);
	fill(memory[0] + 3 * WHOLE, WHOLE + 5, 3);
	fill(memory[1] + WHOLE, WHOLE, 4);
}

static void tear_down(void)
{
	archive_free(&archive);
	for (int i = 0; i < MEMORIES; i++) {
		munmap(memory[i], 5 * WHOLE);
		close(fds[i]);
	}
	folder_leave();
}

static int open_folder(const char *name)
{
	int folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(folder, 0);
	return folder;
}

static void make_archive(void)
{
	archive_free(&archive);
	archive = (struct archive){.root = 40, .count = MEMORIES};
	archive.files = calloc(MEMORIES, sizeof(*archive.files));
	ck_assert_ptr_nonnull(archive.files);
	for (int i = 0; i < MEMORIES; i++)
		archive.files[i].kind = ARCHIVE_CONTENT;
}

/* As the tool does it. */
static void store(const char *name, const struct earlier *earlier)
{
	int folder;

	ck_assert_int_eq(mkdir(name, 0700), 0);
	folder = open_folder(name);
	make_archive();
	ck_assert_int_eq(content_store_bundle(folder, fds[1], &archive), 0);
	ck_assert_int_eq(content_measure(&archive, fds), 0);
	ck_assert_int_eq(content_store(folder, &archive, fds, earlier), 0);
	ck_assert_int_eq(archive_write(folder, &archive), 0);
	close(folder);
}

static struct earlier *open_earlier(const char *name)
{
	struct earlier *earlier = earlier_open(name, text);

	ck_assert_msg(earlier, "%s", text);
	return earlier;
}

static void store_since(const char *name, const char *earlier_name)
{
	struct earlier *earlier = open_earlier(earlier_name);

	store(name, earlier);
	earlier_close(earlier);
}

/* Return: pieces with that fate */
static unsigned count(enum archive_fate fate)
{
	unsigned found = 0;

	for (uint32_t i = 0; i < archive.count; i++)
		for (size_t j = 0; j < archive.files[i].piece_count; j++)
			found += archive.files[i].pieces[j].fate == fate;
	return found;
}

static void expect(unsigned stored, unsigned shared)
{
	ck_assert_uint_eq(count(ARCHIVE_STORED), stored);
	ck_assert_uint_eq(count(ARCHIVE_SHARED), shared);
}

/* Return: of content_load() */
static int load(const char *name, int *loaded)
{
	int folder = open_folder(name), r;
	struct archive there;
	struct copies *load;

	ck_assert_msg(!archive_read(folder, &there, text), "%s", text);
	r = content_load(folder, &there, there.count, loaded, &load);
	while (!r && (r = content_await_rest(load)) == -EAGAIN)
		r = 0;
	content_end(load);
	archive_free(&there);
	close(folder);
	return r;
}

/* The folder has what the program has now. */
static void expect_whole(const char *name)
{
	int loaded[MEMORIES];

	ck_assert_int_eq(load(name, loaded), 0);
	for (int i = 0; i < MEMORIES; i++) {
		uint8_t *bytes = malloc(5 * WHOLE);

		ck_assert_ptr_nonnull(bytes);
		ck_assert_int_eq(pread(loaded[i], bytes, 5 * WHOLE, 0), (ssize_t)sizes[i]);
		ck_assert_int_eq(memcmp(bytes, memory[i], sizes[i]), 0);
		free(bytes);
		close(loaded[i]);
	}
}

static struct stat status_of(const char *path)
{
	struct stat status;

	ck_assert_int_eq(lstat(path, &status), 0);
	return status;
}

static void change_byte(const char *path, off_t at)
{
	int fd;
	uint8_t byte;

	ck_assert_int_eq(chmod(path, 0600), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
	ck_assert_int_eq(fchmod(fd, 0400), 0);
	close(fd);
}

/*
 * Equal and other bytes
 */

TEST(earlier, equal_pieces_are_shared)
{
	store("first", NULL);
	expect(PIECES, 0);
	ck_assert_uint_eq(archive_bytes(&archive, ARCHIVE_STORED), 4 * WHOLE + 5);
	store_since("second", "first");
	expect(0, PIECES);
	ck_assert_uint_eq(archive_bytes(&archive, ARCHIVE_STORED), 0);
	ck_assert_uint_eq(archive_bytes(&archive, ARCHIVE_SHARED), 4 * WHOLE + 5);
	ck_assert_uint_eq(status_of(A_PIECE).st_nlink, 2);
	ck_assert_uint_eq(status_of("second/memory/0.400000").st_ino, status_of(A_PIECE).st_ino);
	ck_assert_uint_eq(status_of(A_PIECE).st_mode & 07777, 0400);
	expect_whole("first");
	expect_whole("second");
}

/* The first one, one in the middle, and the last one of a piece. */
TEST_LOOP(earlier, a_piece_with_another_byte_is_stored, 0, 3)
{
	const size_t places[] = {0, WHOLE / 2 + 1, WHOLE - 1};

	store("first", NULL);
	memory[0][2 * WHOLE + places[_i]] ^= 1;
	store_since("second", "first");
	expect(1, PIECES - 1);
	ck_assert_uint_eq(archive_bytes(&archive, ARCHIVE_STORED), WHOLE);
	ck_assert_uint_eq(status_of(A_PIECE).st_nlink, 1);
	expect_whole("second");
	memory[0][2 * WHOLE + places[_i]] ^= 1;
	expect_whole("first");
}

/* Of another size: a byte more, and a byte less. */
TEST_LOOP(earlier, a_longer_or_shorter_piece_is_stored, 0, 2)
{
	store("first", NULL);
	sizes[0] = LARGE + (_i ? 1 : -1);
	ck_assert_int_eq(ftruncate(fds[0], (off_t)sizes[0]), 0);
	store_since("second", "first");
	expect(1, PIECES - 1);
	expect_whole("second");
}

/* As memory moves up where memory before it was freed, and from one file to the other. */
TEST(earlier, what_has_moved_is_shared)
{
	store("first", NULL);
	memmove(memory[0] + WHOLE, memory[0] + 2 * WHOLE, WHOLE);
	memcpy(memory[0] + 3 * WHOLE, memory[1] + WHOLE, WHOLE);
	memcpy(memory[1] + WHOLE, memory[0], WHOLE);
	store_since("second", "first");
	expect(0, 6);
	expect_whole("second");
}

TEST(earlier, zeroes_are_neither_stored_nor_shared)
{
	store("first", NULL);
	ck_assert_uint_eq(count(ARCHIVE_ZEROES), 1);
	ck_assert_int_lt(access("first/memory/0.200000", F_OK), 0);
	memset(memory[0], 0, WHOLE);
	store_since("second", "first");
	ck_assert_uint_eq(count(ARCHIVE_ZEROES), 2);
	expect(0, PIECES - 1);
	expect_whole("second");
}

/* A single byte that is none, wherever, and the same byte everywhere. */
TEST_LOOP(earlier, what_is_not_all_zero_is_stored, 0, 4)
{
	const size_t places[] = {0, 1, WHOLE - 1, 0};

	memset(memory[0], _i < 3 ? 0 : 1, WHOLE);
	memory[0][places[_i]] = 1;
	store("first", NULL);
	ck_assert_uint_eq(count(ARCHIVE_ZEROES), 1);
	expect_whole("first");
}

/*
 * Folders go
 */

TEST(earlier, any_folder_may_be_removed)
{
	store("first", NULL);
	store_since("second", "first");
	store_since("third", "second");
	expect(0, PIECES);
	ck_assert_uint_eq(status_of(A_PIECE).st_nlink, 3);
	folder_shell("rm -rf first");
	expect_whole("second");
	folder_shell("rm -rf third");
	expect_whole("second");
	store_since("fourth", "second");
	expect(0, PIECES);
	folder_shell("rm -rf second");
	expect_whole("fourth");
}

TEST(earlier, a_folder_that_goes_meanwhile_is_none)
{
	struct earlier *earlier;

	store("first", NULL);
	earlier = open_earlier("first");
	folder_shell("rm -rf first");
	store("second", earlier);
	earlier_close(earlier);
	expect(PIECES, 0);
	expect_whole("second");
}

/*
 * Links that are not made
 */

/* On another file system, or where a file has as many links as it can have. */
TEST_LOOP(earlier, what_cannot_be_linked_is_stored, 0, 2)
{
	store("first", NULL);
	links = LINKS_FAIL;
	links_left = 3 * _i;
	store_since("second", "first");
	expect(PIECES - 3 * (unsigned)_i, 3 * (unsigned)_i);
	expect_whole("first");
	expect_whole("second");
}

/* A name that means another file by the time of the link. */
TEST(earlier, what_was_compared_is_linked)
{
	store("first", NULL);
	folder_shell("cp first/memory/0.0 other");
	/* The one piece that may be linked. */
	memory[0][0] ^= 1;
	memory[0][3 * WHOLE] ^= 1;
	memory[0][4 * WHOLE] ^= 1;
	memory[1][WHOLE] ^= 1;
	links = LINKS_COME_LATE;
	store_since("second", "first");
	ck_assert_int_eq(links, LINKS_ARE_MADE);
	expect_whole("second");
}

/* Return: whether the child was killed */
static bool store_until_killed(int at)
{
	pid_t child = fork();
	int status;

	if (!child) {
		links = LINKS_KILL;
		links_left = at;
		store_since("second", "first");
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status))
		ck_assert_int_eq(WTERMSIG(status), SIGKILL);
	else
		ck_assert_int_eq(status, 0);
	return WIFSIGNALED(status);
}

/* A tool that is killed leaves the earlier folder as it is, and none that passes for complete. */
TEST(earlier, kills_leave_the_earlier_folder)
{
	int at = 0;

	store("first", NULL);
	while (store_until_killed(at)) {
		ck_assert_ptr_null(earlier_open("second", text));
		expect_whole("first");
		folder_shell("rm -rf second");
		at++;
	}
	ck_assert_int_eq(at, PIECES);
	expect_whole("first");
	expect_whole("second");
}

/*
 * Earlier folders that are damaged
 */

static void flip(void)
{
	change_byte(A_PIECE, 3 * PAGE + 1);
}

static void cut(void)
{
	ck_assert_int_eq(truncate(A_PIECE, PAGE), 0);
}

static void lengthen(void)
{
	ck_assert_int_eq(truncate(A_PIECE, WHOLE + 1), 0);
}

static void lose(void)
{
	ck_assert_int_eq(unlink(A_PIECE), 0);
}

static void make_writable(void)
{
	ck_assert_int_eq(chmod(A_PIECE, 0600), 0);
}

static void give_away(void)
{
	if (geteuid() || chown(A_PIECE, 4711, 4711))
		lose();
}

static void make_symbolic(void)
{
	folder_shell("mv " A_PIECE " other && ln -s $PWD/other " A_PIECE);
}

static void make_folder(void)
{
	folder_shell("rm -f " A_PIECE " && mkdir " A_PIECE);
}

static void make_pipe(void)
{
	folder_shell("rm -f " A_PIECE " && mkfifo " A_PIECE);
}

static void (*const damages[])(void) = {
	flip, cut, lengthen, lose, make_writable, give_away, make_symbolic, make_folder, make_pipe};

TEST_LOOP(earlier, what_is_damaged_is_stored, 0, sizeof(damages) / sizeof(*damages))
{
	store("first", NULL);
	damages[_i]();
	store_since("second", "first");
	expect(1, PIECES - 1);
	expect_whole("second");
}

/* What each file says of itself is right, and the files have other places. */
TEST(earlier, exchanged_pieces_are_stored)
{
	store("first", NULL);
	folder_shell("mv first/memory/0.0 other && mv " A_PIECE " first/memory/0.0 && mv other " A_PIECE);
	store_since("second", "first");
	expect(2, PIECES - 2);
	expect_whole("second");
}

static void expect_none(const char *why)
{
	ck_assert_ptr_null(earlier_open("first", text));
	ck_assert_msg(strstr(text, why), "%s", text);
}

TEST(earlier, what_is_no_checkpoint_is_refused)
{
	expect_none("No such file");
	folder_shell("touch first");
	expect_none("Not a directory");
	folder_shell("rm first && mkdir first");
	expect_none("no manifest");
	folder_shell("rmdir first");
	store("first", NULL);
	change_byte("first/frmps.json", 20);
	expect_none("damaged");
	ck_assert_int_eq(unlink("first/frmps.json"), 0);
	expect_none("no manifest");
}

int main(void)
{
	Suite *suite = suite_create("earlier");
	TCase *tests = suite_case(suite, "earlier");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "earlier");
	return suite_run(suite);
}
