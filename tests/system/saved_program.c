// A program that tests save in files and restore. The program has nothing of the process that
// starts it: orders and progress are in named pipes of the folder. FRMPS_TEST_SAVED names the kind:
// keeper, busy, array, family or holder (of the file
// FRMPS_TEST_SAVED_FILE). The pieces are those of tests, so this is a test, with CK_FORK=no.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/suite.h"
#include "tests/system/belongings.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

/* Opened for both, so that the pipe never ends. */
static int open_pipe(const char *name)
{
	int fd = open(name, O_RDWR | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/*
 * Two processes with the same memory
 */

#define COUNTER_BYTES (UINT64_C(2) << 20)

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle)
{
	const CUmemAccessDesc access = {
		{.type = CU_MEM_LOCATION_TYPE_DEVICE}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr address;

	ck_cuda(cuMemAddressReserve(&address, COUNTER_BYTES, 0, 0, 0));
	ck_cuda(cuMemMap(address, COUNTER_BYTES, 0, handle, 0));
	ck_cuda(cuMemSetAccess(address, COUNTER_BYTES, &access, 1));
	return address;
}

/* Counts both words up, and looks at them. Return: whether both are what they have to be */
static bool count(CUdeviceptr words, uint32_t number, uint32_t expected)
{
	static uint32_t one = 1;
	CUdeviceptr word = words + 4 * number;
	uint32_t seen = 0;

	ck_cuda(launch("count_up", 1, 1, NULL, (void *[]){&word, &one}));
	ck_cuda(cuMemcpyDtoH_v2(&seen, word, 4));
	return seen == expected;
}

/* Counts when it is told to, over the socket. */
static int second(int socket)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr words;
	int fd;
	char byte;

	driver_open();
	pass_fd(socket, &fd, false);
	ck_cuda(cuMemImportFromShareableHandle(
		&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	words = mapped(handle);
	for (uint32_t i = 1; read(socket, &byte, 1) == 1; i++) {
		byte = count(words, 1, i);
		if (write(socket, &byte, 1) != 1)
			break;
	}
	return 0;
}

/* The one that has made the memory, and that takes orders. */
static int first(int progress, int orders, int socket)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr words;
	uint32_t seen[2];
	char byte = 0;
	int fd;

	driver_open();
	ck_cuda(cuMemCreate(&handle, COUNTER_BYTES, &prop, 0));
	words = mapped(handle);
	ck_cuda(cuMemsetD32_v2(words, 0, 2));
	ck_cuda(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	pass_fd(socket, &fd, true);
	close(fd);
	report(progress);
	for (uint32_t i = 1; ordered(orders, true); i++) {
		ck_assert(count(words, 0, i));
		ck_assert_int_eq(write(socket, &byte, 1), 1);
		ck_assert_int_eq(read(socket, &byte, 1), 1);
		ck_assert(byte);
		ck_cuda(cuMemcpyDtoH_v2(seen, words, 8));
		ck_assert(seen[0] == i && seen[1] == i);
		report(progress);
	}
	return 0;
}

static int family(int progress, int orders)
{
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	if (!fork()) {
		close(ends[0]);
		_exit(second(ends[1]));
	}
	close(ends[1]);
	return first(progress, orders, ends[0]);
}

/* The name of a file that has to stay open. */
static const char *file_name;

/* Looks at an open file before each order. */
static int holder(int progress, int orders)
{
	int file = open(file_name, O_RDWR | O_CLOEXEC);
	struct stat now, named;

	ck_assert_int_ge(file, 0);
	driver_open();
	report(progress);
	while (ordered(orders, true)) {
		ck_assert_int_eq(fstat(file, &now) | stat(file_name, &named), 0);
		ck_assert(now.st_ino == named.st_ino && now.st_rdev == named.st_rdev);
		ck_cuda(cuCtxSynchronize());
		report(progress);
	}
	return 0;
}

static const struct kind {
	const char *name;
	child_function *run;
} kinds[] = {
	{"keeper", belongings_keeper},
	{"busy", belongings_busy},
	{"array", array_keeper},
	{"family", family},
	{"holder", holder},
};

TEST(saved, program)
{
	const char *name = getenv("FRMPS_TEST_SAVED");
	int progress = open_pipe("progress"), orders = open_pipe("orders");

	belongings_rounds = 1000;
	ck_assert_ptr_nonnull(name);
	file_name = getenv("FRMPS_TEST_SAVED_FILE");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(kinds[i].name, name))
			ck_assert_int_eq(kinds[i].run(progress, orders), 0);
}

int main(void)
{
	Suite *suite = suite_create("saved_program");
	TCase *saved = tcase_create("saved");

	suite_add_tcase(suite, saved);
	suite_add(saved, "saved");
	return suite_run(suite);
}
