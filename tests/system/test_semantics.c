// What one program may expect of the driver at the least: a device, kernels, copies, errors. More
// of that is in test_contexts, test_streams, test_threads and others. Every test runs in a process
// of its own against one service. Run against NVIDIA's library, the same tests must pass: they say
// what the driver does, not what we do.

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/graphs.h"
#include "tests/system/program.h"

TEST(semantics, device_is_described)
{
	char name[128] = "";
	int count, value;
	size_t total;
	CUuuid uuid;
	CUdevice device;

	ck_assert_int_eq(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	ck_cuda(cuInit(0));
	ck_cuda(cuDeviceGetCount(&count));
	ck_assert_int_ge(count, 1);
	ck_cuda(cuDeviceGet(&device, 0));
	ck_assert_int_eq(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
	ck_cuda(cuDeviceGetName(name, sizeof(name), device));
	ck_assert_uint_gt(strlen(name), 0);
	ck_cuda(cuDeviceTotalMem_v2(&total, device));
	ck_assert_uint_gt(total, 1 << 20);
	ck_cuda(cuDeviceGetUuid(&uuid, device));
	ck_cuda(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
	ck_assert_int_eq(value, 32);
	ck_cuda(cuDriverGetVersion(&value));
	ck_assert_int_ge(value, 13000);
}

typedef CUresult value_call(CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags);

/* What a program finds that asks for calls as old as those of the first drivers with such
 * operations. */
TEST(semantics, the_first_stream_memory_operations_are_gone)
{
	static const struct {
		int attribute, value;
	} told[] = {{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 0},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 0},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 0},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1}};
	CUdriverProcAddressQueryResult status;
	CUdeviceptr word;
	void *call;

	driver_open();
	for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++) {
		int value = -1;

		ck_cuda(cuDeviceGetAttribute(&value, (CUdevice_attribute)told[i].attribute, 0));
		ck_assert_int_eq(value, told[i].value);
	}
	word = device_words(1, 0);
	ck_cuda(cuGetProcAddress_v2("cuStreamWriteValue32", &call, 8000, 0, &status));
	ck_assert_int_eq(((value_call *)call)(NULL, word, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_cuda(cuGetProcAddress_v2("cuStreamWriteValue32", &call, 12000, 0, &status));
	ck_cuda(((value_call *)call)(NULL, word, 1, 0));
	ck_cuda(cuCtxSynchronize());
}

TEST(semantics, kernel_adds_vectors)
{
	uint64_t count = 100003;
	CUdeviceptr a, b, out;
	uint32_t *result = malloc(count * 4);
	void *arguments[] = {&out, &a, &b, &count};

	driver_open();
	a = device_words(count, 3);
	b = device_words(count, 5);
	ck_cuda(cuMemAlloc_v2(&out, count * 4));
	ck_cuda(launch("add_vectors", 64, 128, NULL, arguments));
	ck_cuda(cuMemcpyDtoH_v2(result, out, count * 4));
	for (uint32_t i = 0; i < count; i++)
		ck_assert_uint_eq(result[i], i * 8);
	ck_cuda(cuMemFree_v2(a));
	ck_cuda(cuMemFree_v2(b));
	ck_cuda(cuMemFree_v2(out));
	ck_assert_int_eq(cuMemFree_v2(out), CUDA_ERROR_INVALID_VALUE);
	free(result);
}

static const size_t sizes[] = {1, 4, 511, 4096, 65537, (1 << 20) + 3, (5 << 20) + 1, 70 << 20};

TEST_LOOP(semantics, bytes_come_back_as_they_went, 0, sizeof(sizes) / sizeof(*sizes))
{
	size_t bytes = sizes[_i];
	uint8_t *out = malloc(bytes), *in = malloc(bytes), *pinned;
	CUdeviceptr a, b;

	driver_open();
	for (size_t i = 0; i < bytes; i++)
		out[i] = (uint8_t)(i * 31 + (i >> 11));
	ck_cuda(cuMemAlloc_v2(&a, bytes));
	ck_cuda(cuMemAlloc_v2(&b, bytes));
	ck_cuda(cuMemHostAlloc((void **)&pinned, bytes, 0));
	/* pageable → device → device → pinned → device → pageable */
	ck_cuda(cuMemcpyHtoD_v2(a, out, bytes));
	ck_cuda(cuMemcpyDtoD_v2(b, a, bytes));
	ck_cuda(cuMemcpyDtoH_v2(pinned, b, bytes));
	ck_assert_int_eq(memcmp(out, pinned, bytes), 0);
	memset(pinned, 0x77, bytes);
	ck_cuda(cuMemcpyHtoDAsync_v2(a, pinned, bytes, NULL));
	ck_cuda(cuMemcpyDtoHAsync_v2(in, a, bytes, NULL));
	ck_cuda(cuStreamSynchronize(NULL));
	ck_assert_uint_eq(in[0], 0x77);
	ck_assert_int_eq(memcmp(in, pinned, bytes), 0);
	ck_cuda(cuMemsetD8_v2(a, 0x5a, bytes));
	ck_cuda(cuMemcpy((CUdeviceptr)(uintptr_t)in, a, bytes));
	ck_assert_uint_eq(in[bytes - 1], 0x5a);
	ck_cuda(cuMemFreeHost(pinned));
	ck_cuda(cuMemFree_v2(a));
	ck_cuda(cuMemFree_v2(b));
	free(in);
	free(out);
}

TEST(semantics, boxes_are_copied)
{
	enum { WIDTH = 300, HEIGHT = 77 };
	uint8_t out[HEIGHT][WIDTH], in[HEIGHT][WIDTH];
	size_t pitch;
	CUdeviceptr box;
	CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = out,
		.srcPitch = WIDTH,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.WidthInBytes = WIDTH,
		.Height = HEIGHT};
	CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = in,
		.dstPitch = WIDTH,
		.WidthInBytes = WIDTH,
		.Height = HEIGHT};

	driver_open();
	for (int y = 0; y < HEIGHT; y++)
		for (int x = 0; x < WIDTH; x++)
			out[y][x] = (uint8_t)(x * y + y);
	memset(in, 0, sizeof(in));
	ck_cuda(cuMemAllocPitch_v2(&box, &pitch, WIDTH, HEIGHT, 4));
	ck_assert_uint_ge(pitch, WIDTH);
	up.dstDevice = down.srcDevice = box;
	up.dstPitch = down.srcPitch = pitch;
	ck_cuda(cuMemsetD2D8_v2(box, pitch, 0xee, WIDTH, HEIGHT));
	ck_cuda(cuMemcpy2D_v2(&up));
	ck_cuda(cuMemcpy2D_v2(&down));
	ck_assert_int_eq(memcmp(in, out, sizeof(in)), 0);
}

TEST(semantics, rows_do_not_overlap)
{
	char row[64] = "";
	CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = row,
		.srcPitch = 8,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstPitch = 16,
		.WidthInBytes = 16,
		.Height = 1};

	driver_open();
	ck_cuda(cuMemAlloc_v2(&up.dstDevice, 64));
	ck_assert_int_eq(cuMemcpy2D_v2(&up), CUDA_ERROR_INVALID_VALUE);
	up.srcPitch = 16;
	ck_cuda(cuMemcpy2D_v2(&up));
	up.dstPitch = 8;
	ck_assert_int_eq(cuMemcpy2DAsync_v2(&up, NULL), CUDA_ERROR_INVALID_VALUE);
	up.Height = 0;
	ck_cuda(cuMemcpy2D_v2(&up));
	/* Nor beyond their end. */
	up.Height = 1;
	up.dstPitch = up.srcPitch = 24;
	up.srcXInBytes = 8;
	ck_cuda(cuMemcpy2D_v2(&up));
	up.srcXInBytes = 9;
	ck_assert_int_eq(cuMemcpy2D_v2(&up), CUDA_ERROR_INVALID_VALUE);
}

/* Records and waits for others than this capture are nodes, and nothing else. */
TEST(semantics, external_events_are_of_captures)
{
	CUevent event;

	driver_open();
	ck_cuda(cuEventCreate(&event, 0));
	ck_assert_int_eq(
		cuEventRecordWithFlags(event, NULL, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_int_eq(cuStreamWaitEvent(NULL, event, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_int_eq(cuStreamWaitEvent(NULL, event, 2), CUDA_ERROR_INVALID_VALUE);
}

/* The documentation has a largest pitch (CU_DEVICE_ATTRIBUTE_MAX_PITCH), the driver (580) goes on
 * behind it. */
TEST(semantics, a_pitch_has_no_limit)
{
	CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.WidthInBytes = 16,
		.dstPitch = 16,
		.Height = 2};
	char in[32], out[32] = "first row......second row.....";
	char *host;
	int most;

	driver_open();
	ck_cuda(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0));
	up.srcPitch = (size_t)most + 1;
	host = mmap(NULL, 2 * up.srcPitch, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(host, MAP_FAILED);
	memcpy(host, out, 16);
	memcpy(host + up.srcPitch, out + 16, 16);
	up.srcHost = host;
	ck_cuda(cuMemAlloc_v2(&up.dstDevice, 32));
	for (int i = 0; i < 2; i++) {
		ck_cuda(cuMemsetD8_v2(up.dstDevice, 0xee, 32));
		ck_cuda(i ? cuMemcpy2DAsync_v2(&up, NULL) : cuMemcpy2D_v2(&up));
		ck_cuda(cuMemcpyDtoH_v2(in, up.dstDevice, 32));
		ck_assert_int_eq(memcmp(in, out, 32), 0);
	}
}

/* A size of nothing is all right, everywhere else NULL is an error and no more. */
TEST(semantics, nothing_is_copied_from_and_to_null)
{
	CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcPitch = 64,
		.srcXInBytes = 8,
		.srcY = 1,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstPitch = 64,
		.WidthInBytes = 8,
		.Height = 2};
	CUdeviceptr p;

	driver_open();
	p = device_words(1024, 1);
	ck_cuda(cuMemcpyHtoD_v2(p, NULL, 0));
	ck_cuda(cuMemcpyDtoH_v2(NULL, p, 0));
	ck_assert_int_eq(cuMemcpyHtoD_v2(p, NULL, 16), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemcpyDtoH_v2(NULL, p, 16), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemcpyHtoDAsync_v2(p, NULL, 16, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemcpyDtoHAsync_v2(NULL, p, 16, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemcpy(p, 0, 16), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemcpy(0, p, 16), CUDA_ERROR_INVALID_VALUE);
	box.dstDevice = p;
	ck_assert_int_eq(cuMemcpy2D_v2(&box), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuCtxSynchronize());
}

/* Programs make a map before they have the memory, and put the address in later. Without a GPU
 * there are none, whatever they name. */
TEST(semantics, a_tensor_map_may_name_any_address)
{
	static _Alignas(64) uint32_t own[64];
	const uint64_t dimensions[] = {4, 4}, stride = 16;
	const uint32_t box[] = {4, 4}, steps[] = {1, 1};
	CUtensorMap map;
	CUdeviceptr memory;
	void *named[3] = {NULL, own};

	driver_open();
	memory = device_words(64, 0);
	named[2] = (void *)(uintptr_t)memory;
	for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
		ck_assert_int_eq(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, named[i],
					 dimensions, &stride, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
					 CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
					 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
			is_without_device() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS);
}

/* Nor is memory a registration that was allocated pinned. */
TEST(semantics, nothing_of_pinned_memory_is_no_error)
{
	void *nothing = &nothing, *pinned;

	driver_open();
	ck_cuda(cuMemHostAlloc(&nothing, 0, 0));
	ck_cuda(cuMemFreeHost(nothing));
	ck_cuda(cuMemFreeHost(NULL));
	ck_cuda(cuMemHostAlloc(&pinned, 4096, 0));
	ck_assert_int_eq(cuMemHostUnregister(pinned), CUDA_ERROR_INVALID_VALUE);
	memset(pinned, 1, 4096);
	ck_cuda(cuMemFreeHost(pinned));
}

/* Libraries make empty objects of it. */
TEST(semantics, nothing_in_stream_order_is_no_error)
{
	CUdeviceptr nothing = 1;
	CUmemoryPool pool;
	CUstream stream;
	CUgraph graph;

	driver_open();
	ck_assert_int_eq(cuMemAlloc_v2(&nothing, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
	ck_cuda(cuMemAllocAsync(&nothing, 0, stream));
	ck_cuda(cuMemFreeAsync(nothing, stream));
	ck_cuda(cuMemAllocFromPoolAsync(&nothing, 0, pool, stream));
	ck_cuda(cuMemFreeAsync(nothing, stream));
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(cuMemAllocAsync(&nothing, 0, stream));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_cuda(cuGraphDestroy(graph));
	ck_cuda(cuStreamSynchronize(stream));
}

TEST(semantics, what_has_no_handle_has_no_name)
{
	const char *name;

	driver_open();
	ck_assert_int_eq(cuFuncGetName(&name, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuKernelGetName(&name, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(semantics, wrong_calls_are_refused_at_the_call)
{
	CUdeviceptr p;
	uint64_t count = 1;
	uint32_t value = 1;
	void *arguments[] = {&p, &value, &count};
	CUfunction function;
	CUmodule module;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&p, 4));
	ck_assert_int_eq(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleGetFunction(&function, kernels(), "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(launch("fill", 1, 4096, NULL, arguments), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(launch("fill", 0, 1, NULL, arguments), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_ne(cuModuleLoadData(&module, "this is no image"), CUDA_SUCCESS);
	ck_cuda(cuCtxSynchronize());
}

/* A library's kernels, in one order, and a module's in the opposite one. */
TEST(semantics, kernels_are_listed_in_the_drivers_order)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	unsigned count = 0, same = 0;
	const char *one, *other;
	CUfunction *functions;
	CUlibrary library;
	CUkernel *all;

	driver_open();
	ck_cuda(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	ck_cuda(cuLibraryGetKernelCount(&count, library));
	ck_assert_uint_gt(count, 10);
	all = calloc(count, sizeof(CUkernel));
	functions = calloc(count, sizeof(CUfunction));
	ck_cuda(cuLibraryEnumerateKernels(all, count, library));
	ck_cuda(cuModuleEnumerateFunctions(functions, count, kernels()));
	for (unsigned i = 0; i < count; i++) {
		ck_cuda(cuKernelGetName(&one, all[i]));
		ck_cuda(cuFuncGetName(&other, functions[count - 1 - i]));
		same += !strcmp(one, other);
	}
	ck_assert_uint_eq(same, count);
	free(functions);
	free(all);
	free(image);
}

/* As the test kernel of this name, for a GPU. */
static const char count_shaped[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
				   ".visible .entry count_shaped(.param .u64 word, .param .u32 by)\n"
				   ".reqntid 32, 2, 1\n"
				   "{\n"
				   "\t.reg .pred first;\n\t.reg .b32 x, y, more;\n\t.reg .b64 at;\n"
				   "\tmov.u32 x, %tid.x;\n\tmov.u32 y, %tid.y;\n\tor.b32 x, x, y;\n"
				   "\tsetp.eq.u32 first, x, 0;\n"
				   "\tld.param.u64 at, [word];\n\tld.param.u32 more, [by];\n"
				   "\t@first red.global.add.u32 [at], more;\n"
				   "\tret;\n"
				   "}\n";

static CUfunction shaped_kernel(void)
{
	static CUfunction function;
	CUmodule module;

	if (function || cuModuleGetFunction(&function, kernels(), "count_shaped") == CUDA_SUCCESS)
		return function;
	ck_cuda(cuModuleLoadData(&module, count_shaped));
	ck_cuda(cuModuleGetFunction(&function, module, "count_shaped"));
	return function;
}

static CUresult launch_shaped(
	CUstream stream, unsigned x, unsigned y, CUdeviceptr word, CUgraph graph, CUgraphNode *node)
{
	uint32_t by = 1;
	void *arguments[] = {&word, &by};
	CUDA_KERNEL_NODE_PARAMS params = {.func = shaped_kernel(),
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = x,
		.blockDimY = y,
		.blockDimZ = 1,
		.kernelParams = arguments};

	if (graph)
		return cuGraphAddKernelNode_v2(node, graph, NULL, 0, &params);
	return cuLaunchKernel(shaped_kernel(), 1, 1, 1, x, y, 1, 0, stream, arguments, NULL);
}

/* At the call, and nothing of it is left behind. */
TEST(semantics, a_kernel_with_blocks_of_one_size_has_no_others)
{
	static const unsigned others[][2] = {{64, 1}, {32, 1}, {2, 32}, {32, 3}, {16, 4}};
	CUgraphNode node;
	CUdeviceptr word;
	CUstream stream;
	CUgraph graph;
	size_t count = 9;

	driver_open();
	word = device_words(1, 0);
	stream = new_stream();
	ck_cuda(cuGraphCreate(&graph, 0));
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		unsigned x = others[i][0], y = others[i][1];

		ck_assert_int_eq(launch_shaped(stream, x, y, word, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(launch_shaped(NULL, x, y, word, graph, &node), CUDA_ERROR_INVALID_VALUE);
	}
	ck_cuda(cuGraphGetNodes(graph, NULL, &count));
	ck_assert_uint_eq(count, 0);
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(launch_shaped(stream, 32, 2, word, NULL, NULL));
	ck_cuda(launch_shaped(NULL, 32, 2, word, graph, &node));
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(word), 1);
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 2);
	/* Stands for the only size. */
	ck_cuda(launch_shaped(stream, 1, 1, word, NULL, NULL));
	ck_cuda(launch_shaped(NULL, 1, 1, word, graph, &node));
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 5);
}

TEST(semantics, too_much_memory_is_an_error_and_no_more)
{
	CUdeviceptr p;
	size_t free_bytes, total;

	driver_open();
	ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
	ck_assert_uint_le(free_bytes, total);
	ck_assert_int_eq(cuMemAlloc_v2(&p, total * 2), CUDA_ERROR_OUT_OF_MEMORY);
	ck_cuda(cuMemAlloc_v2(&p, 1 << 20));
	ck_cuda(cuMemFree_v2(p));
}

static int blocks_with(CUfunction function, size_t shared)
{
	int blocks;

	ck_cuda(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, shared));
	return blocks;
}

/* 0: so many blocks do not fit. */
static size_t available_to(CUfunction function, int blocks)
{
	size_t bytes;
	CUresult r = cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, blocks, 128);

	ck_assert(r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_VALUE);
	return r == CUDA_SUCCESS ? bytes : 0;
}

/* The driver's numbers of an H200, of which the host's device is a likeness. */
TEST(semantics, occupancy_follows_what_a_kernel_prefers)
{
	static const struct {
		int percent, blocks, with_8000, with_40000;
		size_t to_2, to_4, to_8, to_16;
	} rows[] = {
		{0, 8, 1, 1, 4096, 2048, 1024, 0},
		{4, 16, 1, 1, 8192, 4096, 2048, 1024},
		{8, 16, 3, 1, 16384, 8192, 4096, 2048},
		{25, 16, 7, 1, 32768, 16384, 8192, 4096},
		{43, 16, 11, 2, 49152, 25600, 12800, 6400},
		{50, 16, 14, 3, 49152, 33792, 16896, 8448},
		{58, 16, 16, 4, 49152, 41984, 20992, 10496},
		{75, 16, 16, 4, 49152, 49152, 25088, 12544},
		{100, 16, 16, 5, 49152, 49152, 29184, 14592},
	};
	CUfunction function;
	int grid, size;

	driver_open();
	function = kernel("fill");
	ck_assert_int_eq(blocks_with(function, 8000), 16);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ck_cuda(cuFuncSetAttribute(
			function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, rows[i].percent));
		ck_assert_int_eq(blocks_with(function, 0), rows[i].blocks);
		ck_assert_int_eq(blocks_with(function, 8000), rows[i].with_8000);
		ck_assert_int_eq(blocks_with(function, 40000), rows[i].with_40000);
		ck_assert_uint_eq(available_to(function, 1), 49152);
		ck_assert_uint_eq(available_to(function, 2), rows[i].to_2);
		ck_assert_uint_eq(available_to(function, 4), rows[i].to_4);
		ck_assert_uint_eq(available_to(function, 8), rows[i].to_8);
		ck_assert_uint_eq(available_to(function, 16), rows[i].to_16);
		/* Of preferences this one alone counts there. */
		ck_cuda(cuOccupancyMaxPotentialBlockSize(&grid, &size, function, NULL, 8000, 0));
		ck_assert_int_eq(size, 1024);
		ck_assert_int_eq(grid % (rows[i].percent ? 2 : 1), 0);
	}
	ck_cuda(cuFuncSetAttribute(
		function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_SHAREDMEM_CARVEOUT_DEFAULT));
	ck_cuda(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_L1));
	ck_assert_int_eq(blocks_with(function, 8000), 1);
	ck_cuda(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_NONE));
	ck_cuda(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_EQUAL));
	ck_assert_int_eq(blocks_with(function, 8000), 14);
	ck_cuda(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_NONE));
	ck_assert_int_eq(blocks_with(function, 8000), 16);
}

int main(void)
{
	Suite *suite = suite_create("semantics");
	TCase *tests = tcase_create("semantics");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "semantics");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
