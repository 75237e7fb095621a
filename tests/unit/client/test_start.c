// The shim as a program sees it: start, devices, contexts.

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/state/session.h"
#include "client/link/mps.h"
#include "protocol/place.h"
#include "tests/lib/fds.h"
#include "tests/unit/client/shim.h"

TEST(start, nothing_works_before_cuinit)
{
	int count = -1, version;
	CUcontext c;

	OK(cuDriverGetVersion(&version));
	ck_assert_int_eq(version, CUDA_ABI_VERSION);
	FAILS(cuDeviceGetCount(&count), NOT_INITIALIZED);
	FAILS(cuCtxGetCurrent(&c), NOT_INITIALIZED);
	FAILS(cuMemFree_v2(0x1000), NOT_INITIALIZED);
	ck_assert_int_eq(count, -1);
	ck_assert_uint_eq(loopback->greetings, 0);
}

TEST(start, no_service_is_an_error)
{
	setenv("FRMPS_SOCKET", "/nonexistent/socket", 1);
	FAILS(cuInit(0), MPS_CONNECTION_FAILED);
	FAILS(cuInit(0), MPS_CONNECTION_FAILED);
	FAILS(cuCtxSynchronize(), NOT_INITIALIZED);
}

/* A program that means to vouch for its kernels learns that it does not. */
TEST(start, a_wish_that_nobody_understands_is_told)
{
	CUlogIterator before, after;

	OK(cuLogsCurrent(&before, 0));
	setenv("FRMPS_RECOVERY", "Replay", 1);
	word_set(&loopback->deaths, 2);
	OK(cuInit(0));
	OK(cuLogsCurrent(&after, 0));
	ck_assert_uint_eq(after, before + 1);
}

static const struct {
	const char *value;
	uint64_t bytes; /* UINT64_MAX: it cannot be understood */
} limits[] = {{"0=2G", UINT64_C(2) << 30}, {"0=512MB", UINT64_C(512) << 20}, {"1=1G,0=7k", 7 << 10},
	{"0=5", 5}, {"1=1G", 0}, {"", 0}, {"2G", UINT64_MAX}, {"0=", UINT64_MAX}, {"0=2T", UINT64_MAX},
	{"0=-1", UINT64_MAX}, {"0=0", UINT64_MAX}, {"0=1G;1=1G", UINT64_MAX}, {"GPU-=1G", UINT64_MAX},
	{"GPU-1", UINT64_MAX}, {"0a=1G", UINT64_MAX}, {"0=2 ", UINT64_MAX}, {"0=2 B", UINT64_MAX},
	{"0=99999999999999999999", UINT64_MAX}, {"0=17179869184G", UINT64_MAX}};

TEST_LOOP(start, stock_mps_limit_of_memory_is_understood, 0, sizeof(limits) / sizeof(limits[0]))
{
	const bool good = limits[_i].bytes != UINT64_MAX;
	const struct mps_device first = {0};
	bool needs_uuid;
	uint64_t bytes;

	ck_assert_int_eq(mps_parse_limit(limits[_i].value, &first, &bytes, &needs_uuid),
		good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	if (good)
		ck_assert_uint_eq(bytes, limits[_i].bytes);
	setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limits[_i].value, 1);
	ck_assert_int_eq(cuInit(0), good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(loopback->greetings, good);
	ck_assert_uint_eq(loopback->memory_limit, good ? limits[_i].bytes : 0);
}

static const struct {
	const char *value;
	uint32_t percent; /* UINT32_MAX: it cannot be understood */
} percentages[] = {{"50", 50}, {"100", 100}, {"1", 1}, {"12.5", 12}, {"", 0}, {"0", UINT32_MAX},
	{"0.9", UINT32_MAX}, {"101", UINT32_MAX}, {"-5", UINT32_MAX}, {"50%", UINT32_MAX},
	{"half", UINT32_MAX}, {" 5", UINT32_MAX}, {"99999999999999999999", UINT32_MAX}};

TEST_LOOP(start, stock_mps_percentage_is_understood, 0, sizeof(percentages) / sizeof(percentages[0]))
{
	const bool good = percentages[_i].percent != UINT32_MAX;

	setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentages[_i].value, 1);
	ck_assert_int_eq(cuInit(0), good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(loopback->greetings, good);
	ck_assert_uint_eq(loopback->sm_percent, good ? percentages[_i].percent : 0);
}

static const struct {
	const char *value;
	uint32_t priority; /* UINT32_MAX: it cannot be understood */
} priorities[] = {{"0", 0}, {"1", 1}, {"", 0}, {"2", UINT32_MAX}, {"-1", UINT32_MAX}, {"low", UINT32_MAX}};

TEST_LOOP(start, stock_mps_priority_is_understood, 0, sizeof(priorities) / sizeof(*priorities))
{
	const bool good = priorities[_i].priority != UINT32_MAX;

	setenv("CUDA_MPS_CLIENT_PRIORITY", priorities[_i].value, 1);
	ck_assert_int_eq(cuInit(0), good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(loopback->greetings, good);
	ck_assert_uint_eq(loopback->priority, good ? priorities[_i].priority : 0);
}

TEST(start, what_has_no_effect_is_told)
{
	CUlogIterator before, after;

	OK(cuLogsCurrent(&before, 0));
	setenv("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING", "1", 1);
	OK(cuInit(0));
	OK(cuLogsCurrent(&after, 0));
	ck_assert_uint_eq(after, before + 1);
}

TEST(start, the_service_is_told_of_a_partition)
{
	setenv("CUDA_MPS_SM_PARTITION", "p1", 1);
	OK(cuInit(0));
	ck_assert_uint_eq(loopback->has_partition, 1);
}

TEST(start, the_socket_may_lie_in_the_folder_of_stock_mps)
{
	const char *socket = getenv("FRMPS_SOCKET");
	char folder[] = "/tmp/frmps-mps-XXXXXX", path[64];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/frmps.sock", folder);
	ck_assert_int_eq(symlink(socket, path), 0);
	unsetenv("FRMPS_SOCKET");
	setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
	OK(cuInit(0));
	ck_assert_uint_eq(loopback->greetings, 1);
	unlink(path);
	rmdir(folder);
}

TEST(start, a_folder_that_others_can_write_has_no_socket)
{
	const char *socket = getenv("FRMPS_SOCKET");
	char folder[] = "/tmp/frmps-mps-XXXXXX", path[64];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/frmps.sock", folder);
	ck_assert_int_eq(symlink(socket, path), 0);
	unsetenv("FRMPS_SOCKET");
	setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
	ck_assert_int_eq(chmod(folder, 01777), 0);
	ck_assert_int_ne(cuInit(0), CUDA_SUCCESS);
	ck_assert_uint_eq(loopback->greetings, 0);
	unlink(path);
	rmdir(folder);
}

static const struct {
	const char *value;
	unsigned told;
} timeouts[] = {{"abc", 1}, {"10s", 1}, {"0", 1}, {"-1", 1}, {"nan", 1}, {"3601", 1}, {"", 0}, {"2.5", 0}};

TEST_LOOP(start, a_timeout_that_is_none_is_told, 0, sizeof(timeouts) / sizeof(timeouts[0]))
{
	CUlogIterator before, after;

	OK(cuLogsCurrent(&before, 0));
	setenv("FRMPS_CONNECT_TIMEOUT", timeouts[_i].value, 1);
	OK(cuInit(0));
	OK(cuLogsCurrent(&after, 0));
	ck_assert_uint_eq(after, before + timeouts[_i].told);
}

TEST(start, a_hanging_service_is_an_error)
{
	setenv("FRMPS_CONNECT_TIMEOUT", "0.2", 1);
	word_set(&loopback->mute, 1);
	FAILS(cuInit(0), MPS_SERVER_NOT_READY);
	word_set(&loopback->mute, 0);
	unsetenv("FRMPS_CONNECT_TIMEOUT");
	OK(cuInit(0));
}

TEST(start, a_daemon_that_dies_is_greeted_again)
{
	word_set(&loopback->deaths, 2);
	OK(cuInit(0));
	ck_assert_uint_eq(loopback->greetings, 3);
}

TEST(start, a_service_that_always_hangs_up_is_an_error)
{
	word_set(&loopback->deaths, 1000);
	FAILS(cuInit(0), MPS_CONNECTION_FAILED);
	ck_assert_uint_lt(loopback->greetings, 20);
}

TEST(start, hidden_devices_are_no_devices)
{
	int count;

	setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
	FAILS(cuInit(0), NO_DEVICE);
	ck_assert_uint_eq(loopback->greetings, 0);
	setenv("CUDA_VISIBLE_DEVICES", "GPU-00", 1);
	FAILS(cuInit(0), NO_DEVICE);
	setenv("CUDA_VISIBLE_DEVICES", "GPU-f0f1f2f3-f4f5", 1);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	ck_assert_int_eq(count, 1);
}

TEST(contexts, device_questions)
{
	char name[64], bus[16];
	int value;
	CUdevice device;

	FAILS(cuInit(1), INVALID_VALUE);
	OK(cuDeviceGet(&device, 0));
	FAILS(cuDeviceGet(&device, 1), INVALID_DEVICE);
	OK(cuDeviceGetName(name, sizeof(name), 0));
	ck_assert_str_eq(name, "Loopback");
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
	ck_assert_int_eq(value, 1024);
	FAILS(cuDeviceGetAttribute(&value, (CUdevice_attribute)5000, 0), INVALID_VALUE);
	OK(cuDeviceGetPCIBusId(bus, sizeof(bus), 0));
	ck_assert_str_eq(bus, "0000:1b:00.0");
	OK(cuDeviceGetByPCIBusId(&device, bus));
	FAILS(cuDeviceGetByPCIBusId(&device, "0000:1c:00.0"), INVALID_DEVICE);
	OK(cuDeviceCanAccessPeer(&value, 0, 0));
	ck_assert_int_eq(value, 0);
}

TEST(contexts, a_forked_child_has_no_driver)
{
	int status;
	pid_t pid;
	CUcontext c;
	uint32_t before = loopback->count;

	pid = fork();
	if (pid == 0) {
		int version, bad = 0;

		bad += cuMemFree_v2(0x1000) != CUDA_ERROR_NOT_INITIALIZED;
		bad += cuInit(0) != CUDA_ERROR_NOT_INITIALIZED;
		bad += cuCtxGetCurrent(&c) != CUDA_ERROR_NOT_INITIALIZED;
		bad += cuDriverGetVersion(&version) != CUDA_SUCCESS;
		/* The service must see when the parent is gone. */
		bad += session_self()->connection.control_fd != -1;
		_exit(bad);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_uint_eq(loopback->count, before);
	OK(cuCtxSynchronize());
}

static unsigned own_fds; /* without those that the start of the shim makes */

/* Return: whether the child has none but its own, and no driver. */
static bool fork_is_clean(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(fds_count() != own_fds || cuInit(0) != CUDA_ERROR_NOT_INITIALIZED);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static unsigned welcomed, welcomed_clean; /* forks */
static bool forks_when_welcome;

/* The shim's, which asks for this when it has the Welcome. */
int madvise(void *at, size_t bytes, int advice)
{
	if (forks_when_welcome) {
		++welcomed;
		welcomed_clean += fork_is_clean();
	}
	return (int)syscall(SYS_madvise, at, bytes, advice);
}

static void *start(void *unused)
{
	(void)unused;
	return (void *)(uintptr_t)cuInit(0);
}

/* Another thread is in the middle of cuInit: what it has so far is no more the child's than what it
 * has in the end. */
TEST(start, a_child_that_is_forked_during_the_start_keeps_nothing)
{
	pthread_t thread;
	void *result;
	bool clean;

	word_set(&loopback->mute, 1);
	own_fds = fds_count();
	ck_assert_int_eq(pthread_create(&thread, NULL, start, NULL), 0);
	while (!word_acquire(&loopback->greetings))
		sched_yield();
	clean = fork_is_clean();
	loopback_kill();
	pthread_join(thread, &result);
	FAILS((CUresult)(uintptr_t)result, MPS_CONNECTION_FAILED);
	ck_assert(clean);
}

TEST(start, a_child_that_is_forked_behind_the_welcome_keeps_nothing)
{
	own_fds = fds_count();
	forks_when_welcome = true;
	OK(cuInit(0));
	forks_when_welcome = false;
	ck_assert_uint_gt(welcomed, 0);
	ck_assert_uint_eq(welcomed_clean, welcomed);
	/* The socket and the doorbell. */
	ck_assert_uint_eq(fds_count(), own_fds + 2);
}

static bool forks_when_locked;

/* Return: whether cuInit returns in the child. */
static bool fork_can_start(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(10);
		_exit(cuInit(0) != CUDA_ERROR_MPS_CONNECTION_FAILED);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool locked_clean;

/* The shim's, whose first lock is that of the start. The child is as one of another thread's. */
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	static int (*lock)(pthread_mutex_t *);
	int r;

	if (!lock)
		lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
	r = lock(mutex);
	if (forks_when_locked) {
		forks_when_locked = false;
		locked_clean = fork_can_start();
	}
	return r;
}

/* Another thread has taken the lock of the start and done nothing yet. @_i: starts that failed
 * before */
TEST_LOOP(start, a_child_that_is_forked_at_the_start_can_start, 0, 2)
{
	setenv("FRMPS_SOCKET", "/nonexistent/socket", 1);
	for (int i = 0; i < _i; ++i)
		FAILS(cuInit(0), MPS_CONNECTION_FAILED);
	forks_when_locked = true;
	FAILS(cuInit(0), MPS_CONNECTION_FAILED);
	ck_assert(locked_clean);
}

static pthread_mutex_t programs = PTHREAD_MUTEX_INITIALIZER;

static void *start_with_lock(void *unused)
{
	void *result;

	pthread_mutex_lock(&programs);
	result = start(unused);
	pthread_mutex_unlock(&programs);
	return result;
}

/* The other thread has it, is in cuInit, and goes on there only now. */
static void lock_for_fork(void)
{
	if (pthread_mutex_trylock(&programs) == 0)
		return;
	loopback_kill();
	pthread_mutex_lock(&programs);
}

static void unlock_after_fork(void)
{
	pthread_mutex_unlock(&programs);
}

TEST(start, a_fork_that_waits_for_the_start_is_not_waited_for)
{
	pthread_t thread;
	void *result;
	int status;
	pid_t pid;

	/* Before the shim's: in front of a fork the latest comes first. */
	ck_assert_int_eq(pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork), 0);
	word_set(&loopback->mute, 1);
	own_fds = fds_count();
	ck_assert_int_eq(pthread_create(&thread, NULL, start_with_lock, NULL), 0);
	while (!word_acquire(&loopback->greetings))
		sched_yield();
	pid = fork();
	if (pid == 0)
		_exit(fds_count() != own_fds);
	pthread_join(thread, &result);
	FAILS((CUresult)(uintptr_t)result, MPS_CONNECTION_FAILED);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(contexts, the_stack_of_contexts)
{
	CUcontext a, b, c;
	CUdevice device;

	OK(cuCtxCreate_v2(&a, 0, 0));
	OK(cuCtxCreate_v4(&b, NULL, CU_CTX_SCHED_SPIN, 0));
	OK(cuCtxGetCurrent(&c));
	ck_assert_ptr_eq(c, b);
	OK(cuCtxPushCurrent_v2(a));
	OK(cuCtxPopCurrent_v2(&c));
	ck_assert_ptr_eq(c, a);
	OK(cuCtxDestroy_v2(b));
	OK(cuCtxGetCurrent(&c));
	ck_assert_ptr_eq(c, a);
	FAILS(cuCtxDestroy_v2(b), CONTEXT_IS_DESTROYED);
	OK(cuCtxSetCurrent(shim_context));
	OK(cuCtxSetCurrent(NULL));
	OK(cuCtxGetCurrent(&c));
	ck_assert_ptr_eq(c, shim_context);
	OK(cuCtxSetCurrent(NULL));
	FAILS(cuCtxGetDevice(&device), INVALID_CONTEXT);
	FAILS(cuCtxSynchronize(), INVALID_CONTEXT);
	FAILS(cuCtxPopCurrent_v2(&c), INVALID_CONTEXT);
	FAILS(cuCtxPushCurrent_v2((CUcontext)0x1234), INVALID_CONTEXT);
	OK(cuCtxSetCurrent(b));
	FAILS(cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
}

/* Libraries ask for it to see whether a context is still there. */
TEST(contexts, a_destroyed_context_has_no_version)
{
	unsigned int version = 0;
	CUcontext made, none;

	OK(cuCtxCreate_v2(&made, 0, 0));
	OK(cuCtxPopCurrent_v2(&none));
	OK(cuCtxGetApiVersion(made, &version));
	ck_assert_uint_eq(version, 3020);
	FAILS(cuCtxGetApiVersion(made, NULL), INVALID_VALUE);
	FAILS(cuCtxGetApiVersion((CUcontext)0x1234, &version), INVALID_CONTEXT);
	OK(cuCtxDestroy_v2(made));
	FAILS(cuCtxGetApiVersion(made, &version), INVALID_CONTEXT);
	OK(cuCtxGetApiVersion(NULL, &version));
	OK(cuDevicePrimaryCtxReset_v2(0));
	FAILS(cuCtxGetApiVersion(NULL, &version), INVALID_CONTEXT);
	FAILS(cuCtxGetApiVersion(shim_context, &version), INVALID_CONTEXT);
	OK(cuDevicePrimaryCtxRetain(&shim_context, 0));
	OK(cuCtxGetApiVersion(NULL, &version));
	OK(cuCtxSetCurrent(NULL));
	FAILS(cuCtxGetApiVersion(NULL, &version), INVALID_CONTEXT);
}

TEST(contexts, the_primary_context)
{
	unsigned int flags;
	unsigned long long before, after;
	CUcontext again;
	CUdeviceptr p;
	int active;

	OK(cuDevicePrimaryCtxRetain(&again, 0));
	ck_assert_ptr_eq(again, shim_context);
	OK(cuCtxGetId(shim_context, &before));
	OK(cuMemAlloc_v2(&p, 64 * MiB));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 1);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
	FAILS(cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
	FAILS(cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
	FAILS(cuDevicePrimaryCtxSetFlags_v2(0, 3), INVALID_VALUE);
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	ck_assert_ptr_eq(again, shim_context);
	OK(cuCtxGetId(shim_context, &after));
	ck_assert(before != after);
	FAILS(cuMemFree_v2(p), INVALID_VALUE);
	OK(cuCtxGetFlags(&flags));
	ck_assert_uint_eq(flags, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST);
}

TEST(contexts, a_reset_frees_everything)
{
	CUdeviceptr p;
	CUstream stream;
	CUevent event;
	void *host;

	OK(cuMemAlloc_v2(&p, 100 * MiB));
	OK(cuMemHostAlloc(&host, 100, 0));
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	OK(cuDevicePrimaryCtxReset_v2(0));
	FAILS(cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxRetain(&shim_context, 0));
	FAILS(cuMemFree_v2(p), INVALID_VALUE);
	FAILS(cuMemFreeHost(host), INVALID_VALUE);
	FAILS(cuStreamSynchronize(stream), INVALID_HANDLE);
	FAILS(cuEventQuery(event), INVALID_HANDLE);
	ck_assert_uint_le(loopback->mapped, 64 * MiB);
}

/* The service is asked for what the device has not got for everybody, once. */
TEST(contexts, limits_are_in_force_or_refused)
{
	size_t value;

	OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	ck_assert_uint_eq(value, 1024);
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512));
	OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	ck_assert_uint_eq(value, 512);
	ck_assert_uint_eq(loopback->limits, 0);
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	ck_assert_uint_eq(value, 4096 + 8);
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	ck_assert_uint_eq(loopback->limits, 1);
	FAILS(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)1 << 30), OUT_OF_MEMORY);
	OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	ck_assert_uint_eq(value, 8 << 20);
	ck_assert_uint_eq(loopback->limits, 2);
	FAILS(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, (size_t)1 << 20), INVALID_VALUE);
	FAILS(cuCtxGetLimit(&value, CU_LIMIT_CIG_ENABLED), UNSUPPORTED_LIMIT);
	FAILS(cuCtxSetLimit(CU_LIMIT_CIG_ENABLED, 1), UNSUPPORTED_LIMIT);
	FAILS(cuCtxGetLimit(&value, (CUlimit)99), INVALID_VALUE);
}

/*
 * Several devices: the loopback answers at several sockets, for each device in turn.
 */

static char sockets[3][PLACE_BYTES];

/* @there: bit i: device i can be reached */
static void have_devices(unsigned count, unsigned there)
{
	for (unsigned i = 0; i < count; i++) {
		ck_assert(place_of_device(getenv("FRMPS_SOCKET"), i, sockets[i]));
		if (i && there >> i & 1)
			ck_assert_int_eq(symlink(sockets[0], sockets[i]), 0);
	}
	word_set(&loopback->devices, count);
}

static void drop_devices(unsigned count)
{
	for (unsigned i = 1; i < count; i++)
		unlink(sockets[i]);
}

/* The last byte of its UUID. */
static int number_of(int ordinal)
{
	CUuuid uuid;

	OK(cuDeviceGetUuid_v2(&uuid, ordinal));
	return (unsigned char)uuid.bytes[15];
}

TEST(several, several_devices_are_listed_without_a_session)
{
	CUcontext current = (CUcontext)1;
	int count, can = -1, value = -1;
	unsigned flags;
	size_t bytes;
	char name[32];

	have_devices(3, 7);
	OK(cuInit(0));
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	ck_assert_int_eq(count, 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(number_of(i), i);
		OK(cuDeviceGetName(name, sizeof(name), i));
		ck_assert_str_eq(name, "Loopback");
		OK(cuDeviceTotalMem_v2(&bytes, i));
		ck_assert_uint_eq(bytes, UINT64_C(1) << 40);
		OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, i));
		ck_assert_int_eq(value, 1024);
		OK(cuDevicePrimaryCtxGetState(i, &flags, &value));
		ck_assert_int_eq(value, 0);
	}
	OK(cuDeviceCanAccessPeer(&can, 0, 2));
	ck_assert_int_eq(can, 0);
	OK(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 2));
	ck_assert_int_eq(can, 0);
	FAILS(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1), INVALID_DEVICE);
	FAILS(cuDeviceGetName(name, sizeof(name), 3), INVALID_DEVICE);
	/* A library of messages asks about any pointer, long before there is a context. */
	FAILS(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&value),
		INVALID_VALUE);
	OK(cuCtxGetCurrent(&current));
	ck_assert_ptr_null(current);
	FAILS(cuCtxSynchronize(), INVALID_CONTEXT);
	ck_assert_uint_eq(loopback->descriptions, 3);
	ck_assert_uint_eq(loopback->welcomes, 0);
	drop_devices(3);
}

TEST(several, a_session_begins_with_the_first_context_on_its_device)
{
	CUcontext context, other;
	CUdevice device = -1;
	CUmemoryPool pool;
	CUdeviceptr p;

	have_devices(3, 7);
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 1));
	ck_assert_uint_eq(loopback->welcomes, 1);
	OK(cuCtxSetCurrent(context));
	OK(cuCtxGetDevice(&device));
	ck_assert_int_eq(device, 1);
	OK(cuMemAlloc_v2(&p, 4096));
	OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	ck_assert_int_eq(device, 1);
	OK(cuDeviceGetDefaultMemPool(&pool, 1));
	OK(cuCtxCreate_v2(&other, 0, 1));
	OK(cuCtxDestroy_v2(other));
	FAILS(cuDevicePrimaryCtxRetain(&other, 3), INVALID_DEVICE);
	OK(cuMemFree_v2(p));
	ck_assert_uint_eq(loopback->welcomes, 1);
	drop_devices(3);
}

/* As the runtime does, which makes a primary context current before it retains one. */
TEST_LOOP(several, calls_without_a_device_mean_that_of_the_current_context, 0, 2)
{
	CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 2}};
	CUcontext context;
	CUdeviceptr p;
	size_t bytes;

	have_devices(3, 7);
	OK(cuInit(0));
	if (_i) {
		OK(cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	} else {
		OK(cuDevicePrimaryCtxRetain(&context, 2));
		OK(cuMemAddressReserve(&p, 2 << 20, 0, 0, 0));
	}
	OK(cuDevicePrimaryCtxRetain(&context, 2));
	ck_assert_uint_eq(loopback->welcomes, 1);
	drop_devices(3);
}

TEST_LOOP(several, a_list_chooses_among_several_devices, 0, 2)
{
	int count;

	have_devices(3, 7);
	setenv("CUDA_VISIBLE_DEVICES",
		_i ? "GPU-f0f1f2f3-f4f5-f6f7-0000-000000000002,GPU-f0f1f2f3-f4f5-f6f7-0000-000000000000"
		   : "2,0",
		1);
	/* The one that is named first is asked first, and one that is not named need not answer. */
	if (!_i)
		word_set(&loopback->numbers, 0x02);
	OK(cuInit(0));
	ck_assert_uint_eq(loopback->descriptions, _i ? 3 : 2);
	OK(cuDeviceGetCount(&count));
	ck_assert_int_eq(count, 2);
	ck_assert_int_eq(number_of(0), 2);
	ck_assert_int_eq(number_of(1), 0);
	drop_devices(3);
}

/* As with the driver, the others move up; in a list it is no device. */
TEST_LOOP(several, a_device_that_does_not_answer_is_missing, 0, 2)
{
	int count;

	have_devices(3, 3);
	if (_i)
		setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
	if (_i) {
		FAILS(cuInit(0), NO_DEVICE);
	} else {
		OK(cuInit(0));
		OK(cuDeviceGetCount(&count));
		ck_assert_int_eq(count, 2);
		ck_assert_int_eq(number_of(1), 1);
	}
	drop_devices(3);
}

TEST(several, the_first_device_need_not_be_there)
{
	int count;

	have_devices(2, 1);
	ck_assert_int_eq(rename(sockets[0], sockets[1]), 0);
	/* Its answer is that of the second. */
	word_set(&loopback->descriptions, 1);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	ck_assert_int_eq(count, 1);
	ck_assert_int_eq(number_of(0), 1);
	ck_assert_int_eq(rename(sockets[1], sockets[0]), 0);
}

static const struct {
	const char *value;
	uint64_t bytes[2];
} limits_by_device[] = {{"0=1G,1=2G", {1, 2}}, {"1=3G", {1024, 3}},
	{"GPU-f0f1f2f3-f4f5-f6f7-0000-000000000001=5G,0=4G", {4, 5}}};

TEST_LOOP(several, limits_are_those_of_the_device, 0, 3)
{
	CUcontext context;
	size_t bytes;

	have_devices(2, 3);
	setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limits_by_device[_i].value, 1);
	OK(cuInit(0));
	for (int i = 0; i < 2; i++) {
		OK(cuDeviceTotalMem_v2(&bytes, i));
		ck_assert_uint_eq(bytes, limits_by_device[_i].bytes[i] << 30);
	}
	OK(cuDevicePrimaryCtxRetain(&context, 1));
	ck_assert_uint_eq(loopback->memory_limit, limits_by_device[_i].bytes[1] << 30);
	drop_devices(2);
}

TEST(several, a_limit_by_uuid_holds_for_a_single_device)
{
	CUcontext context;
	size_t bytes;

	setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "GPU-f0f1=2G", 1);
	OK(cuInit(0));
	OK(cuDeviceTotalMem_v2(&bytes, 0));
	ck_assert_uint_eq(bytes, UINT64_C(2) << 30);
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	ck_assert_uint_eq(loopback->memory_limit, UINT64_C(2) << 30);
}

/* Natively as little as here: a child of a program that has counted devices cannot use one. */
TEST(several, a_child_of_who_has_listed_devices_has_none)
{
	CUcontext context;
	int status;
	pid_t child;

	have_devices(2, 3);
	OK(cuInit(0));
	child = fork();
	if (!child)
		_exit(cuDevicePrimaryCtxRetain(&context, 1) != CUDA_ERROR_NOT_INITIALIZED);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	OK(cuDevicePrimaryCtxRetain(&context, 1));
	drop_devices(2);
}

int main(void)
{
	Suite *suite = suite_create("start");
	TCase *several = suite_case(suite, "several");
	TCase *start = suite_case(suite, "start");
	TCase *contexts = suite_case(suite, "contexts");

	tcase_add_checked_fixture(several, shim_setup_service, shim_teardown);
	tcase_add_checked_fixture(start, shim_setup_service, shim_teardown);
	suite_add(start, "start");
	tcase_add_checked_fixture(contexts, shim_setup, shim_teardown);
	suite_add(contexts, "contexts");
	suite_add(several, "several");
	return suite_run(suite);
}
