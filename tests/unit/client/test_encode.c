// Kernel launches through the entry points: what is refused at the call, and the bytes of the
// records of the rest.

#include <string.h>

#include "client/entry/api.h"
#include "client/state/function.h"
#include "client/submit/encode.h"
#include "tests/lib/suite.h"
#include "tests/unit/client/fake_service.h"

static CUmodule module;
static CUfunction add, plain, odd;

static void load_module(void)
{
	static const char ptx[] = ".version 8.0";

	ck_assert_int_eq(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
	ck_assert_int_eq(cuModuleGetFunction(&add, module, "add"), CUDA_SUCCESS);
	ck_assert_int_eq(cuModuleGetFunction(&plain, module, "plain"), CUDA_SUCCESS);
	ck_assert_int_eq(cuModuleGetFunction(&odd, module, "odd"), CUDA_SUCCESS);
}

static const struct frmps_launch *record(void)
{
	return (const struct frmps_launch *)fake.body;
}

/* The argument bytes of the latest record, and that nothing was written behind them. */
static const uint8_t *arguments(void)
{
	size_t at = sizeof(struct frmps_launch) +
		    record()->attribute_count * sizeof(struct frmps_launch_attribute);

	ck_assert_uint_eq(fake.body_bytes, at + record()->argument_bytes);
	ck_assert_uint_eq(fake.body[fake.body_bytes], 0xee);
	return fake.body + at;
}

static CUresult launch_dims(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
	unsigned bz, unsigned shared)
{
	return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, NULL, NULL, NULL);
}

static CUresult launch_extra(CUfunction f, void **extra)
{
	return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
}

TEST(encode, params_with_gap)
{
	uint64_t a = 0x1122334455667788, c = 0x99aabbccddeeff00;
	uint32_t b = 0xcafef00d, zero = 0;
	void *params[] = {&a, &b, &c};
	const uint8_t *at;

	ck_assert_int_eq(
		cuLaunchKernel(add, 1, 2, 3, 4, 5, 6, 7, CU_STREAM_LEGACY, params, NULL), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.head.op, FRMPS_OP_LAUNCH);
	ck_assert_uint_eq(fake.head.flags, 0);
	ck_assert_uint_eq(record()->function, ((struct client_function *)add)->id);
	ck_assert_uint_eq(record()->grid_x * 100 + record()->grid_y * 10 + record()->grid_z, 123);
	ck_assert_uint_eq(record()->block_x * 100 + record()->block_y * 10 + record()->block_z, 456);
	ck_assert_uint_eq(record()->shared_bytes, 7);
	ck_assert_uint_eq(record()->argument_bytes, 24);
	ck_assert_uint_eq(record()->attribute_count, 0);
	at = arguments();
	ck_assert_mem_eq(at, &a, 8);
	ck_assert_mem_eq(at + 8, &b, 4);
	ck_assert_mem_eq(at + 12, &zero, 4);
	ck_assert_mem_eq(at + 16, &c, 8);
	ck_assert_uint_eq(fake.launches, 1);
}

TEST(encode, odd_params)
{
	static const char bytes[] = "abcdefghijklmnopqrst";
	void *params[] = {(void *)bytes, (void *)(bytes + 3), (void *)(bytes + 19)};

	ck_assert_int_eq(cuLaunchKernel(odd, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
	ck_assert_uint_eq(record()->argument_bytes, 20);
	ck_assert_mem_eq(arguments(), bytes, 20);
}

TEST(encode, params_missing)
{
	uint64_t a = 1;
	void *params[] = {&a, NULL, &a};

	ck_assert_int_eq(launch_dims(add, 1, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake.launches, 0);
	ck_assert_int_eq(launch_dims(plain, 1, 1, 1, 1, 1, 1, 0), CUDA_SUCCESS);
	ck_assert_uint_eq(record()->argument_bytes, 0);
	ck_assert_int_eq(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
	arguments();
}

TEST(encode, extra_buffer)
{
	uint8_t buffer[40];
	size_t size = 24;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, buffer,
		CU_LAUNCH_PARAM_END};
	static const uint8_t zeros[24];

	for (int i = 0; i < 40; ++i)
		buffer[i] = (uint8_t)(i + 1);
	ck_assert_int_eq(launch_extra(add, extra), CUDA_SUCCESS);
	ck_assert_mem_eq(arguments(), buffer, 24);
	size = 40; /* longer: only what the kernel takes */
	ck_assert_int_eq(launch_extra(add, extra), CUDA_SUCCESS);
	ck_assert_mem_eq(arguments(), buffer, 24);
	size = 10; /* shorter: the rest is zero */
	ck_assert_int_eq(launch_extra(add, extra), CUDA_SUCCESS);
	ck_assert_mem_eq(arguments(), buffer, 10);
	ck_assert_mem_eq(arguments() + 10, zeros, 14);
	size = 0;
	ck_assert_int_eq(launch_extra(add, extra), CUDA_SUCCESS);
	ck_assert_mem_eq(arguments(), zeros, 24);
	ck_assert_int_eq(launch_extra(plain, extra), CUDA_SUCCESS);
	arguments();
}

TEST(encode, extra_wrong)
{
	uint64_t a = 1;
	size_t size = 24;
	uint8_t buffer[24] = {0};
	void *params[] = {&a, &a, &a};
	void *no_size[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_END};
	void *no_buffer[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	void *unknown[] = {(void *)3, buffer, CU_LAUNCH_PARAM_END};
	void *nothing[] = {CU_LAUNCH_PARAM_END};
	void *good[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
		CU_LAUNCH_PARAM_END};

	ck_assert_int_eq(launch_extra(add, no_size), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(launch_extra(add, no_buffer), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(launch_extra(plain, no_buffer), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(launch_extra(add, unknown), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(launch_extra(add, nothing), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, good), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake.launches, 0);
	ck_assert_int_eq(launch_extra(plain, nothing), CUDA_SUCCESS);
}

TEST(encode, dimensions)
{
	static const unsigned bad[][6] = {
		{0, 1, 1, 1, 1, 1},
		{1, 0, 1, 1, 1, 1},
		{1, 1, 0, 1, 1, 1},
		{1, 1, 1, 0, 1, 1},
		{1, 1, 1, 1, 0, 1},
		{1, 1, 1, 1, 1, 0},
		{2147483648u, 1, 1, 1, 1, 1},
		{1, 65536, 1, 1, 1, 1},
		{1, 1, 65536, 1, 1, 1},
		{1, 1, 1, 1025, 1, 1},
		{1, 1, 1, 1, 1025, 1},
		{1, 1, 1, 1, 1, 65},
		{1, 1, 1, 1024, 2, 1},
		{1, 1, 1, 1024, 1024, 64},
		{1, 1, 1, 32, 32, 2},
		{4294967295u, 1, 1, 1, 1, 1},
		{1, 1, 1, 4294967295u, 4294967295u, 4294967295u},
	};
	static const unsigned good[][6] = {
		{2147483647, 65535, 65535, 1, 1, 1},
		{1, 1, 1, 1024, 1, 1},
		{1, 1, 1, 1, 1024, 1},
		{1, 1, 1, 16, 1, 64},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i)
		ck_assert_int_eq(launch_dims(plain, bad[i][0], bad[i][1], bad[i][2], bad[i][3], bad[i][4],
					 bad[i][5], 0),
			CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake.launches, 0);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); ++i)
		ck_assert_int_eq(launch_dims(plain, good[i][0], good[i][1], good[i][2], good[i][3],
					 good[i][4], good[i][5], 0),
			CUDA_SUCCESS);
}

/* More threads than the kernel can have: by its registers, or because it was compiled for fewer. */
TEST(encode, kernel_bounds)
{
	CUfunction few, many;
	CUmodule other;

	fake.kernel_threads = 256;
	ck_assert_int_eq(cuModuleLoadData(&other, ".version"), CUDA_SUCCESS);
	ck_assert_int_eq(cuModuleGetFunction(&few, other, "plain"), CUDA_SUCCESS);
	fake.registers = 255;
	ck_assert_int_eq(cuModuleGetFunction(&many, other, "odd"), CUDA_SUCCESS);
	ck_assert_int_eq(launch_dims(few, 1, 1, 1, 256, 1, 1, 0), CUDA_SUCCESS);
	ck_assert_int_eq(launch_dims(few, 1, 1, 1, 257, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(launch_dims(many, 1, 1, 1, 257, 1, 1, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	ck_assert_int_eq(launch_dims(many, 1, 1, 1, 1024, 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
}

/* Its text demands it (.reqntid). */
TEST(encode, blocks_of_one_size)
{
	CUfunction shaped;
	CUmodule other;

	memcpy(fake.only_block, (const uint64_t[]){32, 4, 2}, sizeof(fake.only_block));
	ck_assert_int_eq(cuModuleLoadData(&other, ".version"), CUDA_SUCCESS);
	ck_assert_int_eq(cuModuleGetFunction(&shaped, other, "plain"), CUDA_SUCCESS);
	ck_assert_int_eq(launch_dims(shaped, 1, 1, 1, 256, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(launch_dims(shaped, 1, 1, 1, 32, 2, 4, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(launch_dims(shaped, 1, 1, 1, 32, 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake.launches, 0);
	ck_assert_int_eq(launch_dims(shaped, 1, 1, 1, 32, 4, 2, 0), CUDA_SUCCESS);
	/* Stands for the only size. */
	ck_assert_int_eq(launch_dims(shaped, 1, 1, 1, 1, 1, 1, 0), CUDA_SUCCESS);
	ck_assert_uint_eq(record()->block_x * 100 + record()->block_y * 10 + record()->block_z, 3242);
}

TEST(encode, shared_memory)
{
	ck_assert_int_eq(launch_dims(plain, 1, 1, 1, 1, 1, 1, FAKE_SHARED), CUDA_SUCCESS);
	ck_assert_int_eq(launch_dims(plain, 1, 1, 1, 1, 1, 1, FAKE_SHARED + 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(launch_dims(plain, 1, 1, 1, 1, 1, 1, UINT32_MAX), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000),
		CUDA_SUCCESS);
	ck_assert_int_eq(launch_dims(plain, 1, 1, 1, 1, 1, 1, 100000), CUDA_SUCCESS);
	ck_assert_int_eq(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1000),
		CUDA_SUCCESS);
	ck_assert_int_eq(launch_dims(plain, 1, 1, 1, 1, 1, 1, 1001), CUDA_ERROR_INVALID_VALUE);
}

TEST(encode, handles)
{
	static uint8_t garbage[512];

	ck_assert_int_eq(launch_dims(NULL, 1, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(launch_dims((CUfunction)garbage, 1, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(launch_dims((CUfunction)8, 1, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(
		launch_dims((CUfunction)UINTPTR_MAX, 1, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(
		launch_dims((CUfunction)((char *)plain + 8), 1, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(launch_dims((CUfunction)((char *)plain + (16 << 20)), 1, 1, 1, 1, 1, 1, 0),
		CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(launch_dims((CUfunction)module, 1, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, (CUstream)99, NULL, NULL),
		CUDA_ERROR_INVALID_HANDLE);
	ck_assert_uint_eq(fake.launches, 0);
	ck_assert_int_eq(cuModuleUnload(module), CUDA_SUCCESS);
	ck_assert_int_eq(launch_dims(plain, 1, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
}

TEST(encode, errors_first)
{
	fake.submit_code = CUDA_ERROR_LAUNCH_FAILED;
	ck_assert_int_eq(launch_dims(plain, 1, 1, 1, 1, 1, 1, 0), CUDA_ERROR_LAUNCH_FAILED);
	fake.context_code = CUDA_ERROR_INVALID_CONTEXT;
	ck_assert_int_eq(launch_dims(plain, 0, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_CONTEXT);
	fake.enter_code = CUDA_ERROR_NOT_INITIALIZED;
	ck_assert_int_eq(launch_dims(NULL, 0, 1, 1, 1, 1, 1, 0), CUDA_ERROR_NOT_INITIALIZED);
	ck_assert_uint_eq(fake.launches, 0);
}

TEST(encode, default_streams)
{
	ck_assert_int_eq(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
	ck_assert(!fake.per_thread);
	ck_assert_int_eq(cuLaunchKernel_ptsz(plain, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
	ck_assert(fake.per_thread);
}

static CUresult launch_with(const CUlaunchAttribute *attributes, unsigned count)
{
	uint64_t a = 5;
	uint32_t b = 6;
	void *params[] = {&a, &b, &a};
	CUlaunchConfig config = {.gridDimX = 16,
		.gridDimY = 2,
		.gridDimZ = 2,
		.blockDimX = 32,
		.blockDimY = 1,
		.blockDimZ = 1};

	config.attrs = (CUlaunchAttribute *)attributes;
	config.numAttrs = count;
	return cuLaunchKernelEx(&config, add, params, NULL);
}

/* What a program has left behind the value that counts stays with it. */
TEST(encode, attributes_copied)
{
	static const uint8_t zeros[64];
	CUlaunchAttribute attributes[3] = {{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION},
		{.id = CU_LAUNCH_ATTRIBUTE_IGNORE}, {.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW}};
	const struct frmps_launch_attribute *sent;
	uint64_t a = 5;

	memset(&attributes[0].value, 0x66, sizeof(attributes[0].value));
	attributes[0].value.clusterDim.x = 2;
	attributes[0].value.clusterDim.y = attributes[0].value.clusterDim.z = 1;
	memset(attributes[2].pad, 0x77, sizeof(attributes[2].pad));
	memset(&attributes[2].value, 0x55, sizeof(attributes[2].value));
	attributes[2].value.accessPolicyWindow.num_bytes = 4096;
	attributes[2].value.accessPolicyWindow.hitRatio = 0.5f;
	ck_assert_int_eq(launch_with(attributes, 3), CUDA_SUCCESS);
	ck_assert_uint_eq(record()->attribute_count, 2);
	ck_assert_uint_eq(fake.head.flags, 0);
	sent = (const struct frmps_launch_attribute *)(record() + 1);
	ck_assert_uint_eq(sent[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
	ck_assert_mem_eq(sent[0].value, &attributes[0].value, 12);
	ck_assert_mem_eq(sent[0].value + 12, zeros, 64 - 12);
	ck_assert_uint_eq(sent[1].id, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW);
	ck_assert_uint_eq(sent[1].reserved, 0);
	ck_assert_mem_eq(sent[1].value, &attributes[2].value, 28);
	ck_assert_mem_eq(sent[1].value + 28, zeros, 64 - 28);
	ck_assert_mem_eq(arguments(), &a, 8);
}

TEST(encode, attributes_refused)
{
	static const int ids[] = {-1, 3, 15, 17, 1000};
	CUlaunchAttribute attribute = {0};

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); ++i) {
		attribute.id = (CUlaunchAttributeID)ids[i];
		ck_assert_int_eq(launch_with(&attribute, 1), CUDA_ERROR_INVALID_VALUE);
	}
	attribute.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
	ck_assert_int_eq(launch_with(&attribute, 1), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(launch_with(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuLaunchKernelEx(NULL, plain, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake.launches, 0);
}

TEST(encode, values_of_attributes)
{
	static const struct {
		CUlaunchAttributeID id;
		int value;
		bool good;
	} rows[] = {
		{CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 2, true},
		{CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 3, false},
		{CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, -1, false},
		{CU_LAUNCH_ATTRIBUTE_PRIORITY, 100, true},
		{CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, 1, true},
		{CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, 2, false},
		{CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, -1, false},
		{CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100, true},
		{CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1, false},
	};
	CUlaunchAttribute window = {.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
		const CUlaunchAttribute attribute = {.id = rows[i].id, .value.priority = rows[i].value};

		ck_assert_int_eq(
			launch_with(&attribute, 1), rows[i].good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	}
	window.value.accessPolicyWindow.hitRatio = 1;
	window.value.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
	ck_assert_int_eq(launch_with(&window, 1), CUDA_SUCCESS);
	window.value.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_PERSISTING;
	ck_assert_int_eq(launch_with(&window, 1), CUDA_ERROR_INVALID_VALUE);
	window.value.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_NORMAL;
	window.value.accessPolicyWindow.hitRatio = 1.5f;
	ck_assert_int_eq(launch_with(&window, 1), CUDA_ERROR_INVALID_VALUE);
	window.value.accessPolicyWindow.hitRatio = -0.5f;
	ck_assert_int_eq(launch_with(&window, 1), CUDA_ERROR_INVALID_VALUE);
}

/* Not sent, but recorded behind the launch. */
TEST(encode, attributes_are_events)
{
	static const CUlaunchAttributeID ids[] = {
		CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
	CUlaunchAttribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY}};

	for (unsigned i = 0; i < 2; ++i) {
		attributes[1] = (CUlaunchAttribute){.id = ids[i]};
		ck_assert_int_eq(launch_with(attributes, 2), CUDA_ERROR_INVALID_HANDLE);
		/* Both have event and flags in the same places. */
		attributes[1].value.launchCompletionEvent.event = (CUevent)8;
		attributes[1].value.launchCompletionEvent.flags = CU_EVENT_RECORD_EXTERNAL;
		ck_assert_int_eq(launch_with(attributes, 2), CUDA_ERROR_ILLEGAL_STATE);
		attributes[1].value.launchCompletionEvent.flags = CU_EVENT_RECORD_DEFAULT;
		fake.event_code = CUDA_ERROR_INVALID_HANDLE;
		ck_assert_int_eq(launch_with(attributes, 2), CUDA_ERROR_INVALID_HANDLE);
		ck_assert_uint_eq(fake.launches, i);
		fake.event_code = CUDA_SUCCESS;
		ck_assert_int_eq(launch_with(attributes, 2), CUDA_SUCCESS);
		ck_assert_uint_eq(fake.launches, i + 1);
		ck_assert_uint_eq(fake.records, i + 1);
		ck_assert_uint_eq(record()->attribute_count, 1);
		arguments();
	}
}

START_TEST(attribute_count)
{
	CUlaunchAttribute attributes[2 * FRMPS_ATTRIBUTE_MAX];

	memset(attributes, 0, sizeof(attributes));
	for (unsigned i = 0; i < 2 * FRMPS_ATTRIBUTE_MAX; ++i)
		attributes[i].id = i % 2 ? CU_LAUNCH_ATTRIBUTE_PRIORITY : CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
	attributes[3].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
	ck_assert_int_eq(launch_with(attributes, 2 * FRMPS_ATTRIBUTE_MAX), CUDA_SUCCESS);
	ck_assert_uint_eq(record()->attribute_count, 2);
	arguments();
}
END_TEST

TEST(encode, clusters)
{
	static const struct {
		unsigned x, y, z, large;
		CUresult result;
	} rows[] = {
		{8, 1, 1, 0, CUDA_SUCCESS}, {2, 2, 2, 0, CUDA_SUCCESS},
		{0, 1, 1, 0, CUDA_ERROR_INVALID_CLUSTER_SIZE}, {1, 1, 0, 0, CUDA_ERROR_INVALID_CLUSTER_SIZE},
		{9, 1, 1, 0, CUDA_ERROR_INVALID_CLUSTER_SIZE}, {16, 1, 1, 0, CUDA_ERROR_INVALID_CLUSTER_SIZE},
		{65536, 65536, 0, 0, CUDA_ERROR_INVALID_CLUSTER_SIZE},
		{4294967295u, 4294967295u, 4294967295u, 0, CUDA_ERROR_INVALID_CLUSTER_SIZE},
		{16, 1, 1, 1, CUDA_SUCCESS}, {17, 1, 1, 1, CUDA_ERROR_INVALID_CLUSTER_SIZE},
		{0, 0, 0, 0, CUDA_SUCCESS}, /* none */
		{3, 1, 1, 0, CUDA_ERROR_INVALID_CLUSTER_SIZE},
		{1, 4, 1, 0, CUDA_ERROR_INVALID_CLUSTER_SIZE}, /* not of this grid */
	};
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
		ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
					 (int)rows[i].large),
			CUDA_SUCCESS);
		attribute.value.clusterDim.x = rows[i].x;
		attribute.value.clusterDim.y = rows[i].y;
		attribute.value.clusterDim.z = rows[i].z;
		ck_assert_int_eq(launch_with(&attribute, 1), rows[i].result);
	}
}

/* A kernel's own size, the launch's, a preferred one: they have to fit each other and the grid. */
TEST(encode, clusters_of_a_kernel)
{
	struct client_function *function = function_find(add);
	CUlaunchAttribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION},
		{.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION}};

	attributes[0].value.clusterDim.x = 2;
	attributes[0].value.clusterDim.y = attributes[0].value.clusterDim.z = 1;
	attributes[1].value.preferredClusterDim.x = 4;
	attributes[1].value.preferredClusterDim.y = attributes[1].value.preferredClusterDim.z = 1;
	ck_assert_int_eq(launch_with(attributes, 2), CUDA_SUCCESS);
	ck_assert_int_eq(launch_with(&attributes[1], 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	attributes[1].value.preferredClusterDim.x = 16; /* more than a device has */
	ck_assert_int_eq(launch_with(attributes, 2), CUDA_SUCCESS);
	attributes[1].value.preferredClusterDim.x = 3;
	ck_assert_int_eq(launch_with(attributes, 2), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	attributes[1].value.preferredClusterDim.x = 6; /* not of this grid */
	ck_assert_int_eq(launch_with(attributes, 2), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	attributes[1].value.preferredClusterDim.x = 4;
	attributes[1].value.preferredClusterDim.y = 0;
	ck_assert_int_eq(launch_with(attributes, 2), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	function->attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] = 1;
	ck_assert_int_eq(launch_with(NULL, 0), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	ck_assert_int_eq(launch_with(attributes, 1), CUDA_SUCCESS);
	function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = 4;
	ck_assert_int_eq(launch_with(NULL, 0), CUDA_ERROR_INVALID_CLUSTER_SIZE); /* of no height */
	function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] = 1;
	function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] = 1;
	ck_assert_int_eq(launch_with(NULL, 0), CUDA_SUCCESS);
	ck_assert_int_eq(launch_with(attributes, 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = 5;
	ck_assert_int_eq(launch_with(NULL, 0), CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

/* Its text demands it (.maxclusterrank). A permission for more than other devices have changes
 * nothing, and a preferred size may be larger. */
TEST(encode, clusters_of_few_blocks)
{
	struct client_function *function = function_find(add);
	CUlaunchAttribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION},
		{.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION}};
	int allowed;

	attributes[0].value.clusterDim.x = 8;
	attributes[0].value.clusterDim.y = attributes[0].value.clusterDim.z = 1;
	attributes[1].value.preferredClusterDim = attributes[0].value.preferredClusterDim;
	ck_assert_int_eq(launch_with(attributes, 1), CUDA_SUCCESS);
	function->max_cluster = 4;
	ck_assert_int_eq(launch_with(attributes, 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	/* Any number but 0 is a yes. */
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 2),
		CUDA_SUCCESS);
	ck_assert_int_eq(
		cuFuncGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, add),
		CUDA_SUCCESS);
	ck_assert_int_eq(allowed, 1);
	ck_assert_int_eq(launch_with(attributes, 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	attributes[0].value.clusterDim.x = 4;
	ck_assert_int_eq(launch_with(attributes, 2), CUDA_SUCCESS);
	ck_assert_uint_eq(record()->attribute_count, 2);
	attributes[0].value.clusterDim.x = 0;
	attributes[0].value.clusterDim.y = attributes[0].value.clusterDim.z = 0;
	ck_assert_int_eq(launch_with(attributes, 1), CUDA_SUCCESS);
	ck_assert_uint_eq(record()->attribute_count, 0);
}

/* The grid has whole clusters, whatever its size. */
TEST(encode, grids_of_clusters)
{
	struct client_function *function = function_find(add);

	function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = 3;
	function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] = 1;
	function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] = 1;
	ck_assert_int_eq(launch_with(NULL, 0), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	function->counts_clusters = true;
	ck_assert_int_eq(launch_with(NULL, 0), CUDA_SUCCESS);
}

/* The launch's size of clusters has to be there for a preferred one. */
TEST(encode, a_preferred_cluster_goes_with_the_launchs)
{
	struct client_function *function = function_find(add);
	CUlaunchAttribute preferred = {.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION};

	for (int i = 0; i < 3; i++)
		function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i] = 1;
	preferred.value.preferredClusterDim.x = 2;
	preferred.value.preferredClusterDim.y = preferred.value.preferredClusterDim.z = 1;
	ck_assert_int_eq(launch_with(NULL, 0), CUDA_SUCCESS);
	ck_assert_int_eq(launch_with(&preferred, 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

/* Its attributes may come later. */
TEST(encode, a_node_may_be_without_the_clusters_that_its_kernel_wants)
{
	struct client_function *function = function_find(plain);
	struct launch launch = {.function = function, .grid = {1, 1, 1}, .block = {1, 1, 1}};

	function->attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] = 1;
	ck_assert_int_eq(encode_check(&launch), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	launch.is_node = true;
	ck_assert_int_eq(encode_check(&launch), CUDA_SUCCESS);
}

TEST(encode, a_compiled_cluster_size_stays)
{
	struct client_function *function = function_find(add);

	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2), CUDA_SUCCESS);
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 0), CUDA_SUCCESS);
	function->has_cluster = true;
	function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = 2;
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2), CUDA_SUCCESS);
}

/* What was set on the function beforehand is what today's call is given. */
TEST(encode, launches_of_old)
{
	uint64_t a = 0x1122334455667788;
	const uint8_t *at;

	ck_assert_int_eq(cuFuncSetBlockShape(add, 4, 5, 6), CUDA_SUCCESS);
	ck_assert_int_eq(cuFuncSetSharedSize(add, 7), CUDA_SUCCESS);
	ck_assert_int_eq(cuParamSetv(add, 0, &a, 8), CUDA_SUCCESS);
	ck_assert_int_eq(cuParamSeti(add, 8, 0xcafef00d), CUDA_SUCCESS);
	ck_assert_int_eq(cuParamSetf(add, 16, 1.5f), CUDA_SUCCESS);
	ck_assert_int_eq(cuParamSetSize(add, 24), CUDA_SUCCESS);
	ck_assert_int_eq(cuLaunchGrid(add, 2, 3), CUDA_SUCCESS);
	ck_assert_uint_eq(record()->grid_x * 100 + record()->grid_y * 10 + record()->grid_z, 231);
	ck_assert_uint_eq(record()->block_x * 100 + record()->block_y * 10 + record()->block_z, 456);
	ck_assert_uint_eq(record()->shared_bytes, 7);
	at = arguments();
	ck_assert_mem_eq(at, &a, 8);
	ck_assert_mem_eq(at + 8, &(uint32_t){0xcafef00d}, 4);
	ck_assert_mem_eq(at + 16, &(float){1.5f}, 4);
	ck_assert_int_eq(cuLaunch(plain), CUDA_SUCCESS); /* nothing was set: one thread */
	ck_assert_uint_eq(record()->grid_x * 10 + record()->block_x, 11);
	ck_assert_int_eq(cuLaunchGridAsync(add, 0, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuFuncSetBlockShape(add, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuParamSetv(add, 4090, &a, 8), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuParamSetSize(add, 4097), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuLaunch(NULL), CUDA_ERROR_INVALID_HANDLE);
}

/* 2048 / 128 = 16 blocks fit each of the processors. */
START_TEST(cooperative)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
	unsigned most = 16 * FAKE_PROCESSORS;

	ck_assert_int_eq(
		cuLaunchCooperativeKernel(plain, most, 1, 1, 128, 1, 1, 0, NULL, NULL), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.head.flags, FRMPS_CMD_COOPERATIVE);
	ck_assert_uint_eq(record()->attribute_count, 0);
	ck_assert_int_eq(cuLaunchCooperativeKernel_ptsz(plain, most + 1, 1, 1, 128, 1, 1, 0, NULL, NULL),
		CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	ck_assert_int_eq(cuLaunchCooperativeKernel(plain, 2147483647, 65535, 65535, 128, 1, 1, 0, NULL, NULL),
		CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 1);
	ck_assert_int_eq(launch_with(&attribute, 1), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.head.flags, FRMPS_CMD_COOPERATIVE);
	ck_assert_uint_eq(record()->attribute_count, 0);
	attribute.value.cooperative = 0;
	ck_assert_int_eq(launch_with(&attribute, 1), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.head.flags, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("encode");
	TCase *tcase = suite_case(suite, "encode");

	tcase_add_checked_fixture(tcase, load_module, NULL);
	suite_add(tcase, "encode");
	tcase_add_test(tcase, attribute_count);
	tcase_add_test(tcase, cooperative);
	return suite_run(suite);
}
