// CUDA arrays, textures and surfaces: what a program may expect of them (also of the driver's own
// library), and that their texels and their handles, which lie in device memory, are the same in
// another executor.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define WIDTH  24u
#define HEIGHT 10u
#define ROW    (WIDTH * (size_t)sizeof(uint32_t))
#define TEXELS (WIDTH * HEIGHT)

static uint32_t image[TEXELS], back[TEXELS];

static void open_device(void)
{
	driver_open();
	for (uint32_t i = 0; i < TEXELS; i++)
		image[i] = i * UINT32_C(2654435761);
	memset(back, 0, sizeof(back));
}

static CUarray array_of(size_t width, size_t height, size_t depth, unsigned flags)
{
	const CUDA_ARRAY3D_DESCRIPTOR form = {
		width, height, depth, CU_AD_FORMAT_UNSIGNED_INT32, 1, flags | CUDA_ARRAY3D_SURFACE_LDST};
	CUarray array;

	ck_cuda(cuArray3DCreate_v2(&array, &form));
	return array;
}

/* Between host rows of the array's width and a box of it. */
static CUDA_MEMCPY3D box_of(CUarray array, size_t x, size_t y, size_t z)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = image,
		.srcPitch = ROW,
		.srcHeight = HEIGHT,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY,
		.dstArray = array,
		.dstXInBytes = x,
		.dstY = y,
		.dstZ = z,
		.WidthInBytes = ROW,
		.Height = HEIGHT,
		.Depth = 1,
	};
}

static CUDA_MEMCPY3D turned(const CUDA_MEMCPY3D *in, void *host)
{
	CUDA_MEMCPY3D out = *in;

	out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	out.srcArray = in->dstArray;
	out.srcXInBytes = in->dstXInBytes;
	out.srcY = in->dstY;
	out.srcZ = in->dstZ;
	out.dstMemoryType = CU_MEMORYTYPE_HOST;
	out.dstHost = host;
	out.dstPitch = in->srcPitch;
	out.dstHeight = in->srcHeight;
	out.dstXInBytes = out.dstY = out.dstZ = 0;
	return out;
}

static void fill_array(CUarray array)
{
	CUDA_MEMCPY3D in = box_of(array, 0, 0, 0);

	ck_cuda(cuMemcpy3D_v2(&in));
}

static CUtexObject texture_of(CUarray array, unsigned flags)
{
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
	CUDA_TEXTURE_DESC texture = {.flags = flags};
	CUtexObject object;

	ck_cuda(cuTexObjectCreate(&object, &resource, &texture, NULL));
	return object;
}

static CUsurfObject surface_of(CUarray array)
{
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
	CUsurfObject object;

	ck_cuda(cuSurfObjectCreate(&object, &resource));
	return object;
}

static uint32_t sum_of(const uint32_t *texels, uint32_t count)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < count; i++)
		sum += texels[i];
	return sum;
}

/*
 * Copies
 */

TEST(arrays, boxes_of_arrays_are_copied)
{
	CUarray first, second;
	CUdeviceptr device;
	CUDA_MEMCPY3D in, out;

	open_device();
	first = array_of(WIDTH, HEIGHT, 0, 0);
	second = array_of(2 * WIDTH, HEIGHT + 3, 0, 0);
	device = device_words(2 * TEXELS, 0);
	in = box_of(first, 0, 0, 0);
	ck_cuda(cuMemcpy3D_v2(&in));
	in = box_of(second, ROW / 2, 3, 0);
	in.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	in.srcArray = first;
	ck_cuda(cuMemcpy3D_v2(&in));
	out = turned(&in, NULL);
	out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	out.dstDevice = device + 64;
	ck_cuda(cuMemcpy3DAsync_v2(&out, NULL));
	ck_cuda(cuMemcpyDtoH_v2(back, device + 64, sizeof(back)));
	ck_assert_mem_eq(back, image, sizeof(back));
	memset(back, 0, sizeof(back));
	out = turned(&in, back);
	ck_cuda(cuMemcpy3D_v2(&out));
	ck_assert_mem_eq(back, image, sizeof(back));
	ck_cuda(cuArrayDestroy(first));
	ck_cuda(cuArrayDestroy(second));
}

TEST(arrays, first_rows_are_copied_in_runs)
{
	CUarray line, other;
	CUdeviceptr device;

	open_device();
	line = array_of(TEXELS, 0, 0, 0);
	other = array_of(TEXELS, 0, 0, 0);
	device = device_words(TEXELS, 0);
	ck_cuda(cuMemcpyHtoA_v2(line, 0, image, sizeof(image)));
	ck_cuda(cuMemcpyAtoA_v2(other, 16, line, 32, 200));
	ck_cuda(cuMemcpyAtoD_v2(device, other, 16, 200));
	ck_cuda(cuMemcpyDtoA_v2(other, 400, device, 200));
	ck_cuda(cuMemcpyAtoHAsync_v2(back, other, 400, 200, NULL));
	ck_cuda(cuCtxSynchronize());
	ck_assert_mem_eq(back, (char *)image + 32, 200);
	ck_assert_int_eq(cuMemcpyHtoA_v2(line, sizeof(image) - 4, image, 8), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemcpyAtoH_v2(back, NULL, 0, 8), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuArrayDestroy(line));
	ck_cuda(cuArrayDestroy(other));
}

TEST(arrays, what_lies_outside_is_refused)
{
	CUDA_MEMCPY3D in;
	CUarray array;

	open_device();
	array = array_of(WIDTH, HEIGHT, 0, 0);
	in = box_of(array, 4, 0, 0);
	ck_assert_int_eq(cuMemcpy3D_v2(&in), CUDA_ERROR_INVALID_VALUE);
	in = box_of(array, 0, 1, 0);
	ck_assert_int_eq(cuMemcpy3D_v2(&in), CUDA_ERROR_INVALID_VALUE);
	in = box_of(array, 0, 0, 1);
	ck_assert_int_eq(cuMemcpy3D_v2(&in), CUDA_ERROR_INVALID_VALUE);
	in = box_of(array, 0, 0, 0);
	in.dstLOD = 1;
	ck_assert_int_eq(cuMemcpy3D_v2(&in), CUDA_ERROR_INVALID_VALUE);
	in.dstLOD = 0;
	in.Depth = 2;
	ck_assert_int_eq(cuMemcpy3D_v2(&in), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuArrayDestroy(array));
	ck_cuda(cuCtxSynchronize());
}

TEST(arrays, descriptions_are_checked)
{
	static const CUDA_ARRAY3D_DESCRIPTOR wrong[] = {
		{0, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0},
		{8, 4, 0, CU_AD_FORMAT_FLOAT, 3, 0},
		{8, 4, 0, CU_AD_FORMAT_FLOAT, 0, 0},
		{8, 4, 0, (CUarray_format)7, 1, 0},
	};
	const CUDA_ARRAY_DESCRIPTOR flat = {64, 3, CU_AD_FORMAT_HALF, 4};
	CUDA_ARRAY_MEMORY_REQUIREMENTS need;
	CUDA_ARRAY_DESCRIPTOR told;
	CUarray array;

	open_device();
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		ck_assert_int_eq(cuArray3DCreate_v2(&array, &wrong[i]), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuArrayCreate_v2(&array, &flat));
	ck_cuda(cuArrayGetDescriptor_v2(&told, array));
	ck_assert(told.Width == 64 && told.Height == 3 && told.Format == CU_AD_FORMAT_HALF &&
		  told.NumChannels == 4);
	ck_assert_int_eq(cuArrayGetMemoryRequirements(&need, array, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuArrayDestroy(array));
}

TEST(arrays, layers_and_levels_are_apart)
{
	const CUDA_ARRAY3D_DESCRIPTOR form = {
		4 * WIDTH, 4 * HEIGHT, 3, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_LAYERED};
	CUDA_ARRAY3D_DESCRIPTOR told;
	CUmipmappedArray pyramid;
	CUarray level, again;
	CUDA_MEMCPY3D copy;

	open_device();
	ck_cuda(cuMipmappedArrayCreate(&pyramid, &form, 3));
	ck_cuda(cuMipmappedArrayGetLevel(&level, pyramid, 2));
	ck_cuda(cuMipmappedArrayGetLevel(&again, pyramid, 2));
	ck_assert_ptr_eq(level, again);
	ck_assert_int_eq(cuMipmappedArrayGetLevel(&again, pyramid, 3), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuArray3DGetDescriptor_v2(&told, level));
	ck_assert(told.Width == WIDTH && told.Height == HEIGHT && told.Depth == 3);
	for (uint32_t layer = 0; layer < 3; layer++) {
		image[0] = layer;
		copy = box_of(level, 0, 0, layer);
		ck_cuda(cuMemcpy3D_v2(&copy));
	}
	for (uint32_t layer = 0; layer < 3; layer++) {
		image[0] = layer;
		copy = box_of(level, 0, 0, layer);
		copy = turned(&copy, back);
		ck_cuda(cuMemcpy3D_v2(&copy));
		ck_assert_mem_eq(back, image, sizeof(back));
	}
	ck_cuda(cuMipmappedArrayDestroy(pyramid));
}

TEST(arrays, graphs_copy_arrays)
{
	CUDA_MEMCPY3D in, told;
	CUarray array, other;
	CUgraphExec exec;
	CUgraphNode node;
	CUcontext context;
	CUstream stream;
	CUgraph graph;
	uint32_t *pinned;

	open_device();
	array = array_of(WIDTH, HEIGHT, 0, 0);
	other = array_of(WIDTH, HEIGHT, 0, 0);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuMemHostAlloc((void **)&pinned, sizeof(image), 0));
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	in = box_of(array, 0, 0, 0);
	in.srcHost = pinned;
	ck_cuda(cuMemcpy3DAsync_v2(&in, stream));
	in = turned(&in, back);
	ck_cuda(cuMemcpy3DAsync_v2(&in, stream));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (uint32_t round = 0; round < 3; round++) {
		image[5] = round;
		memcpy(pinned, image, sizeof(image));
		ck_cuda(cuGraphLaunch(exec, stream));
		ck_cuda(cuStreamSynchronize(stream));
		ck_assert_mem_eq(back, image, sizeof(back));
	}
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));

	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(cuGraphCreate(&graph, 0));
	in = box_of(other, 0, 0, 0);
	in.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	in.srcArray = array;
	ck_cuda(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &in, context));
	ck_cuda(cuGraphMemcpyNodeGetParams(node, &told));
	ck_assert(told.srcArray == array && told.dstArray == other);
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamSynchronize(stream));
	memset(back, 0, sizeof(back));
	in = box_of(other, 0, 0, 0);
	in = turned(&in, back);
	ck_cuda(cuMemcpy3D_v2(&in));
	ck_assert_mem_eq(back, image, sizeof(back));
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));
	ck_cuda(cuArrayDestroy(array));
	ck_cuda(cuArrayDestroy(other));
}

/*
 * Objects
 */

/* Kernels are told handles by way of device memory. */
static CUdeviceptr stored(const uint64_t *handles, uint32_t count)
{
	CUdeviceptr at;

	ck_cuda(cuMemAlloc_v2(&at, count * sizeof(*handles)));
	ck_cuda(cuMemcpyHtoD_v2(at, handles, count * sizeof(*handles)));
	return at;
}

static CUresult fetch(CUdeviceptr out, CUdeviceptr textures, uint64_t count)
{
	uint32_t width = WIDTH, height = HEIGHT;
	void *arguments[] = {&out, &textures, &count, &width, &height};

	return launch("fetch_texels", 1, 32, NULL, arguments);
}

static CUresult bump(CUdeviceptr surfaces, uint64_t count, uint32_t by)
{
	void *arguments[] = {&surfaces, &count, &by};

	return launch("bump_surfaces", 1, 32, NULL, arguments);
}

TEST(arrays, kernels_read_and_write_texels)
{
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
	CUdeviceptr out, textures, surfaces;
	CUarray array, other;
	CUtexObject object;
	CUsurfObject surface;
	uint32_t sum;

	open_device();
	array = array_of(WIDTH, HEIGHT, 0, 0);
	other = array_of(WIDTH, HEIGHT, 0, 0);
	fill_array(array);
	object = texture_of(array, CU_TRSF_READ_AS_INTEGER);
	surface = surface_of(array);
	ck_assert(object != texture_of(other, 0));
	textures = stored((uint64_t[]){object}, 1);
	surfaces = stored((uint64_t[]){surface}, 1);
	out = device_words(1, 0);
	ck_cuda(bump(surfaces, 1, 77));
	ck_cuda(fetch(out, textures, 1));
	ck_cuda(cuMemcpyDtoH_v2(&sum, out, 4));
	ck_assert_uint_eq(sum, sum_of(image, TEXELS) + 77);
	ck_cuda(cuTexObjectGetResourceDesc(&resource, object));
	ck_assert_ptr_eq(resource.res.array.hArray, array);
	ck_cuda(cuTexObjectGetTextureDesc(&texture, object));
	ck_assert_uint_eq(texture.flags, CU_TRSF_READ_AS_INTEGER);
	ck_cuda(cuSurfObjectGetResourceDesc(&resource, surface));
	ck_assert_ptr_eq(resource.res.array.hArray, array);
	ck_cuda(cuArrayDestroy(array));
	ck_cuda(cuTexObjectDestroy(object));
	ck_cuda(cuTexObjectDestroy(object));
	ck_cuda(cuSurfObjectDestroy(surface));
	ck_assert_int_eq(cuTexObjectGetResourceDesc(&resource, object), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuArrayDestroy(other));
}

TEST(arrays, textures_are_over_memory_too)
{
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_PITCH2D};
	CUDA_TEXTURE_DESC texture = {.flags = CU_TRSF_READ_AS_INTEGER};
	CUdeviceptr memory, out;
	CUtexObject object;
	uint32_t sum;

	open_device();
	ck_cuda(cuMemAlloc_v2(&memory, 512 * HEIGHT));
	for (uint32_t y = 0; y < HEIGHT; y++)
		ck_cuda(cuMemcpyHtoD_v2(memory + 512 * y, &image[WIDTH * y], ROW));
	resource.res.pitch2D.devPtr = memory;
	resource.res.pitch2D.format = CU_AD_FORMAT_UNSIGNED_INT32;
	resource.res.pitch2D.numChannels = 1;
	resource.res.pitch2D.width = WIDTH;
	resource.res.pitch2D.height = HEIGHT;
	resource.res.pitch2D.pitchInBytes = 512;
	ck_cuda(cuTexObjectCreate(&object, &resource, &texture, NULL));
	out = device_words(1, 0);
	ck_cuda(fetch(out, stored((uint64_t[]){object}, 1), 1));
	ck_cuda(cuMemcpyDtoH_v2(&sum, out, 4));
	ck_assert_uint_eq(sum, sum_of(image, TEXELS));
	ck_cuda(cuTexObjectDestroy(object));
	resource.res.pitch2D.devPtr = 0;
	ck_assert_int_eq(cuTexObjectCreate(&object, &resource, &texture, NULL), CUDA_ERROR_INVALID_VALUE);
}

#define PAIRS 100u

static CUDA_RESOURCE_DESC linear_of(const float *pairs, size_t bytes)
{
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};

	ck_cuda(cuMemAlloc_v2(&resource.res.linear.devPtr, bytes));
	ck_cuda(cuMemcpyHtoD_v2(resource.res.linear.devPtr, pairs, bytes));
	resource.res.linear.format = CU_AD_FORMAT_FLOAT;
	resource.res.linear.numChannels = 2;
	resource.res.linear.sizeInBytes = bytes;
	return resource;
}

static void expect_pairs(CUtexObject object, const float *pairs)
{
	uint64_t count = PAIRS;
	float fetched[2 * PAIRS];
	CUdeviceptr out;
	void *arguments[] = {&out, &object, &count};

	ck_cuda(cuMemAlloc_v2(&out, sizeof(fetched)));
	ck_cuda(launch("fetch_pairs", 1, 32, NULL, arguments));
	ck_cuda(cuMemcpyDtoH_v2(fetched, out, sizeof(fetched)));
	ck_assert_mem_eq(fetched, pairs, sizeof(fetched));
}

/* How elements are filtered and addressed means nothing there. _i: one of all combinations */
TEST_LOOP(arrays, linear_memory_is_fetched_whatever_the_texture_says, 0, 16)
{
	CUaddress_mode mode = (CUaddress_mode)(_i % 4);
	CUDA_TEXTURE_DESC told,
		texture = {
			.addressMode = {mode, mode, mode},
			.filterMode = _i & 4 ? CU_TR_FILTER_MODE_LINEAR : CU_TR_FILTER_MODE_POINT,
			.flags = _i & 8 ? CU_TRSF_NORMALIZED_COORDINATES : 0,
		};
	CUDA_RESOURCE_DESC resource;
	float pairs[2 * PAIRS];
	CUtexObject object;

	open_device();
	for (uint32_t i = 0; i < 2 * PAIRS; i++)
		pairs[i] = 0.5f * (float)i;
	resource = linear_of(pairs, sizeof(pairs));
	ck_cuda(cuTexObjectCreate(&object, &resource, &texture, NULL));
	expect_pairs(object, pairs);
	ck_cuda(cuTexObjectGetTextureDesc(&told, object));
	ck_assert_int_eq(told.addressMode[0], mode);
	ck_assert_int_eq(told.filterMode, texture.filterMode);
	ck_assert_uint_eq(told.flags, texture.flags);
	ck_cuda(cuTexObjectDestroy(object));
}

/* One for each call, and nothing grows. */
TEST(arrays, objects_come_and_go)
{
	CUdeviceptr out, handles;
	CUarray array;

	open_device();
	array = array_of(WIDTH, HEIGHT, 0, 0);
	fill_array(array);
	out = device_words(1, 0);
	handles = device_words(2, 0);
	for (uint32_t i = 0; i < 3000; i++) {
		CUtexObject object = texture_of(array, CU_TRSF_READ_AS_INTEGER);

		ck_cuda(cuMemcpyHtoDAsync_v2(handles, &object, sizeof(object), NULL));
		ck_cuda(fetch(out, handles, 1));
		ck_cuda(cuTexObjectDestroy(object));
	}
	ck_cuda(cuMemcpyDtoH_v2(back, out, 4));
	ck_assert_uint_eq(back[0], sum_of(image, TEXELS));
	ck_cuda(cuArrayDestroy(array));
}

/*
 * Other executors
 */

#define PATIENT "fault_stall_ms = 5000\nfault_patience_ms = 20000\nquarantine_faults = 1000\n"
#define OBJECTS 12u
#define ROUNDS	3

enum { EXACT = 0, WRONG = 2, TOLD = 3 };

static struct service service;

static void start(const char *config)
{
	setenv("FRMPS_HOST_FAULT_MS", "50", 1);
	ck_assert(service_start_configured(&service, config));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/* Handles of many objects, some of which go and others come: in memory as they were first
 * written. */
struct gallery {
	CUarray arrays[OBJECTS];
	CUdeviceptr textures, surfaces, out;
	uint32_t sum, bumped;
};

static void gallery_open(struct gallery *gallery)
{
	uint64_t textures[OBJECTS], surfaces[OBJECTS];

	setenv("FRMPS_RECOVERY", "fail", 1);
	open_device();
	for (uint32_t i = 0; i < OBJECTS; i++) {
		CUarray passing = array_of(8, 8, 0, 0);
		CUtexObject between = texture_of(passing, 0);

		gallery->arrays[i] = array_of(WIDTH, HEIGHT, 0, 0);
		fill_array(gallery->arrays[i]);
		textures[i] = texture_of(gallery->arrays[i], CU_TRSF_READ_AS_INTEGER);
		if (i % 2)
			ck_cuda(cuTexObjectDestroy(between));
		surfaces[i] = surface_of(gallery->arrays[i]);
		ck_cuda(cuArrayDestroy(passing));
	}
	gallery->textures = stored(textures, OBJECTS);
	gallery->surfaces = stored(surfaces, OBJECTS);
	gallery->out = device_words(OBJECTS, 0);
	gallery->sum = sum_of(image, TEXELS);
	gallery->bumped = 0;
}

static int gallery_turn(struct gallery *gallery)
{
	uint32_t sums[OBJECTS];
	CUresult error = bump(gallery->surfaces, OBJECTS, 3);

	gallery->bumped += 3;
	if (!error)
		error = fetch(gallery->out, gallery->textures, OBJECTS);
	if (!error)
		error = cuMemcpyDtoH_v2(sums, gallery->out, sizeof(sums));
	if (error)
		return TOLD;
	for (uint32_t i = 0; i < OBJECTS; i++)
		if (sums[i] != gallery->sum + gallery->bumped)
			return WRONG;
	return EXACT;
}

/* At work all the time. */
static int visitor(int progress, int orders)
{
	struct gallery gallery;
	int end = EXACT;

	gallery_open(&gallery);
	report(progress);
	while (end == EXACT && !ordered(orders, false)) {
		end = gallery_turn(&gallery);
		report(progress);
	}
	return end;
}

/* At work only when it is ordered to: nothing of it is on the device when it has reported. */
static int work_to_order(int rounds, bool collects, int progress, int orders)
{
	struct gallery gallery;
	int end = EXACT;

	gallery_open(&gallery);
	ck_cuda(cuCtxSynchronize());
	report(progress);
	for (int i = 0; end == EXACT && i < rounds; i++) {
		ordered(orders, true);
		end = gallery_turn(&gallery);
		if (collects)
			gallery_open(&gallery);
		if (end == EXACT)
			end = gallery_turn(&gallery);
		ck_cuda(cuCtxSynchronize());
		report(progress);
	}
	ordered(orders, true);
	return end;
}

static int caller(int progress, int orders)
{
	return work_to_order(ROUNDS, false, progress, orders);
}

static int passer(int progress, int orders)
{
	return work_to_order(1, false, progress, orders);
}

/* Makes more objects in each executor that it comes into. */
static int collector(int progress, int orders)
{
	return work_to_order(ROUNDS, true, progress, orders);
}

static int culprit(int unused)
{
	(void)unused;
	driver_open();
	ck_cuda(launch("crash_trap", 1, 1, NULL, NULL));
	return cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED ? 0 : 2;
}

static struct child open_gallery(child_function *function)
{
	struct child child = child_start(function);

	child_wait(&child, 1);
	return child;
}

static void close_gallery(struct child *child)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), EXACT);
}

static void next_turn(const struct child *child)
{
	child_order(child);
	child_wait(child, 1);
}

TEST(moves, texels_and_handles_outlast_a_fault)
{
	struct child visitors[2], maker, guest;

	start(PATIENT);
	visitors[0] = open_gallery(visitor);
	maker = open_gallery(collector);
	guest = open_gallery(visitor);
	visitors[1] = open_gallery(visitor);
	for (int i = 0; i < ROUNDS; i++) {
		ck_assert_int_eq(exit_status(spawn(culprit, 0)), 0);
		status_await_faults(&service, i + 1);
		next_turn(&maker);
		if (i == 0)
			close_gallery(&guest);
		for (int j = 0; j < 2; j++) {
			child_drain(&visitors[j]);
			child_wait(&visitors[j], 2);
		}
	}
	close_gallery(&maker);
	for (int j = 0; j < 2; j++)
		close_gallery(&visitors[j]);
	wait_closed(&service);
}

/* Executors are killed while nothing of anybody is on the device: nobody is in doubt, and everybody
 * moves. */
TEST(moves, texels_and_handles_move)
{
	struct child callers[2], maker, guest;

	start(PATIENT);
	callers[0] = open_gallery(caller);
	maker = open_gallery(collector);
	guest = open_gallery(passer);
	callers[1] = open_gallery(caller);
	for (int i = 0; i < ROUNDS; i++) {
		status_replace_active(&service, i + 1);
		next_turn(&maker);
		if (i == 0) {
			next_turn(&guest);
			close_gallery(&guest);
		}
		for (int j = 0; j < 2; j++)
			next_turn(&callers[j]);
	}
	close_gallery(&maker);
	for (int j = 0; j < 2; j++)
		close_gallery(&callers[j]);
	wait_closed(&service);
}

static int large_array(int megabytes)
{
	const CUDA_ARRAY3D_DESCRIPTOR form = {
		1024, 256 * (size_t)megabytes, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
	CUarray array;

	driver_open();
	return cuArray3DCreate_v2(&array, &form) == CUDA_SUCCESS ? 0 : 1;
}

TEST(moves, arrays_count_against_the_limit)
{
	start(PATIENT "memory_limit = 64M\n");
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(exit_status(spawn(large_array, 40)), 0);
		ck_assert_int_eq(exit_status(spawn(large_array, 80)), 1);
	}
	wait_closed(&service);
}

int main(void)
{
	Suite *suite = suite_create("arrays");
	TCase *tests = tcase_create("arrays");

	tcase_set_timeout(tests, 300);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "arrays");
	suite_add_tcase(suite, tests);
	if (!is_native()) {
		tests = tcase_create("moves");
		tcase_set_timeout(tests, 300);
		tcase_add_checked_fixture(tests, NULL, stop);
		suite_add(tests, "moves");
		suite_add_tcase(suite, tests);
	}
	return suite_run(suite);
}
