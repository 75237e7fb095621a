// Calls that cannot succeed: each one too early, in a forked child and with nothing; after a fault
// and without a service; with what was destroyed.
// The tests run against NVIDIA's library as well and must pass there, but for those that say
// otherwise.

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/layout.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/graphs.h"
#include "tests/system/program.h"

/* ---- every call there is ---- */

static const char *const calls[] = {
#define NAME_FULL(symbol)  #symbol,
#define NAME_LOCAL(symbol) #symbol,
#define NAME_REFUSED(symbol)
#define API(symbol, base, since, variant, kind, note) NAME_##kind(symbol)
#include "client/api.def"
#undef API
};

/* As many words as any call takes, in registers and behind them; structs that go by value are in
 * them. */
typedef CUresult any_call(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
	uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static CUresult call_with_nothing(const char *symbol)
{
	any_call *call = (any_call *)dlsym(RTLD_DEFAULT, symbol);

	ck_assert_msg(call, "no %s", symbol);
	return call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

/* Of tools, which need no session of their own. */
static bool is_of_tools(const char *symbol)
{
	return !strncmp(symbol, "cuCheckpointProcess", strlen("cuCheckpointProcess"));
}

/* What may be called before cuInit. */
static bool is_early(const char *symbol)
{
	static const char *const early[] = {"cuInit", "cuDriverGetVersion", "cuGetErrorName",
		"cuGetErrorString", "cuGetExportTable", "cuGetProcAddress", "cuGetProcAddress_v2",
		"cuLogsCurrent", "cuLogsDumpToFile", "cuLogsDumpToMemory", "cuLogsRegisterCallback",
		"cuLogsUnregisterCallback", "cuProfilerInitialize"};

	for (size_t i = 0; i < sizeof(early) / sizeof(*early); i++)
		if (!strcmp(symbol, early[i]))
			return true;
	return is_of_tools(symbol);
}

/* Return: how many calls did not say that the driver is not initialised. */
static int count_too_early(void)
{
	int wrong = 0;

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		CUresult r = is_early(calls[i]) ? CUDA_ERROR_NOT_INITIALIZED : call_with_nothing(calls[i]);

		if (r != CUDA_ERROR_NOT_INITIALIZED)
			fprintf(stderr, "%s is %d\n", calls[i], (int)r);
		wrong += r != CUDA_ERROR_NOT_INITIALIZED;
	}
	return wrong;
}

/* Whatever else is wrong with them. */
TEST(calls, calls_come_too_early)
{
	ck_assert_int_eq(is_native() ? 0 : count_too_early(), 0);
}

static int call_in_child(int unused)
{
	(void)unused;
	return count_too_early() || cuInit(0) != CUDA_ERROR_NOT_INITIALIZED;
}

/* The parent has some to give back when it next waits: what it allocated in stream order, and what
 * a copy of ordinary memory went through. */
static void leave_memory(void)
{
	static _Alignas(4096) uint8_t page[4096];
	CUdeviceptr memory;
	CUstream stream;

	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuMemAllocAsync(&memory, sizeof(page), stream));
	ck_cuda(cuMemHostRegister_v2(page, sizeof(page), 0));
	ck_cuda(cuMemcpyHtoDAsync_v2(memory, page, sizeof(page), stream));
	ck_cuda(cuMemFreeAsync(memory, stream));
	while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
		continue;
}

TEST(calls, a_forked_child_has_nothing)
{
	CUstream stream;

	if (is_native())
		return;
	driver_open();
	ck_cuda(cuStreamCreate(&stream, 0));
	ck_cuda(cuMemsetD8Async_ptsz(device_words(1, 0), 1, 4, NULL));
	leave_memory();
	ck_assert_int_eq(exit_status(spawn(call_in_child, 0)), 0);
	ck_cuda(cuCtxSynchronize());
}

/* Calls with all arguments zero: errors, or what they mean; never the end of the program, which
 * NVIDIA's library does not promise. */
TEST(calls, nothing_is_asked_of_everything)
{
	CUcontext context;

	if (is_native())
		return;
	driver_open();
	ck_cuda(cuCtxGetCurrent(&context));
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		call_with_nothing(calls[i]);
		/* Some of them ended the context, or took it away. */
		ck_cuda(cuDevicePrimaryCtxRetain(&context, 0));
		ck_cuda(cuCtxSetCurrent(context));
	}
	ck_cuda(cuCtxSynchronize());
}

/* ---- when the device is lost to the program ---- */

enum { KERNEL, HOST, ALLOC, FREE, NODES };

static struct service lost_service;

/* What a program may have by then. */
struct belongings {
	CUcontext context, spare[2];
	CUdeviceptr memory, range, empty_range, unmapped;
	CUmemGenericAllocationHandle physical, lone;
	CUmemoryPool pool;
	CUlibrary library;
	CUkernel kernel;
	CUgraph graph, copy;
	CUgraphNode nodes[NODES], copied;
	CUgraphExec exec;
	CUuserObject object;
	void *image;
	uint64_t out[1024]; /* whatever calls write */
};

#define GRANULE (UINT64_C(2) << 20)

static const CUmemLocation device_location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc access_of_all = {
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUmemPoolProps pool_properties = {
	.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static void do_nothing(void *unused)
{
	(void)unused;
}

static void make_graph(struct belongings *b)
{
	uint32_t one = 1;
	void *arguments[] = {&b->memory, &one};
	CUDA_KERNEL_NODE_PARAMS kernel_node = kernel_params("count_up", 1, 1, arguments);
	CUDA_HOST_NODE_PARAMS host = {.fn = do_nothing};
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.poolProps = pool_properties, .bytesize = 4096};
	CUgraphNode *nodes = b->nodes;

	ck_cuda(cuGraphCreate(&b->graph, 0));
	ck_cuda(cuGraphAddKernelNode_v2(&nodes[KERNEL], b->graph, NULL, 0, &kernel_node));
	ck_cuda(cuGraphClone(&b->copy, b->graph));
	ck_cuda(cuGraphNodeFindInClone(&b->copied, nodes[KERNEL], b->copy));
	ck_cuda(cuGraphAddHostNode(&nodes[HOST], b->graph, &nodes[KERNEL], 1, &host));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[ALLOC], b->graph, NULL, 0, &alloc));
	ck_cuda(cuGraphAddMemFreeNode(&nodes[FREE], b->graph, &nodes[ALLOC], 1, alloc.dptr));
	ck_cuda(cuGraphInstantiateWithFlags(&b->exec, b->graph, 0));
	ck_cuda(cuGraphLaunch(b->exec, NULL));
	ck_cuda(cuCtxSynchronize());
}

static void make_memory(struct belongings *b)
{
	uint64_t keep = UINT64_MAX;
	CUdeviceptr freed;

	ck_cuda(cuMemAlloc_v2(&b->memory, 4096));
	ck_cuda(cuMemCreate(&b->physical, GRANULE, &shareable, 0));
	ck_cuda(cuMemCreate(&b->lone, GRANULE, &shareable, 0));
	ck_cuda(cuMemAddressReserve(&b->range, GRANULE, 0, 0, 0));
	ck_cuda(cuMemAddressReserve(&b->empty_range, GRANULE, 0, 0, 0));
	ck_cuda(cuMemAddressReserve(&b->unmapped, GRANULE, 0, 0, 0));
	ck_cuda(cuMemMap(b->range, GRANULE, 0, b->physical, 0));
	ck_cuda(cuMemSetAccess(b->range, GRANULE, &access_of_all, 1));
	ck_cuda(cuMemPoolCreate(&b->pool, &pool_properties));
	/* Some of it is kept. */
	ck_cuda(cuMemPoolSetAttribute(b->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	ck_cuda(cuMemAllocFromPoolAsync(&freed, GRANULE, b->pool, NULL));
	ck_cuda(cuMemFreeAsync(freed, NULL));
}

static struct belongings *make_belongings(void)
{
	struct belongings *b = calloc(1, sizeof(*b));

	ck_assert_ptr_nonnull(b);
	driver_open();
	ck_cuda(cuCtxGetCurrent(&b->context));
	for (int i = 0; i < 2; i++) {
		ck_cuda(cuCtxCreate_v2(&b->spare[i], 0, 0));
		ck_cuda(cuCtxPopCurrent_v2(NULL));
	}
	b->image = read_file(getenv("FRMPS_TEST_KERNELS"));
	ck_cuda(cuLibraryLoadData(&b->library, b->image, NULL, NULL, 0, NULL, NULL, 0));
	ck_cuda(cuLibraryGetKernel(&b->kernel, b->library, "count_up"));
	ck_cuda(cuUserObjectCreate(&b->object, b, do_nothing, 4, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	make_memory(b);
	make_graph(b);
	return b;
}

/* What has nothing to do with the device, or asks of it only what is known. */
static const char *const unaffected[] = {"cuCoredumpGetAttributeGlobal", "cuCoredumpSetAttributeGlobal",
	"cuCtxDestroy", "cuCtxDestroy_v2", "cuCtxDetach", "cuCtxFromGreenCtx", "cuCtxGetApiVersion",
	"cuCtxGetCacheConfig", "cuCtxGetCurrent", "cuCtxGetDevResource", "cuCtxGetDevice",
	"cuCtxGetDevice_v2", "cuCtxGetFlags", "cuCtxGetId", "cuCtxGetLimit", "cuCtxGetSharedMemConfig",
	"cuCtxGetStreamPriorityRange", "cuCtxPopCurrent", "cuCtxPopCurrent_v2", "cuCtxPushCurrent",
	"cuCtxPushCurrent_v2", "cuCtxSetCacheConfig", "cuCtxSetCurrent", "cuCtxSetFlags",
	"cuCtxSetSharedMemConfig", "cuDevResourceGenerateDesc", "cuDevSmResourceSplitByCount",
	"cuDeviceCanAccessPeer", "cuDeviceComputeCapability", "cuDeviceGet", "cuDeviceGetAttribute",
	"cuDeviceGetByPCIBusId", "cuDeviceGetCount", "cuDeviceGetDefaultMemPool", "cuDeviceGetDevResource",
	"cuDeviceGetExecAffinitySupport", "cuDeviceGetGraphMemAttribute", "cuDeviceGetHostAtomicCapabilities",
	"cuDeviceGetMemPool", "cuDeviceGetName", "cuDeviceGetP2PAtomicCapabilities",
	"cuDeviceGetP2PAttribute", "cuDeviceGetPCIBusId", "cuDeviceGetProperties",
	"cuDeviceGetTexture1DLinearMaxWidth", "cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDeviceGraphMemTrim",
	"cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2",
	"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRetain",
	"cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags_v2", "cuDeviceSetGraphMemAttribute",
	"cuDeviceSetMemPool", "cuDeviceTotalMem_v2", "cuDriverGetVersion", "cuGetErrorName",
	"cuGetErrorString", "cuGetExportTable", "cuGetProcAddress", "cuGetProcAddress_v2",
	"cuGraphAddDependencies", "cuGraphAddDependencies_v2", "cuGraphBatchMemOpNodeGetParams",
	"cuGraphChildGraphNodeGetGraph", "cuGraphClone", "cuGraphCreate", "cuGraphDebugDotPrint",
	"cuGraphDestroy", "cuGraphDestroyNode", "cuGraphEventRecordNodeGetEvent",
	"cuGraphEventWaitNodeGetEvent", "cuGraphExecDestroy", "cuGraphGetEdges", "cuGraphGetEdges_v2",
	"cuGraphGetNodes", "cuGraphGetRootNodes", "cuGraphHostNodeGetParams",
	"cuGraphKernelNodeCopyAttributes", "cuGraphKernelNodeGetAttribute", "cuGraphKernelNodeGetParams",
	"cuGraphKernelNodeGetParams_v2", "cuGraphKernelNodeSetAttribute", "cuGraphMemAllocNodeGetParams",
	"cuGraphMemFreeNodeGetParams", "cuGraphMemcpyNodeGetParams", "cuGraphMemsetNodeGetParams",
	"cuGraphNodeFindInClone", "cuGraphNodeGetDependencies", "cuGraphNodeGetDependencies_v2",
	"cuGraphNodeGetDependentNodes", "cuGraphNodeGetDependentNodes_v2", "cuGraphNodeGetType",
	"cuGraphReleaseUserObject", "cuGraphRemoveDependencies", "cuGraphRemoveDependencies_v2",
	"cuGraphRetainUserObject", "cuGreenCtxDestroy", "cuGreenCtxGetDevResource", "cuGreenCtxGetId",
	"cuInit", "cuKernelGetAttribute", "cuKernelGetLibrary", "cuKernelGetName", "cuKernelGetParamInfo",
	"cuKernelSetAttribute", "cuKernelSetCacheConfig", "cuLibraryEnumerateKernels", "cuLibraryGetKernel",
	"cuLibraryGetKernelCount", "cuLibraryGetManaged", "cuLibraryGetUnifiedFunction", "cuLibraryLoadData",
	"cuLibraryLoadFromFile", "cuLibraryUnload", "cuLogsCurrent", "cuLogsDumpToFile", "cuLogsDumpToMemory",
	"cuLogsRegisterCallback", "cuLogsUnregisterCallback", "cuMemAddressFree", "cuMemAddressReserve",
	"cuMemCreate", "cuMemExportToShareableHandle", "cuMemGetAccess", "cuMemGetAllocationGranularity",
	"cuMemGetAllocationPropertiesFromHandle", "cuMemGetDefaultMemPool", "cuMemGetMemPool",
	"cuMemImportFromShareableHandle", "cuMemMap", "cuMemPoolCreate", "cuMemPoolDestroy",
	"cuMemPoolExportPointer", "cuMemPoolExportToShareableHandle", "cuMemPoolGetAccess",
	"cuMemPoolGetAttribute", "cuMemPoolImportFromShareableHandle", "cuMemPoolSetAccess",
	"cuMemPoolSetAttribute", "cuMemPoolTrimTo", "cuMemRelease", "cuMemRetainAllocationHandle",
	"cuMemSetAccess", "cuMemSetMemPool", "cuMemUnmap", "cuModuleGetLoadingMode", "cuPointerGetAttribute",
	"cuPointerGetAttributes", "cuProfilerInitialize", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled",
	"cuTensorMapReplaceAddress", "cuThreadExchangeStreamCaptureMode", "cuUserObjectCreate",
	"cuUserObjectRelease", "cuUserObjectRetain"};

enum answer { GOES_ON, ENDS /* the service is asked: it gives the error */ };

struct row {
	const char *call;
	enum answer answer;
	uint64_t arguments[12];
};

#define ROWS	   64
#define P(pointer) ((uint64_t)(uintptr_t)(pointer))

/* What they say to a program that asks properly: of each kind one or more, and all that take
 * something away or have to ask. */
static size_t fill_rows(const struct belongings *b, struct row ret_rows[ROWS])
{
	static uint64_t dimensions[2] = {64, 64}, stride = 256, keep, room = 8192;
	static uint32_t box[2] = {8, 8}, steps[2] = {1, 1};
	uint64_t out = P(b->out);
	const struct row rows[] = {
		{"cuInit", GOES_ON, {0}},
		{"cuDriverGetVersion", GOES_ON, {out}},
		{"cuGetErrorString", GOES_ON, {CUDA_ERROR_ILLEGAL_ADDRESS, out}},
		{"cuDeviceGetCount", GOES_ON, {out}},
		{"cuDeviceGetAttribute", GOES_ON, {out, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0}},
		{"cuDeviceTotalMem_v2", GOES_ON, {out, 0}},
		{"cuDeviceGetUuid_v2", GOES_ON, {out, 0}},
		{"cuDevicePrimaryCtxGetState", GOES_ON, {0, out, out + 8}},
		{"cuCtxGetCurrent", GOES_ON, {out}},
		{"cuCtxGetDevice", GOES_ON, {out}},
		{"cuCtxGetLimit", GOES_ON, {out, CU_LIMIT_STACK_SIZE}},
		{"cuCtxPushCurrent_v2", GOES_ON, {P(b->spare[0])}},
		{"cuCtxPopCurrent_v2", GOES_ON, {out}},
		{"cuCtxDestroy", GOES_ON, {P(b->spare[0])}},
		{"cuCtxPushCurrent", GOES_ON, {P(b->spare[1])}},
		{"cuCtxDestroy_v2", GOES_ON, {P(b->spare[1])}},
		{"cuPointerGetAttribute", GOES_ON, {out, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, b->memory}},
		{"cuMemPoolGetAttribute", GOES_ON, {P(b->pool), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, out}},
		{"cuMemPoolSetAttribute", GOES_ON, {P(b->pool), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, P(&keep)}},
		{"cuMemPoolTrimTo", GOES_ON, {P(b->pool), 0}},
		{"cuMemPoolDestroy", GOES_ON, {P(b->pool)}},
		{"cuDeviceGraphMemTrim", GOES_ON, {0}},
		{"cuMemGetAccess", GOES_ON, {out, P(&device_location), b->range}},
		{"cuMemGetAllocationPropertiesFromHandle", GOES_ON, {out, b->physical}},
		{"cuMemAddressFree", GOES_ON, {b->unmapped, GRANULE}},
		{"cuMemCreate", ENDS, {out, GRANULE, P(&shareable), 0}},
		{"cuMemExportToShareableHandle", ENDS,
			{out, b->physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}},
		{"cuMemMap", ENDS, {b->empty_range, GRANULE, 0, b->physical, 0}},
		{"cuMemSetAccess", GOES_ON, {b->range, GRANULE, P(&access_of_all), 1}},
		{"cuMemUnmap", ENDS, {b->range, GRANULE}},
		{"cuMemRelease", ENDS, {b->lone}},
		{"cuKernelGetName", GOES_ON, {out, P(b->kernel)}},
		{"cuKernelGetAttribute", GOES_ON, {out, CU_FUNC_ATTRIBUTE_NUM_REGS, P(b->kernel), 0}},
		{"cuLibraryGetKernel", GOES_ON, {out, P(b->library), P("count_up")}},
		{"cuLibraryGetKernel", ENDS, {out, P(b->library), P("fill")}},
		{"cuLibraryLoadData", ENDS, {out, P(b->image)}},
		{"cuLibraryLoadFromFile", ENDS, {out, P(getenv("FRMPS_TEST_KERNELS"))}},
		{"cuLibraryUnload", ENDS, {P(b->library)}},
		{"cuTensorMapEncodeTiled", ENDS,
			{out, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, b->memory, P(dimensions), P(&stride),
				P(box), P(steps)}},
		{"cuGraphCreate", GOES_ON, {out, 0}},
		{"cuGraphGetNodes", GOES_ON, {P(b->graph), 0, out}},
		{"cuGraphNodeGetType", GOES_ON, {P(b->nodes[KERNEL]), out}},
		{"cuGraphClone", GOES_ON, {out, P(b->copy)}},
		{"cuGraphDestroyNode", GOES_ON, {P(b->copied)}},
		{"cuGraphDestroy", GOES_ON, {P(b->copy)}},
		{"cuGraphRetainUserObject", GOES_ON, {P(b->graph), P(b->object), 1, 0}},
		{"cuGraphReleaseUserObject", GOES_ON, {P(b->graph), P(b->object), 1}},
		{"cuUserObjectRelease", GOES_ON, {P(b->object), 1}},
		{"cuGraphExecDestroy", GOES_ON, {P(b->exec)}},
		{"cuGraphDestroy", GOES_ON, {P(b->graph)}},
		{"cuLogsDumpToMemory", GOES_ON, {0, out, P(&room), 0}},
	};

	memcpy(ret_rows, rows, sizeof(rows));
	return sizeof(rows) / sizeof(*rows);
}

/* Where this program's ring ends: it shares it with the service. */
static const word64 *find_ring(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	const struct shm_client_header *ring = NULL;
	char line[512];

	while (maps && !ring && fgets(line, sizeof(line), maps))
		if (strstr(line, "frmps-client"))
			ring = (const struct shm_client_header *)(uintptr_t)strtoull(line, NULL, 16);
	ck_assert(ring && ring->magic == SHM_CLIENT_MAGIC);
	fclose(maps);
	return &ring->tail;
}

static const char *volatile asked;

static void tell_what_hangs(int signal)
{
	(void)signal;
	fprintf(stderr, "%s hangs\n", asked);
	_exit(9);
}

/* Return: how many answers were wrong. */
static int judge(CUresult result, bool right, const word64 *ring, uint64_t *tail)
{
	bool is_wrong = !right || *ring != *tail;

	if (is_wrong)
		fprintf(stderr, "%s is %d%s\n", asked, (int)result,
			*ring != *tail ? ", and on the ring" : "");
	*tail = *ring;
	return is_wrong;
}

static bool is_unaffected(const char *symbol)
{
	for (size_t i = 0; i < sizeof(unaffected) / sizeof(*unaffected); i++)
		if (!strcmp(symbol, unaffected[i]))
			return true;
	return is_of_tools(symbol);
}

static int ask_properly(const struct belongings *b, CUresult end, const word64 *ring)
{
	struct row rows[ROWS];
	size_t count = fill_rows(b, rows);
	uint64_t tail = *ring;
	int wrong = 0;

	for (size_t i = 0; i < count; i++) {
		const uint64_t *a = rows[i].arguments;
		any_call *call = (any_call *)dlsym(RTLD_DEFAULT, rows[i].call);
		CUresult r;

		asked = rows[i].call;
		r = call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], 0, 0, 0, 0,
			0, 0);
		wrong += judge(r, r == (rows[i].answer == ENDS ? end : CUDA_SUCCESS), ring, &tail);
	}
	return wrong;
}

/* Whatever else is wrong with them. */
static int ask_everything(CUcontext context, CUresult end, const word64 *ring)
{
	uint64_t tail = *ring;
	int wrong = 0;

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		CUresult r;

		asked = calls[i];
		r = call_with_nothing(calls[i]);
		wrong += judge(r, (r == end) != is_unaffected(calls[i]), ring, &tail);
		/* Some take it away. */
		ck_cuda(cuCtxSetCurrent(context));
	}
	return wrong;
}

static void fault(void)
{
	uint64_t nowhere = 0x10;
	void *arguments[] = {&nowhere};

	ck_cuda(launch("crash_write", 1, 1, NULL, arguments));
}

static void lose_service(void)
{
	pid_t processes[16];
	int count = service_children(&lost_service, processes, 16);

	for (int i = 0; i < count; i++)
		kill(processes[i], SIGKILL);
	kill(lost_service.pid, SIGKILL);
}

static const struct {
	void (*happens)(void);
	CUresult end;
	int service_end;
} losses[] = {{fault, CUDA_ERROR_ILLEGAL_ADDRESS, 0}, {lose_service, CUDA_ERROR_MPS_RPC_FAILURE, -1}};

static int ask_after(int loss)
{
	struct belongings *b = make_belongings();
	CUresult end = CUDA_SUCCESS;
	const word64 *ring = find_ring();
	size_t free_bytes, total_bytes;
	int wrong;

	signal(SIGALRM, tell_what_hangs);
	asked = "the wait";
	alarm(60);
	losses[loss].happens();
	/* Who has nothing to wait for notices a service that is gone when it asks for something. */
	while (end == CUDA_SUCCESS && (end = cuCtxSynchronize()) == CUDA_SUCCESS)
		end = cuMemGetInfo_v2(&free_bytes, &total_bytes);
	if (end != losses[loss].end)
		return 8;
	wrong = ask_properly(b, end, ring) + ask_everything(b->context, end, ring);
	free(b->image);
	free(b);
	return wrong != 0;
}

/* Every call says so, and does nothing any more; but those that have nothing to do with the
 * device. */
TEST_LOOP(lost, calls_come_too_late, 0, 2)
{
	ck_assert(service_start(&lost_service, NULL));
	ck_assert_int_eq(exit_status(spawn(ask_after, _i)), 0);
	ck_assert_int_eq(service_stop(&lost_service), losses[_i].service_end);
}

/* ---- what is no more ---- */

static CUresult launch_function(CUfunction function, CUstream stream)
{
	CUdeviceptr word = 0;
	uint32_t one = 1;
	void *arguments[] = {&word, &one};

	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

/* NVIDIA's library follows handles of streams, events and graphs' nodes wherever they lead. */
TEST(calls, destroyed_streams_and_events_are_refused)
{
	CUstream stream, other;
	CUdeviceptr word;
	CUevent event;
	float time;

	if (is_native())
		return;
	driver_attach();
	ck_cuda(cuStreamCreate(&stream, 0));
	ck_cuda(cuStreamCreate(&other, 0));
	ck_cuda(cuEventCreate(&event, 0));
	ck_cuda(cuMemAlloc_v2(&word, 4));
	ck_cuda(cuMemsetD8Async(word, 1, 4, stream));
	ck_cuda(cuEventRecord(event, stream));
	ck_cuda(cuStreamDestroy_v2(stream));
	ck_cuda(cuEventSynchronize(event));
	ck_assert_int_ne(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
	ck_assert_int_ne(cuStreamSynchronize(stream), CUDA_SUCCESS);
	ck_assert_int_ne(cuMemsetD8Async(word, 1, 4, stream), CUDA_SUCCESS);
	ck_assert_int_ne(cuEventRecord(event, stream), CUDA_SUCCESS);
	ck_cuda(cuEventDestroy_v2(event));
	ck_assert_int_ne(cuEventDestroy_v2(event), CUDA_SUCCESS);
	ck_assert_int_ne(cuEventRecord(event, other), CUDA_SUCCESS);
	ck_assert_int_ne(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
	ck_assert_int_ne(cuEventElapsedTime(&time, event, event), CUDA_SUCCESS);
	ck_cuda(cuCtxSynchronize());
}

TEST(calls, what_was_destroyed_is_refused)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUfunction function;
	CUmodule module;
	CUdeviceptr word;
	CUstream stream;
	CUgraph graph;

	driver_attach();
	ck_cuda(cuStreamCreate(&stream, 0));
	ck_cuda(cuModuleLoadData(&module, image));
	free(image);
	ck_cuda(cuModuleGetFunction(&function, module, "count_up"));
	ck_cuda(cuModuleUnload(module));
	ck_assert_int_eq(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(launch_function(function, stream), CUDA_ERROR_INVALID_HANDLE);
	ck_cuda(cuMemAlloc_v2(&word, 4));
	ck_cuda(cuMemFree_v2(word));
	ck_assert_int_eq(cuMemFree_v2(word), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemsetD8_v2(word, 1, 4), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphDestroy(graph));
	ck_assert_int_eq(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuCtxSynchronize());
}

TEST(calls, nothing_else_is_left_of_them)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUfunction function;
	CUgraphExec exec;
	CUmodule module;
	CUgraphNode node;
	CUdeviceptr word;
	CUgraph graph;
	size_t bytes;
	int value;

	if (is_native())
		return;
	driver_attach();
	ck_cuda(cuModuleLoadData(&module, image));
	free(image);
	ck_cuda(cuModuleGetFunction(&function, module, "count_up"));
	ck_cuda(cuModuleUnload(module));
	ck_assert_int_ne(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function), CUDA_SUCCESS);
	ck_assert_int_ne(cuModuleGetFunction(&function, module, "count_up"), CUDA_SUCCESS);
	ck_cuda(cuMemAlloc_v2(&word, 4));
	ck_cuda(cuMemFree_v2(word));
	ck_assert_int_ne(cuMemGetAddressRange_v2(&word, &bytes, word), CUDA_SUCCESS);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddEmptyNode(&node, graph, NULL, 0));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_cuda(cuGraphDestroy(graph));
	ck_assert_int_ne(cuGraphDestroyNode(node), CUDA_SUCCESS);
	ck_assert_int_ne(cuGraphAddEmptyNode(&node, graph, NULL, 0), CUDA_SUCCESS);
	ck_cuda(cuGraphLaunch(exec, NULL));
	ck_cuda(cuGraphExecDestroy(exec));
	ck_assert_int_ne(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
	ck_assert_int_ne(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	ck_cuda(cuCtxSynchronize());
}

int main(void)
{
	Suite *suite = suite_create("calls");
	TCase *tests = tcase_create("calls");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "calls");
	suite_add_tcase(suite, tests);
	if (!is_native()) {
		tests = tcase_create("lost");
		tcase_set_timeout(tests, 240);
		suite_add(tests, "lost");
		suite_add_tcase(suite, tests);
	}
	return suite_run(suite);
}
