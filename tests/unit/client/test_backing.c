// The file behind shared pages: found in each way that a process can have it, and not taken for
// another one.

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/state/backing.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#define PAGE   4096u
#define PAGES  8u
#define NOBODY 65534

static char name[64];

static int shm(int mode)
{
	int fd;

	snprintf(name, sizeof(name), "/frmps-test-backing-%d", (int)getpid());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, (mode_t)mode);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, PAGES * PAGE), 0);
	return fd;
}

static int memfd(void)
{
	int fd = memfd_create("backing", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(fd, PAGES * PAGE), 0);
	return fd;
}

static char *map(int fd, uint64_t pages, uint64_t from, int flags)
{
	char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, (off_t)(from * PAGE));

	ck_assert_ptr_ne(at, MAP_FAILED);
	return at;
}

static CUresult find(const char *at, uint64_t pages, struct backing *ret_backing)
{
	return backing_find((uint64_t)(uintptr_t)at, pages * PAGE, ret_backing);
}

/* What is written there is seen in the file, at the offset. */
static void expect_file(char *at, uint64_t pages, uint64_t offset)
{
	unsigned fds = fds_count();
	struct backing backing;
	struct stat status;
	char byte;

	ck_assert_int_eq(find(at, pages, &backing), CUDA_SUCCESS);
	ck_assert_uint_eq(backing.offset, offset);
	ck_assert_int_eq(fstat(backing.fd, &status), 0);
	ck_assert_uint_eq(backing.device, status.st_dev);
	ck_assert_uint_eq(backing.inode, status.st_ino);
	ck_assert_int_eq(fcntl(backing.fd, F_GETFL) & O_ACCMODE, O_RDWR);
	at[pages * PAGE - 1] = 'w';
	ck_assert_int_eq(pread(backing.fd, &byte, 1, (off_t)(offset + pages * PAGE - 1)), 1);
	ck_assert_int_eq(byte, 'w');
	backing_end(&backing);
	ck_assert_uint_eq(fds_count(), fds);
}

static void expect_none(const char *at, uint64_t pages)
{
	unsigned fds = fds_count();
	struct backing backing;

	ck_assert_int_eq(find(at, pages, &backing), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(fds_count(), fds);
}

/* In a process without rights of its own: its memory map names files that it may not open. */
static void in_a_program(void (*expect)(char *at), char *at)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) < 0)
			_exit(1);
		expect(at);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

static void expect_here(char *at)
{
	expect_file(at, 2, 3 * PAGE);
}

static void expect_nothing(char *at)
{
	expect_none(at, 2);
}

TEST(backing, it_is_among_the_programs_descriptors)
{
	int fd = memfd();

	in_a_program(expect_here, map(fd, 2, 3, MAP_SHARED));
	close(fd);
}

TEST(backing, it_has_a_name)
{
	int fd = shm(0666);
	char *at = map(fd, 2, 3, MAP_SHARED);

	fchmod(fd, 0666);
	close(fd);
	in_a_program(expect_here, at);
	shm_unlink(name);
	/* Another file has the name now. */
	close(shm(0666));
	in_a_program(expect_nothing, at);
	shm_unlink(name);
}

/* A descriptor for reading alone is no help, nor a name for others. */
TEST(backing, it_must_be_open_for_writing)
{
	char path[80];
	int fd = shm(0600), reader;
	char *at = map(fd, 2, 3, MAP_SHARED);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(reader, 0);
	close(fd);
	if (geteuid() == 0)
		in_a_program(expect_nothing, at);
	close(reader);
	shm_unlink(name);
}

/* Neither: only the kernel knows the file. */
TEST(backing, it_is_what_the_memory_map_names)
{
	struct backing backing;
	char *at = map(-1, 2, 0, MAP_SHARED | MAP_ANONYMOUS);
	CUresult r = find(at, 2, &backing);

	ck_assert(r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_SUPPORTED);
	if (r == CUDA_SUCCESS) {
		backing_end(&backing);
		expect_file(at, 2, 0);
		expect_file(at + PAGE, 1, PAGE);
	}
	if (geteuid() == 0)
		in_a_program(expect_nothing, at);
}

/* Other files may have the number of the segment. */
TEST(backing, a_segment_is_what_the_memory_map_names_alone)
{
	int id = shmget(IPC_PRIVATE, 2 * PAGE, 0600);
	char *at = shmat(id, NULL, 0);
	struct backing backing;

	shmctl(id, IPC_RMID, NULL);
	if (find(at, 2, &backing) == CUDA_SUCCESS) {
		ck_assert(backing.is_opened);
		backing_end(&backing);
		expect_file(at, 2, 0);
	}
	if (geteuid() == 0)
		in_a_program(expect_nothing, at);
	shmdt(at);
}

TEST(backing, parts_of_a_mapping_and_several_in_a_row_are_fine)
{
	int fd = memfd();
	char *at = map(fd, PAGES, 0, MAP_SHARED);

	expect_file(at + 2 * PAGE, 3, 2 * PAGE);
	/* Three mappings of it. */
	ck_assert_int_eq(mprotect(at + PAGE, PAGE, PROT_READ), 0);
	expect_file(at, PAGES, 0);
	close(fd);
}

TEST(backing, pages_that_are_not_in_a_row_have_none)
{
	int fd = memfd(), other = memfd();
	char *at = map(fd, PAGES, 0, MAP_SHARED);

	mmap(at + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 5 * PAGE);
	expect_none(at, 3);
	expect_file(at + 2 * PAGE, 2, 2 * PAGE);
	mmap(at + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, other, 3 * PAGE);
	expect_none(at + 2 * PAGE, 2);
	mmap(at + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 5 * PAGE);
	expect_none(at + 4 * PAGE, 2);
	munmap(at + 7 * PAGE, PAGE);
	expect_none(at + 6 * PAGE, 2);
	close(fd);
	close(other);
}

TEST(backing, other_memory_has_none)
{
	FILE *file = fopen("/proc/self/exe", "r");

	expect_none(map(-1, 2, 0, MAP_PRIVATE | MAP_ANONYMOUS), 2);
	expect_none(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fileno(file), 0), 1);
	fclose(file);
}

TEST(backing, the_same_place_of_the_same_file_is_the_same)
{
	int fd = memfd(), other = memfd();
	const uint64_t at = (uint64_t)(uintptr_t)map(fd, 2, 0, MAP_SHARED);

	ck_assert(backing_is_same(at, (uint64_t)(uintptr_t)map(fd, 2, 0, MAP_SHARED)));
	ck_assert(!backing_is_same(at, (uint64_t)(uintptr_t)map(fd, 2, 1, MAP_SHARED)));
	ck_assert(!backing_is_same(at, (uint64_t)(uintptr_t)map(other, 2, 0, MAP_SHARED)));
	ck_assert(!backing_is_same((uint64_t)(uintptr_t)map(-1, 2, 0, MAP_PRIVATE | MAP_ANONYMOUS),
		(uint64_t)(uintptr_t)map(-1, 2, 0, MAP_PRIVATE | MAP_ANONYMOUS)));
	close(fd);
	close(other);
}

int main(void)
{
	Suite *suite = suite_create("backing");

	suite_add(suite_case(suite, "backing"), "backing");
	return suite_run(suite);
}
