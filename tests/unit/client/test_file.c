// Writes of the library into files of the program and of the service: what limits and closed pipes
// make of them.

#include "client/state/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/lib/suite.h"

#define PAGE ((size_t)4096)

/* The limit of the process's files, which is also that of the framework's messages: assertions come
 * behind it. */
static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes;
	setrlimit(RLIMIT_FSIZE, &limit);
}

struct result {
	ssize_t bytes;
	int error;
};

static struct result fill(rlim_t limit, int fd, const void *from, size_t bytes, uint64_t offset)
{
	struct result result;

	limit_files(limit);
	errno = 0;
	result.bytes = file_fill(fd, from, bytes, offset);
	result.error = errno;
	limit_files(RLIM_INFINITY);
	return result;
}

static struct result write_once(rlim_t limit, int fd, const void *from, size_t bytes)
{
	struct result result;

	limit_files(limit);
	result.bytes = file_write(fd, from, bytes, 0);
	result.error = errno;
	limit_files(RLIM_INFINITY);
	return result;
}

static int file_of(off_t bytes)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	return fd;
}

static void check_fill(rlim_t limit, int fd, const uint8_t *bytes, size_t count, uint64_t offset)
{
	uint8_t *found = malloc(count + 1);

	ck_assert_int_eq(fill(limit, fd, bytes, count, offset).bytes, (ssize_t)count);
	ck_assert_int_eq(pread(fd, found, count, (off_t)offset), (ssize_t)count);
	ck_assert_mem_eq(found, bytes, count);
	free(found);
}

/* The limit counts bytes: one write may stop at it. */
TEST_LOOP(file, a_file_of_the_service_is_filled_beyond_the_programs_limit, 0, 4)
{
	static const rlim_t limits[] = {0, 1, 5000, RLIM_INFINITY};
	int fd = file_of(1 << 20);
	uint8_t bytes[5 * 4096];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7);
	check_fill(limits[_i], fd, bytes, sizeof(bytes), 0);
	check_fill(limits[_i], fd, bytes, 1, 0);
	check_fill(limits[_i], fd, bytes, 3, 4095);
	check_fill(limits[_i], fd, bytes, sizeof(bytes), 4999);
	check_fill(limits[_i], fd, bytes, 0, 0);
	close(fd);
}

TEST_LOOP(file, what_is_written_ends_where_memory_ends, 0, 2)
{
	uint8_t *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rlim_t limit = _i ? 0 : RLIM_INFINITY;
	int fd = file_of(1 << 20);
	struct result result;

	memset(pages, 5, 2 * PAGE);
	ck_assert_int_eq(mprotect(pages + 2 * PAGE, PAGE, PROT_NONE), 0);
	result = fill(limit, fd, pages, 3 * PAGE, 0);
	ck_assert_int_eq(result.bytes, (ssize_t)(2 * PAGE));
	ck_assert_int_eq(result.error, EFAULT);
	result = fill(limit, fd, pages + 2 * PAGE, 1, 0);
	ck_assert_int_eq(result.bytes, -1);
	ck_assert_int_eq(result.error, EFAULT);
	close(fd);
}

TEST(file, a_short_file_is_not_filled_beyond_the_limit)
{
	int fd = file_of(0);

	ck_assert_int_eq(fill(0, fd, "text", 4, 0).bytes, -1);
	close(fd);
}

/* The signal would be the end of this process. */
TEST(file, a_file_of_the_program_has_its_limit)
{
	int fd = file_of(0);
	struct result result = write_once(4, fd, "five!", 5);

	ck_assert_int_eq(result.bytes, 4);
	result = write_once(0, fd, "x", 1);
	ck_assert_int_eq(result.bytes, -1);
	ck_assert_int_eq(result.error, EFBIG);
	close(fd);
}

static bool is_waiting(int signal)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, signal);
}

TEST(file, a_signal_that_waited_before_still_waits)
{
	int fd = file_of(0);
	sigset_t large;

	sigemptyset(&large);
	sigaddset(&large, SIGXFSZ);
	sigprocmask(SIG_BLOCK, &large, NULL);
	ck_assert_int_eq(write_once(0, fd, "x", 1).error, EFBIG);
	ck_assert(!is_waiting(SIGXFSZ));
	raise(SIGXFSZ);
	ck_assert_int_eq(write_once(0, fd, "x", 1).error, EFBIG);
	ck_assert(is_waiting(SIGXFSZ));
	close(fd);
}

int main(void)
{
	Suite *suite = suite_create("file");
	TCase *tcase = suite_case(suite, "file");

	suite_add(tcase, "file");
	return suite_run(suite);
}
