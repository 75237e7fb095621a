// Memory of one device on another device of the service: imported by descriptor and by handle, by
// programs that work on one device each or on both. Devices are those of the host backend.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	struct side *side = &sides[ordinal];

	ck_cuda(cuInit(0));
	ck_cuda(cuDevicePrimaryCtxRetain(&side->context, ordinal));
	use(ordinal);
	ck_cuda(cuModuleLoadData(&side->module, image));
	ck_cuda(cuStreamCreate(&side->stream, CU_STREAM_NON_BLOCKING));
	side->in = device_words(WORDS, 3 + (uint32_t)ordinal);
	side->out = device_words(WORDS, 0);
	free(image);
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

static int import_file(int unused)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	char byte;
	int fd;

	(void)unused;
	open_one(1);
	pass_fd(ends[1], &fd, false);
	ck_cuda(cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
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

START_TEST(a_descriptor_is_imported_on_another_device)
{
	run_pair(export_file, import_file);
}
END_TEST

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
START_TEST(a_handle_is_opened_on_another_device)
{
	run_pair(export_handle, import_handle);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peers");
	TCase *tests = suite_case(suite, "programs");

	tcase_add_checked_fixture(tests, NULL, both_stop);
	tcase_add_test(tests, a_descriptor_is_imported_on_another_device);
	tcase_add_test(tests, a_handle_is_opened_on_another_device);
	return suite_run(suite);
}
