// Memory of one device on another device of the service: imported by descriptor and by handle, of
// peers in one program, and what is left of it when something fails. Devices are those of the host
// backend.

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

/* Between exporter and importer. */
static int ends[2];

static void open_one(int ordinal)
{
	close(ends[1 - ordinal]);
	open_side(ordinal);
}

static CUmemAllocationProp properties_of(int ordinal)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}};
}

/* Maps a handle in the current context. */
static CUdeviceptr map_here(CUmemGenericAllocationHandle handle, int ordinal)
{
	const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr address;

	ck_cuda(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
	ck_cuda(cuMemMap(address, BYTES, 0, handle, 0));
	ck_cuda(cuMemSetAccess(address, BYTES, &access, 1));
	return address;
}

static void unmap_here(CUdeviceptr address)
{
	ck_cuda(cuMemUnmap(address, BYTES));
	ck_cuda(cuMemAddressFree(address, BYTES));
}

static void fill(CUdeviceptr words, uint32_t factor)
{
	uint32_t *content = malloc(WORDS * 4);

	for (uint32_t i = 0; i < WORDS; i++)
		content[i] = i * factor;
	ck_cuda(cuMemcpyHtoD_v2(words, content, WORDS * 4));
	ck_cuda(cuCtxSynchronize());
	free(content);
}

/*
 * Two programs, each on a device of its own
 */

/* Waits for the importer's byte. */
static void await_other(void)
{
	char byte;

	ck_assert_int_eq(recv(ends[0], &byte, 1, 0), 1);
}

static void tell_other(void)
{
	ck_assert_int_eq(send(ends[1], "", 1, 0), 1);
}

/* On device 0. The importer overwrites what it has mixed. */
static int export_file(int unused)
{
	const CUmemAllocationProp properties = properties_of(0);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int fd;

	(void)unused;
	open_one(0);
	ck_cuda(cuMemCreate(&handle, BYTES, &properties, 0));
	address = map_here(handle, 0);
	fill(address, 7);
	ck_cuda(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	pass_fd(ends[0], &fd, true);
	await_other();
	ck_assert(are_mixed(address, 7, 3));
	/* What this program does now is seen there. */
	fill(address, 9);
	ck_assert_int_eq(send(ends[0], "", 1, 0), 1);
	unmap_here(address);
	ck_cuda(cuMemRelease(handle));
	return works(0, 4) ? 0 : 2;
}

/* The memory of a descriptor that the other one passes. */
static CUmemGenericAllocationHandle import_passed(void)
{
	CUmemGenericAllocationHandle handle;
	int fd;

	pass_fd(ends[1], &fd, false);
	ck_cuda(cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	return handle;
}

static int import_file(int unused)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	char byte;

	(void)unused;
	open_one(1);
	handle = import_passed();
	address = map_here(handle, 1);
	ck_assert(mix(1, address, address, 3, NULL) == CUDA_SUCCESS);
	ck_cuda(cuCtxSynchronize());
	ck_assert(are_mixed(address, 7, 3));
	tell_other();
	ck_assert_int_eq(recv(ends[1], &byte, 1, 0), 1);
	/* The other program ends meanwhile: what is mapped stays. */
	ck_cuda(mix(1, sides[1].out, address, 5, NULL));
	ck_assert(are_mixed(sides[1].out, 9, 5));
	unmap_here(address);
	ck_cuda(cuMemRelease(handle));
	return works(1, 6) ? 0 : 2;
}

static void run_pair(int (*exporter)(int), int (*importer)(int))
{
	pid_t pids[2];

	both_start();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	pids[0] = spawn(exporter, 0);
	pids[1] = spawn(importer, 0);
	for (int i = 0; i < 2; i++)
		close(ends[i]);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(exit_status(pids[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		status_await_no_sessions(both_device(i));
}

TEST(programs, a_descriptor_is_imported_on_another_device)
{
	run_pair(export_file, import_file);
}

/* Pinned memory with a handle, as NCCL makes it, exports it in a thread without a context, and maps
 * it where it was imported. */
static const CUmemAllocationProp host_properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};

/* @handle: 0: of new memory */
static uint32_t *map_host_here(CUmemGenericAllocationHandle *handle, int ordinal)
{
	CUmemAllocationProp properties = host_properties;
	CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	size_t granularity;
	CUdeviceptr address;

	ck_cuda(cuDeviceGetAttribute(&properties.location.id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal));
	ck_cuda(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	if (!*handle)
		ck_cuda(cuMemCreate(handle, BYTES, &properties, 0));
	ck_cuda(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
	ck_cuda(cuMemMap(address, BYTES, 0, *handle, 0));
	access.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal};
	ck_cuda(cuMemSetAccess(address, BYTES, &access, 1));
	access.location = properties.location;
	ck_cuda(cuMemSetAccess(address, BYTES, &access, 1));
	return (uint32_t *)(uintptr_t)address;
}

static void free_host_here(uint32_t *words)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)words;
	CUmemGenericAllocationHandle handle;
	size_t bytes;

	ck_cuda(cuMemRetainAllocationHandle(&handle, words));
	ck_cuda(cuMemRelease(handle));
	ck_cuda(cuMemGetAddressRange_v2(NULL, &bytes, address));
	ck_assert_uint_eq(bytes, BYTES);
	ck_cuda(cuMemUnmap(address, bytes));
	ck_cuda(cuMemRelease(handle));
	ck_cuda(cuMemAddressFree(address, bytes));
}

static bool are_words_mixed(const uint32_t *words, uint32_t factor, uint32_t round)
{
	bool are = true;

	for (uint32_t i = 0; are && i < WORDS; i++)
		are = ((volatile const uint32_t *)words)[i] == mixed(i * factor, round, i);
	return are;
}

static void *send_file(void *handle)
{
	int fd;

	ck_cuda(cuMemExportToShareableHandle(
		&fd, *(CUmemGenericAllocationHandle *)handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	pass_fd(ends[0], &fd, true);
	close(fd);
	return NULL;
}

static int export_host_file(int unused)
{
	CUmemGenericAllocationHandle handle = 0;
	CUdeviceptr address;
	pthread_t thread;
	uint32_t *words;

	(void)unused;
	open_one(0);
	words = map_host_here(&handle, 0);
	address = (CUdeviceptr)(uintptr_t)words;
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = i * 7;
	ck_assert_int_eq(pthread_create(&thread, NULL, send_file, &handle), 0);
	pthread_join(thread, NULL);
	await_other();
	ck_assert(are_words_mixed(words, 7, 3));
	ck_cuda(mix(0, address, sides[0].in, 4, NULL));
	ck_cuda(cuCtxSynchronize());
	ck_assert_int_eq(send(ends[0], "", 1, 0), 1);
	free_host_here(words);
	return works(0, 4) ? 0 : 2;
}

static int import_host_file(int unused)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	uint32_t *words;
	char byte;

	(void)unused;
	open_one(1);
	handle = import_passed();
	words = map_host_here(&handle, 1);
	address = (CUdeviceptr)(uintptr_t)words;
	ck_cuda(mix(1, address, address, 3, NULL));
	ck_cuda(cuCtxSynchronize());
	ck_assert(are_words_mixed(words, 7, 3));
	tell_other();
	ck_assert_int_eq(recv(ends[1], &byte, 1, 0), 1);
	ck_assert(are_words_mixed(words, 3, 4));
	free_host_here(words);
	return works(1, 6) ? 0 : 2;
}

TEST(programs, host_memory_is_imported_on_another_device)
{
	run_pair(export_host_file, import_host_file);
}

static int export_handle(int unused)
{
	CUipcMemHandle handle;

	(void)unused;
	open_one(0);
	fill(sides[0].out, 7);
	ck_cuda(cuIpcGetMemHandle(&handle, sides[0].out));
	ck_assert_int_eq(send(ends[0], &handle, sizeof(handle), 0), sizeof(handle));
	await_other();
	ck_assert(are_mixed(sides[0].out, 7, 3));
	return 0;
}

static int import_handle(int unused)
{
	CUipcMemHandle handle;
	CUdeviceptr address;

	(void)unused;
	open_one(1);
	ck_assert_int_eq(recv(ends[1], &handle, sizeof(handle), 0), sizeof(handle));
	ck_cuda(cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_cuda(mix(1, address, address, 3, NULL));
	ck_cuda(cuCtxSynchronize());
	tell_other();
	ck_assert(are_mixed(address, 7, 3));
	ck_cuda(cuIpcCloseMemHandle(address));
	return works(1, 4) ? 0 : 2;
}

/* Both have the first session of their daemon. */
TEST(programs, a_handle_is_opened_on_another_device)
{
	run_pair(export_handle, import_handle);
}

struct offer {
	CUipcMemHandle memory;
	CUipcEventHandle event;
};

/* Records behind a copy that waits for the importer. */
static int export_event(int unused)
{
	struct offer offer;
	CUdeviceptr source;
	CUevent event;
	CUstream stream;
	uint32_t *gate;

	(void)unused;
	open_one(0);
	ck_cuda(cuMemAlloc_v2(&source, WORDS * 4));
	fill(source, 7);
	fill(sides[0].out, 5);
	ck_cuda(cuMemAllocHost_v2((void **)&gate, 4));
	*gate = 0;
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
	ck_cuda(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuMemcpyDtoDAsync_v2(sides[0].out, source, WORDS * 4, stream));
	ck_cuda(cuEventRecord(event, stream));
	ck_cuda(cuIpcGetMemHandle(&offer.memory, sides[0].out));
	ck_cuda(cuIpcGetEventHandle(&offer.event, event));
	ck_assert_int_eq(send(ends[0], &offer, sizeof(offer), 0), sizeof(offer));
	await_other();
	*(volatile uint32_t *)gate = 1;
	await_other();
	ck_assert(are_mixed(sides[0].out, 7, 3));
	return 0;
}

/* @destroys: the event, while the stream waits */
static int import_event(int destroys)
{
	struct offer offer;
	CUdeviceptr address;
	CUstream stream;
	CUevent event;

	open_one(1);
	ck_assert_int_eq(recv(ends[1], &offer, sizeof(offer), 0), sizeof(offer));
	ck_cuda(cuIpcOpenMemHandle_v2(&address, offer.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_cuda(cuIpcOpenEventHandle(&event, offer.event));
	FAILS(cuEventQuery(event), NOT_READY);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamWaitEvent(stream, event, 0));
	ck_cuda(mix(1, address, address, 3, stream));
	FAILS(cuStreamQuery(stream), NOT_READY);
	if (destroys)
		ck_cuda(cuEventDestroy_v2(event));
	tell_other();
	ck_cuda(cuStreamSynchronize(stream));
	if (!destroys)
		ck_cuda(cuEventSynchronize(event));
	tell_other();
	ck_assert(are_mixed(address, 7, 3));
	ck_cuda(cuIpcCloseMemHandle(address));
	return works(1, 4) ? 0 : 2;
}

static int import_and_destroy_event(int unused)
{
	(void)unused;
	return import_event(true);
}

TEST_LOOP(programs, an_event_is_opened_on_another_device, 0, 2)
{
	run_pair(export_event, _i ? import_and_destroy_event : import_event);
}

/*
 * One program on both
 */

static int can(int device, int of)
{
	int is = -1;

	ck_cuda(cuDeviceCanAccessPeer(&is, device, of));
	return is;
}

static int p2p(CUdevice_P2PAttribute attribute)
{
	int value = -1;

	ck_cuda(cuDeviceGetP2PAttribute(&value, attribute, 1, 0));
	return value;
}

/* Device 1 has the memory of device 0 from here on. */
static void enable(void)
{
	use(1);
	ck_cuda(cuCtxEnablePeerAccess(sides[0].context, 0));
}

/* A kernel of device 1 reads and writes memory of device 0. */
static bool reaches(CUdeviceptr words, uint32_t round)
{
	bool good;

	use(0);
	fill(words, round + 1);
	use(1);
	ck_cuda(mix(1, words, words, round, sides[1].stream));
	ck_cuda(cuStreamSynchronize(sides[1].stream));
	use(0);
	good = are_mixed(words, round + 1, round);
	use(1);
	return good;
}

static int ask_about_peers(int unused)
{
	int value;

	(void)unused;
	both_open();
	ck_assert_int_eq(can(0, 1), 1);
	ck_assert_int_eq(can(1, 0), 1);
	ck_assert_int_eq(can(0, 0), 0);
	ck_assert_int_eq(p2p(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED), 1);
	ck_assert_int_eq(p2p(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED), 1);
	ck_assert_int_eq(p2p(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK), 0);
	ck_assert_int_eq(p2p(CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED), 0);
	FAILS(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1),
		INVALID_DEVICE);
	FAILS(cuCtxDisablePeerAccess(sides[0].context), PEER_ACCESS_NOT_ENABLED);
	FAILS(cuCtxEnablePeerAccess(sides[0].context, 1), INVALID_VALUE);
	FAILS(cuCtxEnablePeerAccess(sides[1].context, 0), PEER_ACCESS_UNSUPPORTED);
	enable();
	FAILS(cuCtxEnablePeerAccess(sides[0].context, 0), PEER_ACCESS_ALREADY_ENABLED);
	ck_cuda(cuCtxDisablePeerAccess(sides[0].context));
	FAILS(cuCtxDisablePeerAccess(sides[0].context), PEER_ACCESS_NOT_ENABLED);
	enable();
	ck_assert(works(0, 1) && works(1, 2));
	return 0;
}

TEST(peers, a_program_enables_access_once)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(ask_about_peers, 0)), 0);
}

static int ask_without_peers(int unused)
{
	const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	const CUmemAllocationProp properties = properties_of(0);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	CUmemoryPool pool;

	(void)unused;
	both_open();
	ck_assert_int_eq(can(1, 0), 0);
	ck_assert_int_eq(p2p(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED), 0);
	FAILS(cuCtxEnablePeerAccess(sides[0].context, 0), PEER_ACCESS_UNSUPPORTED);
	ck_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
	FAILS(cuMemPoolSetAccess(pool, &access, 1), INVALID_DEVICE);
	use(0);
	ck_cuda(cuMemCreate(&handle, BYTES, &properties, 0));
	address = map_here(handle, 0);
	FAILS(cuMemSetAccess(address, BYTES, &access, 1), INVALID_DEVICE);
	return 0;
}

TEST(peers, devices_that_are_no_peers_say_so)
{
	setenv("FRMPS_HOST_PEERS", "none", 1);
	both_start();
	ck_assert_int_eq(exit_status(spawn(ask_without_peers, 0)), 0);
}

/* What there is, what comes later, small and large; what is freed goes on both. */
static int reach_all(int unused)
{
	CUdeviceptr later[3];
	CUmemoryPool pool;

	(void)unused;
	both_open();
	enable();
	ck_assert(reaches(sides[0].out, 1));
	for (uint32_t round = 0; round < 4; round++) {
		use(0);
		ck_cuda(cuMemAlloc_v2(&later[0], WORDS * 4));
		ck_cuda(cuMemAlloc_v2(&later[1], 80 * MIB));
		ck_cuda(cuMemAllocAsync(&later[2], 3 * MIB, sides[0].stream));
		ck_cuda(cuStreamSynchronize(sides[0].stream));
		for (uint32_t i = 0; i < 3; i++)
			ck_assert(reaches(later[i], 3 * round + i));
		ck_assert(reaches(later[1] + 80 * MIB - WORDS * 4, 99));
		ck_cuda(cuMemFreeAsync(later[2], sides[0].stream));
		for (int i = 0; i < 2; i++)
			ck_cuda(cuMemFree_v2(later[i]));
		use(0);
		ck_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
		ck_cuda(cuMemPoolTrimTo(pool, 0));
	}
	/* And the other way. */
	use(0);
	ck_cuda(cuCtxEnablePeerAccess(sides[1].context, 0));
	ck_cuda(mix(0, sides[1].out, sides[1].in, 7, sides[0].stream));
	ck_cuda(cuStreamSynchronize(sides[0].stream));
	use(1);
	return are_mixed(sides[1].out, 4, 7) && works(0, 8) && works(1, 9) ? 0 : 2;
}

/* 1: two logical devices of one. */
TEST_LOOP(peers, kernels_reach_the_memory_of_the_other_device, 0, 2)
{
	if (_i)
		ck_assert(service_start_configured(&both_service, "devices = 0,0\n"));
	else
		both_start();
	ck_assert_int_eq(exit_status(spawn(reach_all, 0)), 0);
	for (unsigned i = 0; i < 2; i++)
		status_await_no_sessions(both_device(i));
	status_await_no_memory(both_device(0));
}

/* The copies of a device that reaches both sides need no memory of the host. */
static int copy_between(int unused)
{
	size_t bytes = 20 * MIB + 12;
	uint8_t *expected = malloc(bytes), *found = malloc(bytes);
	CUdeviceptr p[2];

	(void)unused;
	both_open();
	enable();
	for (int i = 0; i < 2; i++) {
		use(i);
		ck_cuda(cuMemAlloc_v2(&p[i], bytes));
	}
	for (int way = 0; way < 4; way++) {
		CUdeviceptr to = p[way % 2], from = p[1 - way % 2];

		for (size_t i = 0; i < bytes; i++)
			expected[i] = (uint8_t)(i * 31 + (size_t)way + (i >> 12));
		ck_cuda(cuMemcpyHtoD_v2(from, expected, bytes));
		ck_cuda(cuMemsetD8_v2(to, 0, bytes));
		use(1);
		if (way < 2)
			ck_cuda(cuMemcpyDtoDAsync_v2(to, from, bytes, sides[1].stream));
		else
			ck_cuda(cuMemcpyDtoD_v2(to, from, bytes));
		if (way < 2)
			ck_cuda(cuStreamSynchronize(sides[1].stream));
		ck_cuda(cuMemcpyDtoH_v2(found, to, bytes));
		ck_assert_int_eq(memcmp(found, expected, bytes), 0);
		ck_cuda(cuMemsetD8Async(p[0], 0x5a, bytes, sides[1].stream));
		ck_cuda(cuStreamSynchronize(sides[1].stream));
		ck_cuda(cuMemcpyDtoH_v2(found, p[0], bytes));
		for (size_t i = 0; i < bytes; i += 4093)
			ck_assert_uint_eq(found[i], 0x5a);
	}
	ck_assert_int_eq((int)status_number(both_device(1), getpid(), "host_bytes"), 0);
	return 0;
}

TEST(peers, copies_go_straight)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(copy_between, 0)), 0);
}

/* 0: addresses of the memory's device; 1: of the other one, as libraries map what they import; 2: a
 * range of many gigabytes. */
static int map_for_both(int kind)
{
	const CUmemAllocationProp properties = properties_of(0);
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = kind == 1 ? 0 : 1},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	const size_t bytes = kind == 2 ? (size_t)20 << 30 : BYTES;
	CUmemGenericAllocationHandle handle;
	unsigned long long flags;
	CUdeviceptr address;

	both_open();
	use(kind == 1);
	ck_cuda(cuMemAddressReserve(&address, bytes, 0, 0, 0));
	for (uint32_t round = 0; round < 3; round++) {
		CUdeviceptr at = address + bytes - BYTES;

		ck_cuda(cuMemCreate(&handle, BYTES, &properties, 0));
		ck_cuda(cuMemMap(at, BYTES, 0, handle, 0));
		ck_cuda(cuMemRelease(handle));
		ck_cuda(cuMemGetAccess(&flags, &access.location, at));
		ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
		access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		ck_cuda(cuMemSetAccess(at, BYTES, &access, 1));
		ck_cuda(cuMemGetAccess(&flags, &access.location, at));
		ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		ck_assert(reaches(at, round));
		access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
		if (round != 1)
			ck_cuda(cuMemSetAccess(at, BYTES, &access, 1));
		ck_cuda(cuMemUnmap(at, BYTES));
	}
	ck_cuda(cuMemAddressFree(address, bytes));
	return works(0, 3) && works(1, 4) ? 0 : 2;
}

TEST_LOOP(peers, mapped_memory_is_for_both, 0, 3)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(map_for_both, _i)), 0);
}

/* A graph of one device whose nodes use the other one's memory, as captured and with the copy to
 * there first. */
static int run_graph(int unused)
{
	CUgraphExec exec;
	CUgraph graph;

	(void)unused;
	both_open();
	enable();
	for (uint32_t round = 0; round < 2; round++) {
		CUstream stream = sides[1].stream;

		use(0);
		fill(sides[0].in, 6);
		fill(sides[0].out, 0);
		use(1);
		ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		if (round)
			ck_cuda(cuMemcpyDtoDAsync_v2(sides[0].out, sides[1].in, WORDS * 4, stream));
		ck_cuda(cuMemcpyDtoDAsync_v2(sides[1].out, sides[0].in, WORDS * 4, stream));
		ck_cuda(mix(1, sides[1].out, sides[0].in, 9, stream));
		ck_cuda(cuMemcpyDtoDAsync_v2(sides[0].out, sides[1].out, WORDS * 4, stream));
		ck_cuda(cuStreamEndCapture(stream, &graph));
		ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
		ck_cuda(cuGraphLaunch(exec, stream));
		ck_cuda(cuStreamSynchronize(stream));
		ck_cuda(cuGraphExecDestroy(exec));
		ck_cuda(cuGraphDestroy(graph));
		use(0);
		ck_assert(are_mixed(sides[0].out, 6, 9));
	}
	return 0;
}

TEST(peers, a_graph_reaches_the_memory_of_the_other_device)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(run_graph, 0)), 0);
}

static int share_pool(int unused)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemLocation own = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
	CUmemAccess_flags flags;
	CUmemoryPool pool;
	CUdeviceptr p;

	(void)unused;
	both_open();
	ck_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
	ck_cuda(cuMemPoolGetAccess(&flags, pool, &own));
	ck_assert_int_eq((int)flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_cuda(cuMemPoolGetAccess(&flags, pool, &access.location));
	ck_assert_int_eq((int)flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	ck_cuda(cuMemPoolSetAccess(pool, &access, 1));
	ck_cuda(cuMemPoolGetAccess(&flags, pool, &access.location));
	ck_assert_int_eq((int)flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	use(0);
	ck_cuda(cuMemAllocFromPoolAsync(&p, 5 * MIB, pool, sides[0].stream));
	ck_cuda(cuStreamSynchronize(sides[0].stream));
	ck_assert(reaches(p, 5));
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	ck_cuda(cuMemPoolSetAccess(pool, &access, 1));
	ck_cuda(cuMemPoolGetAccess(&flags, pool, &access.location));
	ck_assert_int_eq((int)flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	access.location = own;
	FAILS(cuMemPoolSetAccess(pool, &access, 1), INVALID_DEVICE);
	return 0;
}

TEST(peers, a_pool_is_for_both)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(share_pool, 0)), 0);
}

/*
 * What goes wrong
 */

static int reach_repeatedly(int progress, int orders)
{
	CUdeviceptr p;

	both_open();
	enable();
	for (uint32_t round = 0; !ordered(orders, false); round++) {
		use(0);
		ck_cuda(cuMemAlloc_v2(&p, 70 * MIB));
		if (!reaches(p, round) || !reaches(sides[0].out, round) || !works(0, round) ||
			!works(1, round))
			return 2;
		use(0);
		ck_cuda(cuMemFree_v2(p));
		report(progress);
	}
	return 0;
}

static struct child start_reaching(void)
{
	struct child child;

	both_start();
	child = child_start(reach_repeatedly);
	child_wait(&child, 2);
	return child;
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

/* Has nothing on the devices while it waits for an order. */
static int reach_on_order(int progress, int orders)
{
	both_open();
	enable();
	for (uint32_t round = 0; round < 3; round++) {
		report(progress);
		ordered(orders, true);
		if (!reaches(sides[0].out, round) || !works(0, round) || !works(1, round))
			return 2;
	}
	return 0;
}

static struct child start_waiting(void)
{
	struct child child;

	both_start();
	child = child_start(reach_on_order);
	child_wait(&child, 1);
	return child;
}

/* A standby has it, too. */
TEST(wrong, another_executor_has_the_memory)
{
	struct child child = start_waiting();

	for (unsigned i = 0; i < 2; i++) {
		status_replace_active(both_device(i), 1);
		child_order(&child);
		child_wait(&child, 1);
	}
	end_well(&child);
}

TEST(wrong, an_executor_of_its_own_has_the_memory)
{
	struct child child = start_waiting();
	char why[160];

	for (unsigned i = 0; i < 2; i++) {
		ck_assert(status_isolate(both_device(i), child.pid, why, sizeof(why)));
		ck_assert_str_eq(why, "");
	}
	for (int round = 0; round < 2; round++) {
		child_order(&child);
		child_wait(&child, 1);
	}
	end_well(&child);
}

TEST(wrong, a_dead_daemon_takes_nothing_away)
{
	struct child child = start_reaching();

	for (unsigned i = 0; i < 2; i++) {
		kill(status_daemon(both_device(i)), SIGKILL);
		ck_assert(service_log_wait(&both_service, "daemon was ended by signal 9 ", (int)i + 1, 60));
		expect_more(&child);
	}
	end_well(&child);
}

/* All that serves device 0 goes: its memory stays where device 1 has it. */
static int outlast(int progress, int orders)
{
	size_t free_bytes, total;
	CUresult r = CUDA_SUCCESS;

	both_open();
	enable();
	use(0);
	fill(sides[0].in, 5);
	report(progress);
	ordered(orders, true);
	while (r == CUDA_SUCCESS) {
		use(0);
		r = cuMemGetInfo_v2(&free_bytes, &total);
	}
	use(1);
	ck_cuda(mix(1, sides[1].out, sides[0].in, 3, NULL));
	ck_assert(are_mixed(sides[1].out, 5, 3));
	return works(1, 4) ? 0 : 2;
}

TEST(wrong, memory_of_a_lost_device_stays)
{
	struct child child;

	both_start();
	child = child_start(outlast);
	child_wait(&child, 1);
	kill(status_holder(both_device(0)), SIGKILL);
	ck_assert(service_log_wait(&both_service, "device 0 is not served at the moment", 1, 60));
	end_well(&child);
}

/* A fault on one device is that device's, whoever has whose memory. */
static int fault_beside(int faulty)
{
	int other = 1 - faulty;

	both_open();
	enable();
	use(0);
	fill(sides[0].in, 5);
	use(faulty);
	ck_cuda(cuLaunchKernel(
		function_of(faulty, "crash_trap"), 1, 1, 1, 1, 1, 1, 0, sides[faulty].stream, NULL, NULL));
	FAILS(cuCtxSynchronize(), LAUNCH_FAILED);
	use(other);
	for (uint32_t round = 0; round < 5; round++) {
		CUdeviceptr later;

		ck_cuda(mix(other, sides[other].out, sides[0].in, round, NULL));
		ck_assert(are_mixed(sides[other].out, 5, round));
		ck_cuda(cuMemAlloc_v2(&later, 80 * MIB));
		ck_cuda(cuMemFree_v2(later));
	}
	return 0;
}

TEST_LOOP(wrong, a_fault_leaves_the_peer, 0, 2)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(fault_beside, _i)), 0);
	status_await_faults(both_device((unsigned)_i), 1);
	ck_assert_int_eq(status_counter(both_device(1 - (unsigned)_i), "faults"), 0);
}

/* Memory that two devices have stays where it is. */
TEST(wrong, what_is_shared_is_not_suspended)
{
	struct child child = start_waiting();
	char session[32], text[400];

	for (unsigned i = 0; i < 2; i++) {
		const char *const arguments[] = {session};

		snprintf(session, sizeof(session), "%lld", status_session(both_device(i), child.pid));
		ck_assert_int_ne(ask_with(both_device(i)->socket, "suspend",
					 &(struct wire_names){arguments, 1}, 60, NULL, text, sizeof(text)),
			0);
		ck_assert_ptr_nonnull(strstr(text, "shares device memory"));
	}
	for (int round = 0; round < 2; round++) {
		child_order(&child);
		child_wait(&child, 1);
	}
	end_well(&child);
}

/* Programs of a user share an address space on each device: all have room for both's memory. */
TEST(wrong, many_programs_share_at_a_time)
{
	enum { COUNT = 6 };
	struct child children[COUNT];

	both_start();
	for (int i = 0; i < COUNT; i++)
		children[i] = child_start(reach_repeatedly);
	for (int i = 0; i < COUNT; i++)
		child_wait(&children[i], 2);
	for (int i = 0; i < COUNT; i++)
		end_well(&children[i]);
	for (unsigned i = 0; i < 2; i++)
		status_await_no_sessions(both_device(i));
}

int main(void)
{
	Suite *suite = suite_create("peers");
	TCase *tests = suite_case(suite, "programs");

	tcase_add_checked_fixture(tests, NULL, both_stop);
	suite_add(tests, "programs");
	tests = suite_case(suite, "peers");
	tcase_add_checked_fixture(tests, NULL, both_stop);
	suite_add(tests, "peers");
	tests = suite_case(suite, "wrong");
	tcase_add_checked_fixture(tests, NULL, both_stop);
	suite_add(tests, "wrong");
	return suite_run(suite);
}
