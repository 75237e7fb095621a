// One service with several devices: each program sees them all and works on the one that it
// chooses, and what happens on one device touches no other. Devices are those of the host backend,
// and logical ones.

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "protocol/place.h"
#include "tests/lib/folder.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define MIB	((size_t)1 << 20)
#define SECONDS 60

static struct service service;

static void start(const char *there, const char *configuration)
{
	setenv("FRMPS_HOST_DEVICES", there, 1);
	setenv("FRMPS_HOST_FAULTS", "named", 1);
	ck_assert(service_start_configured(&service, configuration));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/* As the functions of status.h want a service with one. */
static const struct service *device(unsigned number)
{
	static struct service one;

	one = service_of_device(&service, number);
	return &one;
}

static void attach(int ordinal)
{
	CUcontext context;

	ck_cuda(cuInit(0));
	ck_cuda(cuDevicePrimaryCtxRetain(&context, ordinal));
	ck_cuda(cuCtxSetCurrent(context));
}

/* The last byte of its UUID, by which the host backend numbers its devices from 1. */
static int device_of(int ordinal)
{
	CUuuid uuid;

	ck_cuda(cuDeviceGetUuid_v2(&uuid, ordinal));
	return (unsigned char)uuid.bytes[15] - 1;
}

/*
 * What a program sees
 */

static int see(int expected)
{
	char bus[32];
	int count, can, found, value;
	size_t bytes;

	ck_cuda(cuInit(0));
	ck_cuda(cuDeviceGetCount(&count));
	ck_assert_int_eq(count, expected);
	for (int i = 0; i < count; i++) {
		ck_assert_int_eq(device_of(i), i);
		ck_cuda(cuDeviceTotalMem_v2(&bytes, i));
		ck_assert_uint_gt(bytes, MIB);
		ck_cuda(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, i));
		ck_assert_int_gt(value, 0);
		ck_cuda(cuDeviceGetPCIBusId(bus, sizeof(bus), i));
		ck_cuda(cuDeviceGetByPCIBusId(&found, bus));
		ck_assert_int_eq(found, i);
		ck_cuda(cuDeviceCanAccessPeer(&can, i, 0));
		ck_assert_int_eq(can, i != 0);
	}
	return 0;
}

static const struct {
	const char *there, *configuration;
} every[] = {{"2", "devices = all\n"}, {"4", ""}};

TEST_LOOP(devices, a_program_sees_every_device, 0, 2)
{
	const int count = atoi(every[_i].there);

	start(every[_i].there, every[_i].configuration);
	ck_assert_int_eq(exit_status(spawn(see, count)), 0);
	/* It has asked, and that is all. */
	for (int i = 0; i < count; i++)
		ck_assert_int_eq(status_counter(device((unsigned)i), "sessions_opened"), 0);
	ck_assert_int_eq(service_log_count(&service, "device 1[") > 0, 1);
}

/* Nor its number in the log. */
TEST(devices, a_single_one_has_no_parent)
{
	start("1", "");
	ck_assert_int_eq(exit_status(spawn(see, 1)), 0);
	ck_assert_int_eq(status_counter(&service, "sessions_opened"), 1);
	ck_assert_int_eq(service_log_count(&service, "device 0["), 0);
	ck_assert_int_eq(service_log_count(&service, "ready: 1 devices"), 0);
}

static int see_list(int unused)
{
	static const struct {
		const char *list;
		int count, devices[4];
	} rows[] = {{"3,1", 2, {3, 1}}, {"2", 1, {2}}, {"0,1,2,3", 4, {0, 1, 2, 3}}, {"1,9,2", 1, {1}},
		{"GPU-66726d70-7300-4000-8000-000000000003,GPU-66726d70-7300-4000-8000-000000000001", 2,
			{2, 0}}};
	int count;

	setenv("CUDA_VISIBLE_DEVICES", rows[unused].list, 1);
	ck_cuda(cuInit(0));
	ck_cuda(cuDeviceGetCount(&count));
	ck_assert_int_eq(count, rows[unused].count);
	for (int i = 0; i < count; i++)
		ck_assert_int_eq(device_of(i), rows[unused].devices[i]);
	attach(0);
	/* Its session is where its list says. */
	ck_assert_int_gt(status_session(device((unsigned)rows[unused].devices[0]), getpid()), 0);
	return 0;
}

TEST(devices, a_list_chooses_and_orders)
{
	start("4", "devices = all\n");
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(exit_status(spawn(see_list, i)), 0);
}

static int name_nothing(int with)
{
	static const char *const lists[] = {"4", "GPU-66726d70", "MIG-66726d70", "", "none"};
	const char *words =
		with < 2 ? "names no device of the service: its numbers count in the service's list of 4"
			 : "";
	FILE *log = tmpfile();
	char *text = NULL;
	size_t size = 0;
	CUresult r;

	ck_assert_ptr_nonnull(log);
	dup2(fileno(log), STDERR_FILENO);
	setenv("CUDA_VISIBLE_DEVICES", lists[with], 1);
	r = cuInit(0);
	rewind(log);
	if (getdelim(&text, &size, '\0', log) < 0)
		text = strdup("");
	ck_assert_msg(strstr(text, words), "%s", text);
	free(text);
	fclose(log);
	return r == CUDA_ERROR_NO_DEVICE ? 0 : 2;
}

TEST(devices, a_list_without_a_device_is_refused)
{
	start("4", "devices = all\n");
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(exit_status(spawn(name_nothing, i)), 0);
}

/*
 * Where it works
 */

static int rank;

/* As a rank of torchrun: its number is that of its device. */
static int ranked(int progress, int orders)
{
	uint64_t count = 1031;
	uint32_t round = (uint32_t)rank;
	uint32_t *result = malloc(count * 4);
	CUdeviceptr in, out;
	CUdevice own = -1;
	void *arguments[] = {&out, &in, &round, &count};

	attach(rank);
	kernels();
	ck_cuda(cuCtxGetDevice(&own));
	ck_assert_int_eq(own, rank);
	in = device_words(count, 3);
	out = device_words(count, 0);
	ck_cuda(launch("mix", 4, 64, NULL, arguments));
	ck_cuda(cuMemcpyDtoH_v2(result, out, count * 4));
	for (uint32_t i = 0; i < count; i++)
		if (result[i] != mixed(i * 3, round, i))
			return 2;
	report(progress);
	ordered(orders, true);
	free(result);
	return 0;
}

TEST(devices, each_rank_works_on_its_device)
{
	struct child children[4];

	start("4", "devices = all\n");
	for (rank = 0; rank < 4; rank++) {
		children[rank] = child_start(ranked);
		child_wait(&children[rank], 1);
	}
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			ck_assert_int_eq(status_session(device((unsigned)k), children[i].pid) > 0, i == k);
	for (int i = 0; i < 4; i++) {
		child_order(&children[i]);
		ck_assert_int_eq(child_end(&children[i]), 0);
	}
}

/*
 * Logical devices
 */

static int see_limits(int ordinal)
{
	size_t free_bytes, total;
	int multiprocessors;
	CUdeviceptr p;

	ck_cuda(cuInit(0));
	/* Before there is a session, and with one. */
	for (int i = 0; i < 2; i++) {
		ck_cuda(cuDeviceTotalMem_v2(&total, ordinal));
		ck_cuda(cuDeviceGetAttribute(
			&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal));
		ck_assert_int_eq(total == 64 * MIB, ordinal == 1);
		ck_assert_int_eq(multiprocessors, ordinal == 1 ? 2 : 4);
		attach(ordinal);
	}
	ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
	ck_assert_int_eq(total == 64 * MIB, ordinal == 1);
	return cuMemAlloc_v2(&p, 65 * MIB) != (ordinal == 1 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

static int see_copies(int unused)
{
	CUuuid uuids[3];
	int count;

	(void)unused;
	ck_cuda(cuInit(0));
	ck_cuda(cuDeviceGetCount(&count));
	ck_assert_int_eq(count, 3);
	for (int i = 0; i < 3; i++)
		ck_cuda(cuDeviceGetUuid_v2(&uuids[i], i));
	ck_assert_mem_ne(&uuids[0], &uuids[1], sizeof(uuids[0]));
	ck_assert_mem_ne(&uuids[0], &uuids[2], sizeof(uuids[0]));
	ck_assert_mem_ne(&uuids[1], &uuids[2], sizeof(uuids[0]));
	return 0;
}

TEST(devices, logical_devices_have_limits_of_their_own)
{
	start("1", "devices = 0,0,0\n[device 1]\nmemory_limit = 64M\nsm_percent = 50\n");
	ck_assert_int_eq(exit_status(spawn(see_copies, 0)), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(exit_status(spawn(see_limits, i)), 0);
}

/* Has 40 MiB of the second device until it is ordered to end. */
static int holder(int progress, int orders)
{
	CUdeviceptr p;

	attach(1);
	ck_cuda(cuMemAlloc_v2(&p, 40 * MIB));
	report(progress);
	ordered(orders, true);
	ck_cuda(cuMemsetD8_v2(p, 1, 40 * MIB));
	ck_cuda(cuMemFree_v2(p));
	return 0;
}

/* Beside the holder. */
static int take_the_rest(int unused)
{
	size_t free_bytes, total;
	CUdeviceptr p;

	(void)unused;
	ck_cuda(cuInit(0));
	ck_cuda(cuDeviceTotalMem_v2(&total, 1));
	ck_assert_uint_eq(total, 64 * MIB);
	attach(1);
	ck_cuda(cuDeviceTotalMem_v2(&total, 1));
	ck_assert_uint_eq(total, 64 * MIB);
	ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
	ck_assert_uint_eq(total, 64 * MIB);
	ck_assert_uint_eq(free_bytes, 24 * MIB);
	ck_assert_int_eq(cuMemAlloc_v2(&p, 26 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	ck_cuda(cuMemAlloc_v2(&p, 24 * MIB));
	return 0;
}

static int take_much_of_the_first(int unused)
{
	size_t total;
	CUdeviceptr p;

	(void)unused;
	attach(0);
	ck_cuda(cuDeviceTotalMem_v2(&total, 0));
	ck_assert_uint_gt(total, 1024 * MIB);
	ck_cuda(cuMemAlloc_v2(&p, 128 * MIB));
	return 0;
}

TEST(devices, a_logical_device_has_a_size)
{
	struct child child;

	start("1", "devices = 0,0\nguard = off\n[device 1]\ndevice_memory = 64M\n");
	child = child_start(holder);
	child_wait(&child, 1);
	ck_assert_int_eq(exit_status(spawn(take_the_rest, 0)), 0);
	ck_assert_int_eq(exit_status(spawn(take_much_of_the_first, 0)), 0);
	ck_assert_int_eq(service_log_count(&service, "26M more are refused (device_memory)"), 1);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

static int obey_variable(int ordinal)
{
	size_t total;

	setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=32M,GPU-66726d70-7300-4000-8000-000000000002=48M", 1);
	attach(ordinal);
	ck_cuda(cuDeviceTotalMem_v2(&total, ordinal));
	return total != (ordinal ? 48 : 32) * MIB;
}

TEST(devices, limits_of_stock_mps_are_those_of_the_device)
{
	start("2", "devices = all\n");
	ck_assert_int_eq(exit_status(spawn(obey_variable, 0)), 0);
	ck_assert_int_eq(exit_status(spawn(obey_variable, 1)), 0);
}

/*
 * What goes wrong
 */

static int survivor_on_rank(int progress, int orders)
{
	char number[8];

	snprintf(number, sizeof(number), "%d", rank);
	setenv("CUDA_VISIBLE_DEVICES", number, 1);
	return survivor(progress, orders);
}

static struct child survivor_on(int number)
{
	struct child child;

	rank = number;
	child = child_start(survivor_on_rank);
	child_wait(&child, 2);
	return child;
}

/* It has finished rounds that it began after this. */
static void goes_on(const struct child *child)
{
	child_drain(child);
	child_wait(child, 3);
}

static int crash(int ordinal)
{
	CUdeviceptr word;
	void *arguments[] = {&word};

	attach(ordinal);
	word = device_words(1, 0);
	ck_cuda(launch("crash_trap", 1, 1, NULL, arguments));
	return cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED ? 0 : 2;
}

TEST(devices, a_fault_stays_on_its_device)
{
	struct child beside, same;
	pid_t executor;

	start("2", "devices = all\n");
	beside = survivor_on(0);
	same = survivor_on(1);
	executor = status_active(device(0));
	ck_assert_int_eq(exit_status(spawn(crash, 1)), 0);
	goes_on(&beside);
	goes_on(&same);
	status_await_faults(device(1), 1);
	ck_assert_int_eq(status_counter(device(0), "faults"), 0);
	ck_assert_int_eq(status_active(device(0)), executor);
	child_order(&beside);
	child_order(&same);
	ck_assert_int_eq(child_end(&beside), 0);
	ck_assert_int_eq(child_end(&same), 0);
}

TEST(devices, a_lost_executor_stays_on_its_device)
{
	struct child beside;
	pid_t executor;

	start("2", "devices = all\n");
	beside = survivor_on(0);
	executor = status_active(device(0));
	status_await_executors(device(1));
	status_replace_active(device(1), 1);
	goes_on(&beside);
	ck_assert_int_eq(status_active(device(0)), executor);
	ck_assert_int_eq(status_counter(device(0), "promotions"), 0);
	child_order(&beside);
	ck_assert_int_eq(child_end(&beside), 0);
}

/* A tool names a process, and no device. */
TEST(devices, a_tool_finds_a_program_on_its_device)
{
	CUprocessState state = CU_PROCESS_STATE_FAILED;
	struct child beside, same;

	start("2", "devices = all\n");
	beside = survivor_on(0);
	same = survivor_on(1);
	ck_cuda(cuCheckpointProcessLock(same.pid, NULL));
	ck_cuda(cuCheckpointProcessCheckpoint(same.pid, NULL));
	ck_cuda(cuCheckpointProcessGetState(beside.pid, &state));
	ck_assert_int_eq((int)state, CU_PROCESS_STATE_RUNNING);
	goes_on(&beside);
	ck_assert(status_is_in(device(1), same.pid, "suspended"));
	ck_cuda(cuCheckpointProcessRestore(same.pid, NULL));
	ck_cuda(cuCheckpointProcessUnlock(same.pid, NULL));
	goes_on(&same);
	ck_assert_int_eq(cuCheckpointProcessLock(getpid(), NULL), CUDA_ERROR_INVALID_VALUE);
	child_order(&beside);
	child_order(&same);
	ck_assert_int_eq(child_end(&beside), 0);
	ck_assert_int_eq(child_end(&same), 0);
}

TEST(devices, a_dead_daemon_stays_on_its_device)
{
	struct child beside, same;

	start("2", "devices = all\n");
	beside = survivor_on(0);
	same = survivor_on(1);
	kill(status_daemon(device(1)), SIGKILL);
	ck_assert(service_log_wait(&service, "daemon was ended by signal 9 ", 1, SECONDS));
	goes_on(&beside);
	goes_on(&same);
	ck_assert_int_eq(status_counter(device(0), "daemons_lost"), 0);
	ck_assert_int_eq(status_counter(device(1), "daemons_lost"), 1);
	child_order(&beside);
	child_order(&same);
	ck_assert_int_eq(child_end(&beside), 0);
	ck_assert_int_eq(child_end(&same), 0);
}

static int work_on(int ordinal)
{
	CUdeviceptr p;

	attach(ordinal);
	return cuMemAlloc_v2(&p, MIB) != CUDA_SUCCESS;
}

/* Everything that serves one device is gone at once. */
TEST(devices, a_device_without_processes_is_served_again)
{
	struct child beside, same;

	start("2", "devices = all\n");
	beside = survivor_on(0);
	same = survivor_on(1);
	kill(status_holder(device(1)), SIGKILL);
	ck_assert(service_log_wait(&service, "device 1 is not served at the moment", 1, SECONDS));
	goes_on(&beside);
	/* Its checks end it with another status, or a signal: what matters is that it is told. */
	ck_assert_int_ne(child_end(&same), 0);
	ck_assert_int_eq(exit_status(spawn(work_on, 0)), 0);
	ck_assert(service_log_wait(&service, "ready: host backend", 3, SECONDS));
	ck_assert_int_eq(exit_status(spawn(work_on, 1)), 0);
	goes_on(&beside);
	child_order(&beside);
	ck_assert_int_eq(child_end(&beside), 0);
}

/* Daemons that hang: connections wait in their sockets' queues. */
static void hang(pid_t daemons[], int count)
{
	for (int i = 0; i < count; i++) {
		daemons[i] = status_daemon(device((unsigned)i));
		ck_assert_int_eq(kill(daemons[i], SIGSTOP), 0);
	}
}

static void go_on_all(const pid_t daemons[], int count)
{
	for (int i = 0; i < count; i++)
		ck_assert_int_eq(kill(daemons[i], SIGCONT), 0);
}

/* Milliseconds that three daemons which hang cost, one after the other: too many. */
#define HANG_MS 2000

static int see_the_last_of_four(int unused)
{
	struct timespec begin, now;
	int count;

	(void)unused;
	setenv("FRMPS_CONNECT_TIMEOUT", "2", 1);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	ck_cuda(cuInit(0));
	clock_gettime(CLOCK_MONOTONIC, &now);
	/* Once for the first, which is asked alone, and once for the others together. */
	ck_assert_int_lt(
		(now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000, 3 * HANG_MS);
	ck_cuda(cuDeviceGetCount(&count));
	ck_assert_int_eq(count, 1);
	ck_assert_int_eq(device_of(0), 3);
	return work_on(0);
}

static int name_the_last_of_four(int unused)
{
	(void)unused;
	setenv("FRMPS_CONNECT_TIMEOUT", "3600", 1);
	setenv("CUDA_VISIBLE_DEVICES", "3", 1);
	ck_cuda(cuInit(0));
	ck_assert_int_eq(device_of(0), 3);
	return work_on(0);
}

TEST(devices, daemons_that_hang_cost_one_wait_and_nothing_who_cannot_see_them)
{
	pid_t daemons[3];

	start("4", "devices = all\n");
	hang(daemons, 3);
	ck_assert_int_eq(exit_status(spawn(name_the_last_of_four, 0)), 0);
	ck_assert_int_eq(exit_status(spawn(see_the_last_of_four, 0)), 0);
	go_on_all(daemons, 3);
}

/*
 * The service
 */

static bool is_there(unsigned number)
{
	char path[PLACE_BYTES];

	ck_assert(place_of_device(service.socket, number, path));
	return !access(path, F_OK);
}

static int quit(int unused)
{
	(void)unused;
	execl(getenv("FRMPS_TEST_CTL"), "frmpsctl", "quit", (char *)NULL);
	return 127;
}

TEST_LOOP(devices, the_service_ends_whole, 0, 2)
{
	start("4", "devices = all\n");
	for (unsigned i = 0; i < 4; i++)
		ck_assert(is_there(i));
	if (_i)
		ck_assert_int_eq(kill(service.pid, SIGTERM), 0);
	else
		ck_assert_int_eq(exit_status(spawn(quit, 0)), 0);
	ck_assert(service_log_wait(&service, "info: stopped", 5, SECONDS));
	for (unsigned i = 0; i < 4; i++)
		ck_assert(!is_there(i));
}

static bool fails_to_start(const char *there, const char *configuration)
{
	setenv("FRMPS_HOST_DEVICES", there, 1);
	return !service_start_configured(&service, configuration);
}

TEST(devices, a_device_that_is_not_there_is_named)
{
	ck_assert(fails_to_start("2", "devices = 0,2\n"));
	ck_assert(fails_to_start("2", "devices = GPU-00\n"));
}

/* An operator who names a device wants that one. Modes: tests/host/context.c */
static const struct {
	const char *modes, *configuration, *says;
	int code;
} unserved[] = {
	{"dp", "0,1", "devices: GPU 1 cannot be served: its compute mode is PROHIBITED. To do: ", 69},
	{"dl", "0,1", "device 1 is not served (exit code 1): the service does not start", 1},
	{"p", "all", "cannot be served: its compute mode is PROHIBITED. To do: ", 69},
	{"l", "all", "the service does not start: no device is served", 1},
};

TEST_LOOP(devices, what_is_needed_is_needed, 0, sizeof(unserved) / sizeof(unserved[0]))
{
	char line[1024];

	snprintf(line, sizeof(line),
		"printf %s >modes; FRMPS_HOST_DEVICES=2 FRMPS_HOST_MODE=modes %s --config /dev/null "
		"--backend %s --socket $PWD/sock --devices %s 2>said; test $? = %d && grep -q '%s' said",
		unserved[_i].modes, getenv("FRMPS_TEST_SERVER"), service_backend(),
		unserved[_i].configuration, unserved[_i].code, unserved[_i].says);
	folder_enter();
	folder_shell(line);
	folder_leave();
}

int main(void)
{
	Suite *suite = suite_create("devices");
	TCase *tests = suite_case(suite, "devices");

	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "devices");
	return suite_run(suite);
}
