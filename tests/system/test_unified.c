// Pinned host memory of a process that works on two devices: kernels, graphs and copies of both
// reach it at one address, whichever context made it and whichever device the process worked on
// first; and what is left of that when something fails, ends, rests or moves. Devices are those of
// the host backend.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/both.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define FAILS(call, code) ck_assert_int_eq((int)(call), CUDA_ERROR_##code)
#define BYTES		  (4 * MIB)

/* SHARED: registered, of a file that other processes may have. */
enum kind { ALLOCATED, REGISTERED, SHARED, MANAGED, CREATED, KINDS };

struct pinned {
	enum kind kind;
	size_t bytes;
	uint32_t *words;
};

/* Host memory with a handle, as NCCL makes and maps it. @handle: 0: new memory */
static uint32_t *map_created(size_t bytes, CUmemGenericAllocationHandle handle)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
	size_t granularity;
	CUdeviceptr address;

	ck_cuda(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	if (!handle)
		ck_cuda(cuMemCreate(&handle, bytes, &properties, 0));
	ck_cuda(cuMemAddressReserve(&address, bytes, 0, 0, 0));
	ck_cuda(cuMemMap(address, bytes, 0, handle, 0));
	ck_cuda(cuMemRelease(handle));
	return (uint32_t *)(uintptr_t)address;
}

static CUresult set_access(uint32_t *words, size_t bytes, CUmemLocationType type, int id, bool may)
{
	const CUmemAccessDesc access = {.location = {.type = type, .id = id},
		.flags = may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};

	return cuMemSetAccess((CUdeviceptr)(uintptr_t)words, bytes, &access, 1);
}

static void *map_shared(size_t bytes)
{
	int fd = memfd_create("shared", MFD_CLOEXEC);
	void *memory;

	ck_assert_int_eq(ftruncate(fd, (off_t)(bytes + MIB)), 0);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, MIB);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

/* In the context of one side. */
static struct pinned pin(enum kind kind, int ordinal, size_t bytes)
{
	struct pinned pinned = {kind, bytes, NULL};
	CUdeviceptr address;
	void *memory;

	use(ordinal);
	switch (kind) {
	case ALLOCATED:
		ck_cuda(cuMemHostAlloc(&memory, bytes, 0));
		pinned.words = memory;
		break;
	case REGISTERED:
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ck_assert_ptr_ne(memory, MAP_FAILED);
		ck_cuda(cuMemHostRegister_v2(memory, bytes, 0));
		pinned.words = memory;
		break;
	case SHARED:
		memory = map_shared(bytes);
		ck_cuda(cuMemHostRegister_v2(memory, bytes, 0));
		pinned.words = memory;
		break;
	case MANAGED:
		ck_cuda(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
		pinned.words = (uint32_t *)(uintptr_t)address;
		break;
	default:
		pinned.words = map_created(bytes, 0);
		ck_cuda(set_access(pinned.words, bytes, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, true));
		ck_cuda(set_access(pinned.words, bytes, CU_MEM_LOCATION_TYPE_DEVICE, 0, true));
		ck_cuda(set_access(pinned.words, bytes, CU_MEM_LOCATION_TYPE_DEVICE, 1, true));
		break;
	}
	return pinned;
}

static CUresult unpin(const struct pinned *pinned)
{
	const CUdeviceptr address = (CUdeviceptr)(uintptr_t)pinned->words;
	CUresult r;

	switch (pinned->kind) {
	case ALLOCATED:
		return cuMemFreeHost(pinned->words);
	case REGISTERED:
	case SHARED:
		r = cuMemHostUnregister(pinned->words);
		munmap(pinned->words, pinned->bytes);
		return r;
	case MANAGED:
		return cuMemFree_v2(address);
	default:
		r = cuMemUnmap(address, pinned->bytes);
		return r ? r : cuMemAddressFree(address, pinned->bytes);
	}
}

/* Where a side has the memory. */
static CUdeviceptr address_of(const struct pinned *pinned, int ordinal)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)pinned->words;

	use(ordinal);
	if (pinned->kind <= SHARED)
		ck_cuda(cuMemHostGetDevicePointer_v2(&address, pinned->words, 0));
	return address;
}

/* A side's kernel reads and writes the first words. */
static bool is_reached(const struct pinned *pinned, int ordinal, uint32_t round)
{
	CUdeviceptr address = address_of(pinned, ordinal);
	volatile uint32_t *words = pinned->words;
	bool is = true;

	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = i * (round + 1);
	ck_cuda(mix(ordinal, address, address, round, sides[ordinal].stream));
	ck_cuda(cuStreamSynchronize(sides[ordinal].stream));
	for (uint32_t i = 0; is && i < WORDS; i++)
		is = words[i] == mixed(i * (round + 1), round, i);
	return is;
}

static bool is_reached_by_both(const struct pinned *pinned, uint32_t round)
{
	return is_reached(pinned, 0, round) && is_reached(pinned, 1, round + 1);
}

static void end_of_both(void)
{
	for (unsigned i = 0; i < 2; i++) {
		status_await_no_sessions(both_device(i));
		ck_assert_int_eq(status_counter(both_device(i), "sessions_rejected"), 0);
	}
}

/*
 * What reaches it
 */

/* What there was before the other device, and what comes later. */
static int reach_each(int which)
{
	const enum kind kind = (enum kind)(which / 2);
	const int owner = which % 2, other = 1 - owner;
	struct pinned memory[3];

	open_side(owner);
	if (kind == CREATED) /* the access opens the other device */
		open_side(other);
	memory[0] = pin(kind, owner, BYTES);
	ck_assert(is_reached(&memory[0], owner, 1));
	if (kind != CREATED)
		open_side(other);
	memory[1] = pin(kind, owner, BYTES);
	memory[2] = pin(kind, other, 34 * MIB);
	for (uint32_t round = 0; round < 4; round++)
		for (int i = 0; i < 3; i++)
			ck_assert(is_reached_by_both(&memory[i], round));
	for (int i = 0; i < 3; i++)
		ck_cuda(unpin(&memory[i]));
	return works(0, 1) && works(1, 2) ? 0 : 2;
}

TEST_LOOP(reach, kernels_of_both_reach_it, 0, 2 * KINDS)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(reach_each, _i)), 0);
	end_of_both();
}

/* Copies and fills go straight: the other device needs no pinned memory of its own. */
static int copy_straight(int which)
{
	const int owner = which % 2, other = 1 - owner;
	struct pinned memory;
	CUdeviceptr far;
	uint8_t *bytes;

	both_open();
	memory = pin((enum kind)(which / 2), owner, BYTES);
	bytes = (uint8_t *)memory.words;
	address_of(&memory, other);
	ck_cuda(cuMemAlloc_v2(&far, BYTES));
	for (uint32_t round = 0; round < 4; round++) {
		memset(bytes, (int)round + 1, BYTES);
		ck_cuda(cuMemcpyHtoDAsync_v2(far, bytes, BYTES, sides[other].stream));
		ck_cuda(cuStreamSynchronize(sides[other].stream));
		memset(bytes, 0, BYTES);
		ck_cuda(round % 2 ? cuMemcpyDtoHAsync_v2(bytes, far, BYTES, sides[other].stream)
				  : cuMemcpyDtoH_v2(bytes, far, BYTES));
		ck_cuda(cuStreamSynchronize(sides[other].stream));
		for (size_t i = 0; i < BYTES; i += 4093)
			ck_assert_uint_eq(bytes[i], round + 1);
		ck_cuda(cuMemsetD8Async(address_of(&memory, other), 0x5a, BYTES, sides[other].stream));
		ck_cuda(cuStreamSynchronize(sides[other].stream));
		for (size_t i = 0; i < BYTES; i += 4093)
			ck_assert_uint_eq(bytes[i], 0x5a);
	}
	ck_assert_int_eq((int)status_number(both_device((unsigned)other), getpid(), "host_bytes"), 0);
	ck_cuda(unpin(&memory));
	return 0;
}

TEST_LOOP(reach, copies_go_straight, 0, 2 * KINDS)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(copy_straight, _i)), 0);
}

/* A graph of device 1 whose nodes use memory that was pinned for device 0. */
static int run_graph(int unused)
{
	struct pinned in, out;
	CUdeviceptr address;
	CUgraphExec exec;
	CUgraph graph;

	(void)unused;
	both_open();
	in = pin(ALLOCATED, 0, BYTES);
	out = pin(ALLOCATED, 0, BYTES);
	address = address_of(&in, 1);
	ck_cuda(cuStreamBeginCapture_v2(sides[1].stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(mix(1, address, address, 7, sides[1].stream));
	ck_cuda(cuMemcpyHtoDAsync_v2(sides[1].out, in.words, WORDS * 4, sides[1].stream));
	ck_cuda(cuMemcpyDtoHAsync_v2(out.words, sides[1].out, WORDS * 4, sides[1].stream));
	ck_cuda(cuStreamEndCapture(sides[1].stream, &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < WORDS; i++)
			in.words[i] = i + round;
		ck_cuda(cuGraphLaunch(exec, sides[1].stream));
		ck_cuda(cuStreamSynchronize(sides[1].stream));
		for (uint32_t i = 0; i < WORDS; i++)
			ck_assert_uint_eq(out.words[i], mixed(i + round, 7, i));
	}
	return 0;
}

TEST(reach, graphs_reach_it)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(run_graph, 0)), 0);
}

/* Streams of both devices wait for each other by words of one of them. */
static int pass_words(int owner)
{
	struct pinned pinned;
	CUdeviceptr words;

	both_open();
	pinned = pin(ALLOCATED, owner, BYTES);
	memset(pinned.words, 0, BYTES);
	words = address_of(&pinned, owner);
	for (uint32_t round = 1; round <= 10; round++)
		for (int i = 0; i < 2; i++) {
			use(i);
			ck_cuda(cuStreamWaitValue32_v2(sides[i].stream, words + 4 * (CUdeviceptr)i, round,
				CU_STREAM_WAIT_VALUE_GEQ));
			ck_cuda(cuStreamWriteValue32_v2(
				sides[i].stream, words + 4 * (CUdeviceptr)(1 - i), round + (uint32_t)i, 0));
		}
	ck_assert_int_eq((int)cuStreamQuery(sides[1].stream), CUDA_ERROR_NOT_READY);
	__atomic_store_n(&pinned.words[0], 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++)
		ck_cuda(cuStreamSynchronize(sides[i].stream));
	return pinned.words[0] == 11 && pinned.words[1] == 10 ? 0 : 2;
}

TEST_LOOP(reach, streams_of_both_wait_for_its_words, 0, 2)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(pass_words, _i)), 0);
}

/* A device has memory with a handle while the program says so, and no longer. */
static int give_and_take(int unused)
{
	struct pinned pinned;
	unsigned long long flags;
	const CUmemLocation far = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};

	(void)unused;
	both_open();
	use(0);
	pinned = (struct pinned){CREATED, BYTES, map_created(BYTES, 0)};
	for (uint32_t round = 0; round < 3; round++) {
		ck_cuda(set_access(pinned.words, BYTES, CU_MEM_LOCATION_TYPE_DEVICE, 1, true));
		ck_cuda(cuMemGetAccess(&flags, &far, (CUdeviceptr)(uintptr_t)pinned.words));
		ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		ck_assert(is_reached_by_both(&pinned, round));
		ck_cuda(set_access(pinned.words, BYTES, CU_MEM_LOCATION_TYPE_DEVICE, 1, false));
		ck_assert(is_reached(&pinned, 0, round));
	}
	ck_cuda(unpin(&pinned));
	return works(0, 1) && works(1, 2) ? 0 : 2;
}

TEST(reach, access_to_memory_with_a_handle_comes_and_goes)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(give_and_take, 0)), 0);
}

/*
 * What it counts, and its end
 */

/* More than is kept spare, so that each round gives it back. */
static int pin_again(int unused)
{
	const size_t bytes = 150 * MIB;
	struct pinned pinned;
	void *more;

	(void)unused;
	both_open();
	for (uint32_t round = 0; round < 6; round++) {
		const int owner = (int)round % 2;

		pinned = pin(ALLOCATED, owner, bytes);
		ck_assert(is_reached_by_both(&pinned, round));
		use(owner);
		FAILS(cuMemHostAlloc(&more, bytes, 0), OUT_OF_MEMORY);
		ck_assert_int_ge(
			(int)(status_number(both_device((unsigned)owner), getpid(), "host_bytes") >> 20),
			150);
		ck_assert_int_lt(
			(int)(status_number(both_device(1 - (unsigned)owner), getpid(), "host_bytes") >> 20),
			64);
		/* Behind a kernel of the other device. */
		use(1 - owner);
		ck_cuda(mix(1 - owner, address_of(&pinned, 1 - owner), sides[1 - owner].in, round,
			sides[1 - owner].stream));
		ck_cuda(unpin(&pinned));
		ck_cuda(cuStreamQuery(sides[1 - owner].stream));
	}
	return 0;
}

/* It counts once, where it was pinned, and no longer than it is there. */
TEST(count, it_counts_where_it_was_pinned)
{
	setenv("FRMPS_HOST_DEVICES", "2", 1);
	ck_assert(service_start_configured(&both_service, "devices = all\npinned_limit = 200M\n"));
	ck_assert_int_eq(exit_status(spawn(pin_again, 0)), 0);
	end_of_both();
}

/* As natively, a child has the memory, and goes on seeing what kernels of both devices write. */
static int fork_with_it(int unused)
{
	struct pinned pinned;
	int count, go[2];
	pid_t pid;
	char byte;

	(void)unused;
	both_open();
	pinned = pin(ALLOCATED, 1, BYTES);
	ck_assert_int_eq(pipe(go), 0);
	pid = fork();
	if (pid == 0) {
		bool good = read(go[0], &byte, 1) == 1;

		for (uint32_t i = 0; good && i < WORDS; i++)
			good = pinned.words[i] == mixed(i * 4, 3, i);
		good = good && cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED;
		_exit(good ? 0 : 1);
	}
	ck_assert(is_reached(&pinned, 0, 3));
	ck_assert_int_eq((int)write(go[1], "", 1), 1);
	if (exit_status(pid))
		return 2;
	return is_reached_by_both(&pinned, 4) ? 0 : 3;
}

TEST(count, a_forked_child_has_it)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(fork_with_it, 0)), 0);
}

/*
 * What goes wrong
 */

/* What was pinned for the faulty device stays with the other one. */
static int fault_beside(int faulty)
{
	const int other = 1 - faulty;
	struct pinned theirs, ours, later;
	CUdeviceptr there;

	both_open();
	theirs = pin(ALLOCATED, faulty, BYTES);
	ours = pin(ALLOCATED, other, BYTES);
	there = address_of(&theirs, other);
	use(faulty);
	ck_cuda(cuLaunchKernel(
		function_of(faulty, "crash_trap"), 1, 1, 1, 1, 1, 1, 0, sides[faulty].stream, NULL, NULL));
	FAILS(cuCtxSynchronize(), LAUNCH_FAILED);
	FAILS(cuMemHostAlloc((void **)&later.words, BYTES, 0), LAUNCH_FAILED);
	for (uint32_t round = 0; round < 5; round++) {
		use(other);
		ck_cuda(mix(other, there, sides[other].in, round, sides[other].stream));
		ck_cuda(cuStreamSynchronize(sides[other].stream));
		for (uint32_t i = 0; i < WORDS; i++)
			ck_assert_uint_eq(theirs.words[i], mixed(i * (3 + (uint32_t)other), round, i));
		ck_assert(is_reached(&ours, other, round));
		later = pin(ALLOCATED, other, 80 * MIB);
		ck_assert(is_reached(&later, other, round));
		ck_cuda(unpin(&later));
	}
	return works(other, 1) ? 0 : 2;
}

TEST_LOOP(wrong, a_fault_leaves_it_to_the_other_device, 0, 2)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(fault_beside, _i)), 0);
	status_await_faults(both_device((unsigned)_i), 1);
	ck_assert_int_eq(status_counter(both_device(1 - (unsigned)_i), "faults"), 0);
}

/* The process works on the other device only once the first one has failed. */
static int begin_behind_fault(int unused)
{
	struct pinned theirs, ours;
	CUdeviceptr address;

	(void)unused;
	open_side(0);
	theirs = pin(ALLOCATED, 0, BYTES);
	memset(theirs.words, 7, BYTES);
	ck_cuda(cuLaunchKernel(
		function_of(0, "crash_trap"), 1, 1, 1, 1, 1, 1, 0, sides[0].stream, NULL, NULL));
	FAILS(cuCtxSynchronize(), LAUNCH_FAILED);
	open_side(1);
	ours = pin(ALLOCATED, 1, BYTES);
	ck_assert(is_reached(&ours, 1, 1));
	FAILS(cuMemHostGetDevicePointer_v2(&address, theirs.words, 0), NOT_SUPPORTED);
	ck_cuda(cuMemcpyHtoD_v2(sides[1].out, theirs.words, WORDS * 4));
	ck_cuda(cuMemcpyDtoH_v2(ours.words, sides[1].out, WORDS * 4));
	return ours.words[WORDS - 1] == 0x07070707 && works(1, 2) ? 0 : 2;
}

TEST(wrong, memory_of_a_failed_device_is_copied)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(begin_behind_fault, 0)), 0);
}

static int pin_repeatedly(int progress, int orders)
{
	struct pinned kept[2], now;

	both_open();
	for (int i = 0; i < 2; i++)
		kept[i] = pin(ALLOCATED, i, BYTES);
	for (uint32_t round = 0; !ordered(orders, false); round++) {
		now = pin((enum kind)(round / 2 % 3), (int)round % 2, 70 * MIB);
		if (!is_reached_by_both(&now, round) || !is_reached_by_both(&kept[0], round) ||
			!is_reached_by_both(&kept[1], round))
			return 2;
		ck_cuda(unpin(&now));
		report(progress);
	}
	return 0;
}

static void expect_more(struct child *child)
{
	child_drain(child);
	child_wait(child, 3);
}

static void end_well(struct child *child)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), 0);
}

TEST(wrong, a_dead_daemon_takes_nothing_away)
{
	struct child child;

	both_start();
	child = child_start(pin_repeatedly);
	child_wait(&child, 2);
	for (unsigned i = 0; i < 2; i++) {
		kill(status_daemon(both_device(i)), SIGKILL);
		ck_assert(service_log_wait(&both_service, "daemon was ended by signal 9 ", (int)i + 1, 60));
		expect_more(&child);
	}
	end_well(&child);
	end_of_both();
}

/* Has nothing on the devices while it waits for an order. */
static int reach_on_order(int progress, int orders)
{
	struct pinned kept[2], shared[2], later[2];
	const int rounds = 4;

	open_side(0);
	kept[0] = pin(ALLOCATED, 0, BYTES);
	open_side(1);
	kept[1] = pin(REGISTERED, 1, BYTES);
	address_of(&kept[1], 1);
	for (int i = 0; i < 2; i++) {
		shared[i] = pin(SHARED, i, BYTES);
		address_of(&shared[i], i);
	}
	for (int round = 0; round < rounds; round++) {
		report(progress);
		ordered(orders, true);
		for (int i = 0; i < 2; i++) {
			later[i] = pin(ALLOCATED, i, 70 * MIB);
			if (!is_reached_by_both(&kept[i], (uint32_t)round) ||
				!is_reached_by_both(&shared[i], (uint32_t)round) ||
				!is_reached_by_both(&later[i], (uint32_t)round) || !works(i, (uint32_t)round))
				return 2;
			ck_cuda(unpin(&later[i]));
		}
	}
	for (int i = 0; i < 2; i++) {
		ck_cuda(unpin(&kept[i]));
		ck_cuda(unpin(&shared[i]));
	}
	report(progress);
	ordered(orders, true);
	return 0;
}

static struct child start_waiting(void)
{
	struct child child = child_start(reach_on_order);

	child_wait(&child, 1);
	return child;
}

static void see_rounds(struct child *child, int rounds)
{
	for (int round = 0; round < rounds; round++)
		see_it_work(child);
}

/* A standby has it, too. */
TEST(wrong, another_executor_has_it)
{
	struct child child;

	both_start();
	child = start_waiting();
	for (unsigned i = 0; i < 2; i++) {
		status_replace_active(both_device(i), 1);
		see_rounds(&child, 2);
	}
	end_well(&child);
	end_of_both();
}

TEST(wrong, an_executor_of_its_own_has_it)
{
	struct child child;
	char why[160];

	both_start();
	child = start_waiting();
	for (unsigned i = 0; i < 2; i++) {
		ck_assert(status_isolate(both_device(i), child.pid, why, sizeof(why)));
		ck_assert_str_eq(why, "");
	}
	see_rounds(&child, 4);
	end_well(&child);
	end_of_both();
}

/* All that serves device 0 goes: what was pinned for it stays where device 1 has it. */
static int outlast(int progress, int orders)
{
	struct pinned theirs, ours;
	CUdeviceptr there;
	CUresult r = CUDA_SUCCESS;
	size_t free_bytes, total;

	both_open();
	theirs = pin(ALLOCATED, 0, BYTES);
	there = address_of(&theirs, 1);
	report(progress);
	ordered(orders, true);
	while (r == CUDA_SUCCESS) {
		use(0);
		r = cuMemGetInfo_v2(&free_bytes, &total);
	}
	use(1);
	ck_cuda(mix(1, there, sides[1].in, 3, sides[1].stream));
	ck_cuda(cuStreamSynchronize(sides[1].stream));
	for (uint32_t i = 0; i < WORDS; i++)
		ck_assert_uint_eq(theirs.words[i], mixed(i * 4, 3, i));
	ours = pin(ALLOCATED, 1, 80 * MIB);
	ck_assert(is_reached(&ours, 1, 5));
	return works(1, 4) ? 0 : 2;
}

TEST(wrong, it_stays_when_its_device_is_lost)
{
	struct child child;

	both_start();
	child = child_start(outlast);
	child_wait(&child, 1);
	kill(status_holder(both_device(0)), SIGKILL);
	ck_assert(service_log_wait(&both_service, "device 0 is not served at the moment", 1, 60));
	end_well(&child);
}

/*
 * What an operator orders
 */

static bool order(const struct service *device, const char *command, const struct wire_names *names,
	char *ret_text, size_t size)
{
	*ret_text = '\0';
	return !ask_with(device->socket, command, names, 60, NULL, ret_text, size);
}

/* @what: behind the session; NULL: nothing */
static bool order_session(
	unsigned number, pid_t pid, const char *command, const char *what, char *ret_text, size_t size)
{
	char session[32];
	const char *const words[] = {session, what};
	const struct wire_names names = {words, what ? 2 : 1};

	snprintf(session, sizeof(session), "%lld", status_session(both_device(number), pid));
	return order(both_device(number), command, &names, ret_text, size);
}

static void expect_done(const char *command, unsigned number)
{
	const struct wire_names nothing = {0};
	char text[1400];

	ck_assert_msg(order(both_device(number), command, &nothing, text, sizeof(text)), "%s", text);
}

/* Device memory goes to the host, and comes back with the next call. */
TEST(orders, a_program_that_shares_it_is_suspended)
{
	struct child child;
	char text[400];

	both_start();
	child = start_waiting();
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_msg(
			order_session(i % 2, child.pid, "suspend", NULL, text, sizeof(text)), "%s", text);
		if (i >= 2)
			ck_assert_msg(
				order_session(1 - i % 2, child.pid, "suspend", NULL, text, sizeof(text)),
				"%s", text);
		see_rounds(&child, 1);
	}
	end_well(&child);
	end_of_both();
}

/* Pinning waits for a drained device. */
TEST(orders, a_device_that_has_it_is_drained)
{
	struct child child;

	both_start();
	child = start_waiting();
	for (unsigned i = 0; i < 4; i++) {
		expect_done("drain", i % 2);
		child_order(&child);
		pass_time(50);
		ck_assert(!child_progresses(&child));
		expect_done("refill", i % 2);
		child_wait(&child, 1);
	}
	end_well(&child);
	end_of_both();
}

/* The owner goes to a third device, and comes back; so does the other one. */
TEST(orders, a_program_that_shares_it_moves)
{
	struct child child;
	char text[400];

	setenv("FRMPS_HOST_DEVICES", "3", 1);
	ck_assert(service_start_configured(&both_service, "devices = all\n"));
	child = start_waiting();
	for (unsigned i = 0; i < 2; i++) {
		char home[2] = {(char)('0' + i), '\0'};

		ck_assert_msg(order_session(i, child.pid, "migrate", "2", text, sizeof(text)), "%s", text);
		see_rounds(&child, 1);
		/* Where the other session has its memory it has no place. */
		ck_assert(!order_session(2, child.pid, "migrate", i ? "0" : "1", text, sizeof(text)));
		ck_assert_msg(strstr(text, "taken there for its own pinned memory"), "%s", text);
		ck_assert_msg(order_session(2, child.pid, "migrate", home, text, sizeof(text)), "%s", text);
		see_rounds(&child, 1);
	}
	end_well(&child);
	for (unsigned i = 0; i < 3; i++) {
		status_await_no_sessions(both_device(i));
		ck_assert_int_eq(status_counter(both_device(i), "sessions_rejected"), 0);
	}
}

int main(void)
{
	Suite *suite = suite_create("unified");
	TCase *tests = suite_case(suite, "reach");

	tcase_add_checked_fixture(tests, NULL, both_stop);
	suite_add(tests, "reach");
	tests = suite_case(suite, "count");
	tcase_add_checked_fixture(tests, NULL, both_stop);
	suite_add(tests, "count");
	tests = suite_case(suite, "wrong");
	tcase_add_checked_fixture(tests, NULL, both_stop);
	suite_add(tests, "wrong");
	tests = suite_case(suite, "orders");
	tcase_add_checked_fixture(tests, NULL, both_stop);
	suite_add(tests, "orders");
	return suite_run(suite);
}
