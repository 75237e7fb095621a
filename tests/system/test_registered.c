// Registered memory that is shared memory: files of tmpfs, memfds, memory without a name. The
// device has a pointer to the very pages that other processes have, whatever happens to executors,
// to the daemon, to the file or to a process that has it.

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fds.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define MIB    (UINT64_C(1) << 20)
#define ROUNDS 9
#define PAGE   4096u
#define BYTES  (4 * MIB)
#define WORDS  (BYTES / 4)

/* How the program has the file behind its memory. */
enum way {
	LINKED,	  /* it has a name, and no descriptor */
	OPEN,	  /* a descriptor, and no name */
	MEMFD,	  /* the same */
	NAMELESS, /* neither: MAP_ANONYMOUS */
	SYSTEM_V, /* neither: shmget() */
	WAYS
};

static struct service service;
static char name[64];

static void start_service(void)
{
	if (!is_native())
		ck_assert(service_start(&service, NULL));
}

static void stop_service(void)
{
	if (!is_native())
		ck_assert_int_eq(service_stop(&service), 0);
}

static int shm(void)
{
	int fd;

	snprintf(name, sizeof(name), "/frmps-test-%d", (int)getpid());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static uint32_t *map_system_v(size_t bytes)
{
	int id = shmget(IPC_PRIVATE, bytes, 0600);
	void *words = shmat(id, NULL, 0);

	ck_assert_ptr_ne(words, (void *)-1);
	shmctl(id, IPC_RMID, NULL);
	return words;
}

/* @offset: of the memory in the file. Return: memory that a child shares */
static uint32_t *map_shared(enum way way, size_t bytes, off_t offset)
{
	int fd = way == MEMFD ? memfd_create("words", MFD_CLOEXEC) : way >= NAMELESS ? -1 : shm();
	uint32_t *words;

	if (way == SYSTEM_V)
		return map_system_v(bytes);
	ck_assert_int_eq(fd < 0 ? 0 : ftruncate(fd, offset + (off_t)bytes), 0);
	words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd,
		fd < 0 ? 0 : offset);
	ck_assert_ptr_ne(words, MAP_FAILED);
	if (way == LINKED)
		close(fd);
	if (way == OPEN)
		ck_assert_int_eq(shm_unlink(name), 0);
	return words;
}

static void unmap_shared(enum way way, void *words, size_t bytes)
{
	if (way == SYSTEM_V)
		shmdt(words);
	else
		munmap(words, bytes);
	if (way == LINKED)
		ck_assert_int_eq(shm_unlink(name), 0);
}

/* A program without rights on what its memory map names. */
static bool can_open_nameless(void)
{
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)(uintptr_t)page,
		(unsigned long)(uintptr_t)page + PAGE);
	fd = open(path, O_RDWR | O_CLOEXEC);
	munmap(page, PAGE);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void count_up(CUdeviceptr word, uint32_t by)
{
	ck_cuda(launch("count_up", 1, 1, NULL, (void *[]){&word, &by}));
	ck_cuda(cuCtxSynchronize());
}

static CUdeviceptr pointer_to(void *word)
{
	CUdeviceptr seen;

	ck_cuda(cuMemHostGetDevicePointer_v2(&seen, word, 0));
	return seen;
}

/* In another process that has the memory. */
static void add_in_child(uint32_t *word, uint32_t by)
{
	pid_t child = fork();

	if (child == 0) {
		*word += by;
		_exit(0);
	}
	ck_assert_int_eq(exit_status(child), 0);
}

/* Kernels, copies and other processes work on the same words. */
static void work_on(uint32_t *words, uint32_t count, CUdeviceptr seen)
{
	uint32_t at = count - 3, before = words[at], back;
	CUdeviceptr device;

	count_up(seen + at * 4, 3);
	ck_assert_uint_eq(words[at], before + 3);
	add_in_child(words + at, 5);
	count_up(seen + at * 4, 2);
	ck_assert_uint_eq(words[at], before + 10);
	ck_cuda(cuMemAlloc_v2(&device, count * 4));
	ck_cuda(cuMemcpyHtoDAsync_v2(device, words, count * 4, NULL));
	ck_cuda(cuMemcpyDtoH_v2(&back, device + at * 4, 4));
	ck_assert_uint_eq(back, before + 10);
	ck_cuda(cuMemsetD32_v2(device, 77, 2));
	ck_cuda(cuMemcpyDtoHAsync_v2(words, device, count * 4, NULL));
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(words[1], 77);
	ck_assert_uint_eq(words[at], before + 10);
	ck_cuda(cuMemFree_v2(device));
}

TEST_LOOP(registered, shared_memory_of_every_kind_has_a_device_pointer, 0, 2 * WAYS)
{
	enum way way = (enum way)(_i / 2);
	const unsigned int flags = _i % 2 ? CU_MEMHOSTREGISTER_DEVICEMAP : 0;
	unsigned fds;
	uint32_t *words;

	if (way >= NAMELESS && !is_native() && !can_open_nameless())
		return;
	driver_open();
	words = map_shared(way, BYTES, 0);
	fds = fds_count();
	for (int round = 0; round < 3; round++) {
		ck_cuda(cuMemHostRegister_v2(words, BYTES, flags));
		work_on(words, WORDS, pointer_to(words));
		ck_cuda(cuMemHostUnregister(words));
		words[0] = 9;
		add_in_child(words, 1);
		ck_assert_uint_eq(words[0], 10);
	}
	if (!is_native())
		ck_assert_uint_eq(fds_count(), fds);
	unmap_shared(way, words, BYTES);
}

/* Of the memory, and of its pages; two registrations meet in a page. */
TEST(registered, parts_of_shared_memory_have_device_pointers)
{
	uint32_t *words, *other;

	driver_open();
	words = map_shared(LINKED, BYTES, 3 * PAGE);
	other = words + 5000;
	ck_cuda(cuMemHostRegister_v2(words + 1000, 3000 * 4, 0));
	work_on(words + 1000, 3000, pointer_to(words + 1000));
	/* The driver has an own rule for registrations that meet in a page. */
	if (is_native())
		ck_cuda(cuMemHostUnregister(words + 1000));
	ck_cuda(cuMemHostRegister_v2(words + 4000, 3000 * 4, 0));
	work_on(words + 4000, 3000, pointer_to(words + 4000));
	*other = 1;
	count_up(pointer_to(other), 4);
	ck_assert_uint_eq(*other, 5);
	if (!is_native())
		ck_cuda(cuMemHostUnregister(words + 1000));
	work_on(words + 4000, 3000, pointer_to(words + 4000));
	ck_cuda(cuMemHostUnregister(words + 4000));
	unmap_shared(LINKED, words, BYTES);
}

/* Pages of one file in another order than the file's: the device would see others. */
TEST(registered, torn_mappings_of_a_file_have_none)
{
	int fd = memfd_create("words", MFD_CLOEXEC);
	uint32_t *words;
	CUdeviceptr seen;

	if (is_native())
		return;
	driver_open();
	ck_assert_int_eq(ftruncate(fd, 4 * PAGE), 0);
	words = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(words, MAP_FAILED);
	ck_assert_ptr_ne(mmap(words + PAGE / 4, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
		MAP_FAILED);
	ck_cuda(cuMemHostRegister_v2(words, 2 * PAGE, 0));
	ck_assert_int_eq(cuMemHostGetDevicePointer_v2(&seen, words, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_cuda(cuMemHostUnregister(words));
}

/* Pages that a registration has made shared become private again at its end. */
TEST(registered, pages_of_another_registration_have_none)
{
	uint32_t *words = aligned_alloc(PAGE, PAGE);
	CUdeviceptr seen;

	if (is_native())
		return;
	driver_open();
	ck_cuda(cuMemHostRegister_v2(words, 1024, CU_MEMHOSTREGISTER_DEVICEMAP));
	if (cuMemHostGetDevicePointer_v2(&seen, words, 0) == CUDA_SUCCESS) {
		ck_cuda(cuMemHostRegister_v2(words + 512, 1024, CU_MEMHOSTREGISTER_DEVICEMAP));
		ck_assert_int_eq(
			cuMemHostGetDevicePointer_v2(&seen, words + 512, 0), CUDA_ERROR_NOT_SUPPORTED);
		ck_cuda(cuMemHostUnregister(words + 512));
	}
	ck_cuda(cuMemHostUnregister(words));
	free(words);
}

static int sockets[2];

/* The other of two processes that register the same memory, each for itself. */
static int register_as_well(int unused)
{
	uint32_t *words;
	char byte;
	int fd = -1;

	(void)unused;
	pass_fd(sockets[1], &fd, false);
	words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	driver_open();
	ck_cuda(cuMemHostRegister_v2(words, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
	for (uint32_t round = 0; read(sockets[1], &byte, 1) == 1 && byte; round++) {
		if (words[7] != 2 * round + 1)
			return 2;
		count_up(pointer_to(words + 7), 1);
		if (write(sockets[1], &byte, 1) != 1)
			return 3;
	}
	return 0;
}

TEST(registered, two_processes_register_the_same_memory)
{
	int fd = memfd_create("words", MFD_CLOEXEC);
	uint32_t *words;
	char byte = 1;
	pid_t child;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
	child = spawn(register_as_well, 0);
	ck_assert_int_eq(ftruncate(fd, BYTES), 0);
	pass_fd(sockets[0], &fd, true);
	words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	driver_open();
	ck_cuda(cuMemHostRegister_v2(words, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
	for (uint32_t round = 0; round < 20; round++) {
		count_up(pointer_to(words + 7), 1);
		ck_assert_int_eq(write(sockets[0], &byte, 1), 1);
		ck_assert_int_eq(read(sockets[0], &byte, 1), 1);
		ck_assert_uint_eq(words[7], 2 * round + 2);
	}
	byte = 0;
	ck_assert_int_eq(write(sockets[0], &byte, 1), 1);
	ck_assert_int_eq(exit_status(child), 0);
	count_up(pointer_to(words + 7), 1);
	ck_assert_uint_eq(words[7], 41);
	ck_cuda(cuMemHostUnregister(words));
}

/* Whoever has a lock of the file keeps it. */
TEST(registered, locks_of_the_file_stay)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	uint32_t *words;
	pid_t child;
	int fd;

	driver_open();
	fd = shm();
	ck_assert_int_eq(ftruncate(fd, BYTES), 0);
	words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
	ck_cuda(cuMemHostRegister_v2(words, BYTES, 0));
	work_on(words, WORDS, pointer_to(words));
	ck_cuda(cuMemHostUnregister(words));
	child = fork();
	if (child == 0)
		_exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 0 : 1);
	ck_assert_int_eq(exit_status(child), 0);
	close(fd);
	unmap_shared(LINKED, words, BYTES);
}

/*
 * The service
 */

static uint32_t *words_of_all;

static void make_words(void)
{
	words_of_all = map_shared(MEMFD, BYTES, 5 * PAGE);
}

/* Counts in shared memory: a round for each order. */
static int counter(int progress, int orders)
{
	CUdeviceptr seen;

	driver_open();
	ck_cuda(cuMemHostRegister_v2(words_of_all, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
	seen = pointer_to(words_of_all);
	while (words_of_all[1] == 0) {
		count_up(seen, 1);
		report(progress);
		ordered(orders, true);
	}
	return 0;
}

static void end_counter(struct child *child)
{
	words_of_all[1] = 1;
	child_order(child);
	ck_assert_int_eq(child_end(child), 0);
}

static void live_once(bool is_killed)
{
	struct child child = child_start(counter);

	child_wait(&child, 1);
	if (is_killed) {
		kill(child.pid, SIGKILL);
		ck_assert_int_eq(child_end(&child), 1000 + SIGKILL);
		return;
	}
	end_counter(&child);
	words_of_all[1] = 0;
}

/* Nothing of it stays with the service, whichever way the program ends. */
TEST_LOOP(registered_served, a_program_leaves_nothing, 0, 2)
{
	int fds, threads, now_fds, now_threads;

	make_words();
	/* What an executor makes at its first program stays. */
	live_once(_i);
	status_footprint(&service, &fds, &threads);
	for (int i = 0; i < ROUNDS; i++)
		live_once(_i);
	ck_assert_uint_eq(words_of_all[0], ROUNDS + 1);
	status_footprint(&service, &now_fds, &now_threads);
	/* A compiler that is started ahead may have some. */
	ck_assert_int_lt(now_fds, fds + ROUNDS);
	ck_assert_int_lt(now_threads, threads + ROUNDS);
}

TEST(registered_served, the_pages_survive_executors_and_daemons)
{
	struct child child;
	pid_t daemon;

	make_words();
	child = child_start(counter);
	child_wait(&child, 1);
	for (int i = 1; i <= 3; i++) {
		status_replace_active(&service, i);
		see_it_work(&child);
		daemon = status_daemon(&service);
		ck_assert_int_eq(kill(daemon, SIGKILL), 0);
		ck_assert(service_log_wait(&service, "the daemon is back", i, 60));
		see_it_work(&child);
		ck_assert_uint_eq(words_of_all[0], 1 + 2 * (uint32_t)i);
		ck_assert_int_gt(status_number(&service, child.pid, "host_bytes"), (long long)BYTES - 1);
	}
	end_counter(&child);
}

/* The daemon dies while programs register. */
static int registrar(int progress, int orders)
{
	uint32_t *words = map_shared(MEMFD, MIB, 0);
	uint32_t round = 0;

	driver_open();
	while (!ordered(orders, false)) {
		ck_cuda(cuMemHostRegister_v2(words, MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
		count_up(pointer_to(words + 5), 1);
		ck_cuda(cuMemHostUnregister(words));
		if (words[5] != ++round)
			return 2;
		report(progress);
	}
	return 0;
}

TEST(registered_served, the_daemon_dies_while_programs_register)
{
	struct child children[2];

	for (int i = 0; i < 2; i++)
		children[i] = child_start(registrar);
	for (int i = 1; i <= 10; i++) {
		child_wait(&children[i % 2], 2);
		ck_assert_int_eq(kill(status_daemon(&service), SIGKILL), 0);
		ck_assert(service_log_wait(&service, "the daemon is back", i, 60));
	}
	for (int i = 0; i < 2; i++) {
		child_order(&children[i]);
		ck_assert_int_eq(child_end(&children[i]), 0);
	}
}

/*
 * Limits
 */

static int registers_beyond(int unused)
{
	uint32_t *first = map_shared(MEMFD, 10 * MIB, 0), *second = map_shared(MEMFD, 10 * MIB, 0);
	CUdeviceptr seen;

	(void)unused;
	driver_open();
	ck_cuda(cuMemHostRegister_v2(first, 10 * MIB, 0));
	work_on(first, WORDS, pointer_to(first));
	ck_cuda(cuMemHostRegister_v2(second, 10 * MIB, 0));
	if (cuMemHostGetDevicePointer_v2(&seen, second, 0) != CUDA_ERROR_OUT_OF_MEMORY)
		return 2;
	ck_cuda(cuMemHostUnregister(first));
	work_on(second, WORDS, pointer_to(second));
	return 0;
}

TEST(registered_alone, shared_memory_counts_as_pinned)
{
	ck_assert(service_start_configured(&service, "pinned_limit = 16M\n"));
	ck_assert_int_eq(exit_status(spawn(registers_beyond, 0)), 0);
	ck_assert_int_eq(service_stop(&service), 0);
}

/*
 * Files that become shorter
 */

static int fd_of_all;

/* Waits until the file is shorter, then lets everything touch what is not there any more. */
static int victim(int progress, int orders)
{
	uint32_t value = 5;
	uint64_t count = WORDS;
	CUdeviceptr seen, device;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&device, BYTES));
	ck_cuda(cuMemHostRegister_v2(words_of_all, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
	seen = pointer_to(words_of_all);
	report(progress);
	ordered(orders, true);
	/* Whatever these return: it is this program's own trouble. */
	cuMemcpyHtoDAsync_v2(device, words_of_all, BYTES, NULL);
	cuMemcpyDtoHAsync_v2(words_of_all, device, BYTES, NULL);
	cuMemsetD32Async(seen, 3, WORDS, NULL);
	launch("fill", 4, 32, NULL, (void *[]){&seen, &value, &count});
	cuCtxSynchronize();
	report(progress);
	ordered(orders, true);
	return 0;
}

static void shorten(void)
{
	ck_assert_int_eq(ftruncate(fd_of_all, 0), 0);
}

static void make_file_of_all(void)
{
	fd_of_all = memfd_create("words", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(fd_of_all, BYTES), 0);
	words_of_all = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd_of_all, 0);
}

/* Others go on in the same executor. */
TEST(registered_served, a_file_that_becomes_shorter_hurts_nobody)
{
	struct child other = child_start(survivor), child;
	pid_t active;

	child_wait(&other, 1);
	make_file_of_all();
	child = child_start(victim);
	child_wait(&child, 1);
	active = status_active(&service);
	shorten();
	see_it_work(&child);
	ck_assert_int_eq(status_active(&service), active);
	child_order(&child);
	child_end(&child);
	child_drain(&other);
	child_wait(&other, 2);
	ck_assert_int_eq(status_active(&service), active);
	child_order(&other);
	ck_assert_int_eq(child_end(&other), 0);
}

/* The next executor cannot have the memory: that is an error of its program alone. */
TEST(registered_served, a_shorter_file_is_not_there_for_the_next_executor)
{
	struct child other = child_start(survivor), child;

	child_wait(&other, 1);
	make_file_of_all();
	child = child_start(victim);
	child_wait(&child, 1);
	shorten();
	for (int i = 1; i <= 2; i++) {
		status_replace_active(&service, i);
		child_drain(&other);
		child_wait(&other, 2);
	}
	child_order(&child);
	child_end(&child);
	child_order(&other);
	ck_assert_int_eq(child_end(&other), 0);
}

/* A file that is too short already, or becomes so meanwhile. */
static int shortener(int progress, int orders)
{
	CUdeviceptr seen;
	pid_t child;

	driver_open();
	make_file_of_all();
	child = fork();
	if (child == 0)
		for (off_t at = 0; getppid() != 1; at = (at + 1) % 2)
			if (ftruncate(fd_of_all, at * (off_t)BYTES) < 0)
				_exit(1);
	report(progress);
	while (!ordered(orders, false)) {
		CUresult r = cuMemHostRegister_v2(words_of_all, BYTES, 0);

		if (r == CUDA_SUCCESS) {
			cuMemHostGetDevicePointer_v2(&seen, words_of_all, 0);
			r = cuMemHostUnregister(words_of_all);
		}
		if (r != CUDA_SUCCESS)
			ck_abort_msg("%d", (int)r);
		report(progress);
	}
	kill(child, SIGKILL);
	return 0;
}

TEST(registered_served, a_file_changes_its_size_while_it_is_pinned)
{
	struct child other = child_start(survivor), child;
	pid_t active;

	child_wait(&other, 1);
	active = status_active(&service);
	child = child_start(shortener);
	child_wait(&child, 200);
	child_drain(&other);
	child_wait(&other, 2);
	ck_assert_int_eq(status_active(&service), active);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	child_order(&other);
	ck_assert_int_eq(child_end(&other), 0);
}

int main(void)
{
	Suite *suite = suite_create("registered");
	TCase *common = tcase_create("registered"), *served = tcase_create("registered_served");
	TCase *alone = tcase_create("registered_alone");

	tcase_set_timeout(common, 120);
	tcase_add_unchecked_fixture(common, common_service_start, common_service_stop);
	suite_add(common, "registered");
	suite_add_tcase(suite, common);
	if (!is_native()) {
		tcase_set_timeout(served, 240);
		tcase_add_checked_fixture(served, start_service, stop_service);
		suite_add(served, "registered_served");
		suite_add_tcase(suite, served);
		suite_add(alone, "registered_alone");
		suite_add_tcase(suite, alone);
	}
	return suite_run(suite);
}
