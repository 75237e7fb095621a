// Programs that share the device with others: greedy programs, a program that serves requests, and
// a program of a crowd.
//
//   shares length
//   shares greedy work | product
//   shares serve
//   shares crowd
//
// length measures a kernel of `work` on an idle device: of FRMPS_BENCH_ROUNDS rounds in each
// thread, with blocks that fill the device once. The other modes start with driver_wait_for_start()
// and run for FRMPS_BENCH_SECONDS.
//
// greedy keeps kernels on the device: of `work`, FRMPS_BENCH_BLOCKS blocks of FRMPS_BENCH_ROUNDS
// rounds, or products of large matrices, whose first and last element are checked at the end. The
// mode prints the number of kernels that ended in each 10 ms. A kernel of `work` is a fixed amount
// of work, not of time: it does not get shorter when the device runs programs in turn.
//
// serve issues a request every FRMPS_BENCH_PERIOD_MS, but only after the last request is answered:
// small kernels in sequence, and a wait. crowd launches and waits; every kernel checks and counts
// the previous kernel (tally).

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/lib/driver.h"
#include "bench/lib/stats.h"

#define BLOCK_THREADS	1024u /* of `work` */
#define AHEAD		8u    /* kernels that a greedy program has on the device */
#define BIN_NS		UINT64_C(10000000)
#define BINS_MAX	3000u
#define ORDER		4096u /* of the matrices */
#define TILE_ROWS	32u   /* of the product that a block computes */
#define TILE_COLUMNS	64u
#define PRODUCT_THREADS 256u
#define TWO_ONES	0x3c003c00u /* a pair of binary16 */
#define REQUEST_KERNELS 20
#define REQUEST_THREADS 128u
#define REQUEST_NS	UINT64_C(10000) /* duration of each */
#define RANKS		1000u		/* of a program's waits: printed */

/* work(out, rounds): each thread computes eight steps a round, each from the previous step. Its
 * store keeps the compiler from dropping the loop. Compilers unroll loops differently, and systems
 * may have different compilers: none may unroll this loop.
 *
 * product(a, b, c, n): c = a * b by the tensor cores; a and c by rows, b by columns, of order n, a
 * multiple of both sides of a block's tile. a and b are binary16, c is binary32. A warp computes 16
 * times 16 elements, the eight warps of a block two by four such tiles. */
static const char ptx[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .entry work(.param .u64 out, .param .u32 rounds) .maxntid 1024, 1, 1 {\n"
	"  .reg .u32 %left, %x; .reg .u64 %out; .reg .pred %more, %never;\n"
	"  ld.param.u32 %left, [rounds]; ld.param.u64 %out, [out]; mov.u32 %x, %tid.x;\n"
	"again: .pragma \"nounroll\";\n"
	"  mad.lo.u32 %x, %x, 1664525, 1013904223; mad.lo.u32 %x, %x, 1664525, 1013904223;\n"
	"  mad.lo.u32 %x, %x, 1664525, 1013904223; mad.lo.u32 %x, %x, 1664525, 1013904223;\n"
	"  mad.lo.u32 %x, %x, 1664525, 1013904223; mad.lo.u32 %x, %x, 1664525, 1013904223;\n"
	"  mad.lo.u32 %x, %x, 1664525, 1013904223; mad.lo.u32 %x, %x, 1664525, 1013904223;\n"
	"  sub.u32 %left, %left, 1; setp.ne.u32 %more, %left, 0; @%more bra again;\n"
	"  setp.eq.u32 %never, %x, 3141592653; @!%never bra done;\n"
	"  st.global.u32 [%out], %x;\n"
	"done: ret; }\n"
	".visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n"
	"  .maxntid 256, 1, 1 {\n"
	"  .reg .u32 %warp, %row, %column, %n, %left; .reg .u64 %a, %b, %c, %at; .reg .pred %more;\n"
	"  .reg .b32 %f<8>, %g<8>; .reg .f32 %s<8>;\n"
	"  ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %c, [c]; ld.param.u32 %n, [n];\n"
	"  mov.u32 %warp, %tid.x; shr.u32 %warp, %warp, 5;\n"
	"  mov.u32 %row, %ctaid.y; mov.u32 %column, %ctaid.x;\n"
	"  shl.b32 %row, %row, 1; shl.b32 %column, %column, 2;\n"
	"  and.b32 %left, %warp, 3; add.u32 %column, %column, %left;\n"
	"  shr.u32 %left, %warp, 2; add.u32 %row, %row, %left;\n"
	"  shl.b32 %row, %row, 4; shl.b32 %column, %column, 4;\n"
	"  mul.wide.u32 %at, %row, %n; shl.b64 %at, %at, 1; add.u64 %a, %a, %at;\n"
	"  shl.b64 %at, %at, 1; add.u64 %c, %c, %at;\n"
	"  mul.wide.u32 %at, %column, 4; add.u64 %c, %c, %at;\n"
	"  mul.wide.u32 %at, %column, %n; shl.b64 %at, %at, 1; add.u64 %b, %b, %at;\n"
	"  mov.f32 %s0, 0f00000000; mov.f32 %s1, %s0; mov.f32 %s2, %s0; mov.f32 %s3, %s0;\n"
	"  mov.f32 %s4, %s0; mov.f32 %s5, %s0; mov.f32 %s6, %s0; mov.f32 %s7, %s0;\n"
	"  mov.u32 %left, %n;\n"
	"again: .pragma \"nounroll\";\n"
	"  wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, [%a], %n;\n"
	"  wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {%g0,%g1,%g2,%g3,%g4,%g5,%g6,%g7}, [%b], %n;\n"
	"  wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%s0,%s1,%s2,%s3,%s4,%s5,%s6,%s7},\n"
	"    {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, {%g0,%g1,%g2,%g3,%g4,%g5,%g6,%g7},\n"
	"    {%s0,%s1,%s2,%s3,%s4,%s5,%s6,%s7};\n"
	"  add.u64 %a, %a, 32; add.u64 %b, %b, 32;\n"
	"  sub.u32 %left, %left, 16; setp.ne.u32 %more, %left, 0; @%more bra again;\n"
	"  wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%c], {%s0,%s1,%s2,%s3,%s4,%s5,%s6,%s7}, %n;\n"
	"  ret; }\n";

static CUmodule common;
static CUstream stream;

static uint64_t seconds_ns(void)
{
	return (uint64_t)(driver_environment("FRMPS_BENCH_SECONDS", 2) * 1e9);
}

static void synchronize(void)
{
	driver_check(cu.stream_sync(stream), "cuStreamSynchronize");
}

static CUdeviceptr allocate(size_t bytes, uint32_t value)
{
	CUdeviceptr at;

	driver_check(cu.alloc(&at, bytes), "cuMemAlloc");
	driver_check(cu.set32(at, value, bytes / 4), "cuMemsetD32");
	driver_check(cu.sync(), "cuCtxSynchronize");
	return at;
}

static uint32_t attribute(CUdevice_attribute which)
{
	int value;

	driver_check(cu.attribute(&value, which, 0), "cuDeviceGetAttribute");
	return (uint32_t)value;
}

/* ---- greedy programs ---- */

struct work {
	CUfunction kernel;
	uint32_t blocks, rounds;
	CUdeviceptr a, b, c; /* of a product; c: of `work` as well */
};

static void launch_work(const struct work *work)
{
	void *arguments[] = {(void *)&work->c, (void *)&work->rounds};

	driver_check(
		cu.launch(work->kernel, work->blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, arguments, NULL),
		"cuLaunchKernel");
}

static void launch_product(const struct work *work)
{
	uint32_t order = ORDER;
	void *arguments[] = {(void *)&work->a, (void *)&work->b, (void *)&work->c, &order};

	driver_check(cu.launch(work->kernel, ORDER / TILE_COLUMNS, ORDER / TILE_ROWS, 1, PRODUCT_THREADS, 1,
			     1, 0, stream, arguments, NULL),
		"cuLaunchKernel");
}

static CUfunction greedy_kernel(const char *name)
{
	CUmodule module = common;

	if (!getenv("FRMPS_BENCH_MODULE"))
		driver_check(cu.module_load(&module, ptx), "cuModuleLoadData");
	return driver_function(module, name);
}

static void work_init(struct work *work)
{
	work->kernel = greedy_kernel("work");
	work->c = allocate(4096, 0);
	work->rounds = (uint32_t)driver_environment("FRMPS_BENCH_ROUNDS", 6000);
	work->blocks = (uint32_t)driver_environment("FRMPS_BENCH_BLOCKS", 1);
}

static void product_init(struct work *work)
{
	size_t elements = (size_t)ORDER * ORDER;

	work->kernel = greedy_kernel("product");
	work->a = allocate(elements * 2, TWO_ONES);
	work->b = allocate(elements * 2, TWO_ONES);
	work->c = allocate(elements * 4, 0);
}

static bool product_is_exact(const struct work *work)
{
	uint64_t last = work->c + ((uint64_t)ORDER * ORDER - 1) * 4;
	float ends[2];

	driver_check(cu.dtoh(&ends[0], work->c, 4), "cuMemcpyDtoH");
	driver_check(cu.dtoh(&ends[1], last, 4), "cuMemcpyDtoH");
	return ends[0] == (float)ORDER && ends[1] == (float)ORDER;
}

static const struct kind {
	const char *name;
	void (*init)(struct work *);
	void (*launch)(const struct work *);
	bool (*is_exact)(const struct work *); /* NULL: without a check */
} kinds[] = {
	{"work", work_init, launch_work, NULL},
	{"product", product_init, launch_product, product_is_exact},
};

static uint32_t ended[BINS_MAX];

static void await(CUevent event, uint64_t begin)
{
	uint64_t now, bin;

	driver_check(cu.event_sync(event), "cuEventSynchronize");
	now = now_ns();
	bin = now > begin ? (now - begin) / BIN_NS : 0;
	if (bin < BINS_MAX)
		ended[bin]++;
}

static void greedy(const struct kind *kind)
{
	struct work work = {0};
	CUevent events[AHEAD];
	uint64_t begin, end, launched = 0, bins = seconds_ns() / BIN_NS;
	bool is_exact;

	for (uint32_t i = 0; i < AHEAD; i++)
		driver_check(cu.event_create(&events[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
	kind->init(&work);
	kind->launch(&work);
	synchronize();
	begin = driver_wait_for_start();
	end = begin + seconds_ns();
	for (; now_ns() < end; launched++) {
		if (launched >= AHEAD)
			await(events[launched % AHEAD], begin);
		kind->launch(&work);
		driver_check(cu.event_record(events[launched % AHEAD], stream), "cuEventRecord");
	}
	synchronize();
	is_exact = !kind->is_exact || kind->is_exact(&work);
	printf("{\"name\": \"greedy\", \"exact\": %s, \"multiprocessors\": %u, \"begin_ns\": %llu, "
	       "\"bin_ns\": %llu, \"ended\": [",
		is_exact ? "true" : "false", attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
		(unsigned long long)begin, (unsigned long long)BIN_NS);
	for (uint64_t i = 0; i < bins && i < BINS_MAX; i++)
		printf("%s%u", i ? "," : "", ended[i]);
	printf("]}\n");
}

/* A series of kernels, after some that wake the device up. */
static void length(void)
{
	enum { BEFORE = 100, KERNELS = 50 };
	struct work work = {0};
	uint64_t begin = 0;
	double ms;

	work_init(&work);
	work.blocks = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
		      (attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / BLOCK_THREADS);
	for (int i = 0; i < BEFORE + KERNELS; i++) {
		if (i == BEFORE) {
			synchronize();
			begin = now_ns();
		}
		launch_work(&work);
	}
	synchronize();
	ms = (double)(now_ns() - begin) / 1e6 / KERNELS;
	printf("{\"name\": \"length\", \"blocks\": %u, \"rounds\": %u, \"ms\": %.6f}\n", work.blocks,
		work.rounds, ms);
}

/* ---- requests ---- */

struct request {
	CUfunction kernel;
	uint32_t blocks;
};

/* Return: the request's time, ns */
static uint64_t answer(const struct request *request)
{
	CUdeviceptr nowhere = 0;
	uint64_t ns = REQUEST_NS, begin = now_ns();
	void *arguments[] = {&nowhere, &ns};

	for (int i = 0; i < REQUEST_KERNELS; i++)
		driver_check(cu.launch(request->kernel, request->blocks, 1, 1, REQUEST_THREADS, 1, 1, 0,
				     stream, arguments, NULL),
			"cuLaunchKernel");
	synchronize();
	return now_ns() - begin;
}

static void serve(void)
{
	uint64_t period = (uint64_t)(driver_environment("FRMPS_BENCH_PERIOD_MS", 4) * 1e6), begin, next, now;
	struct request request = {.kernel = driver_function(common, "spin"),
		.blocks = (attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) + 3) / 4};
	struct samples samples;

	samples_init(&samples, (size_t)(seconds_ns() / period) + 1);
	answer(&request);
	begin = next = driver_wait_for_start();
	do {
		driver_sleep_until(next);
		samples_add(&samples, (double)answer(&request) / 1e6);
		now = now_ns();
		next = now > next + period ? now : next + period;
	} while (now < begin + seconds_ns());
	samples_print(&samples, "request", "ms");
	samples_deinit(&samples);
	printf("{\"name\": \"served\", \"begin_ns\": %llu, \"end_ns\": %llu}\n", (unsigned long long)begin,
		(unsigned long long)now);
}

/* ---- the crowd ---- */

static bool crowd_is_exact(CUdeviceptr cells, uint32_t count)
{
	uint32_t found[3];

	driver_check(cu.dtoh(found, cells, sizeof(found)), "cuMemcpyDtoH");
	return found[0] == count && found[1] == count && !found[2];
}

/* Return: the time of launch and wait, ns */
static uint64_t count_and_wait(CUfunction tally, CUdeviceptr cells, uint32_t round)
{
	uint64_t ns = 0, begin = now_ns();
	void *arguments[] = {&cells, &ns, &round};

	driver_check(cu.launch(tally, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
	synchronize();
	return now_ns() - begin;
}

static void crowd(void)
{
	enum { WAITS_MAX = 1 << 19 };
	CUfunction tally = driver_function(common, "tally");
	CUdeviceptr cells = allocate(4096, 0);
	struct samples samples;
	uint32_t round = 0;
	uint64_t end;

	samples_init(&samples, WAITS_MAX);
	count_and_wait(tally, cells, round++);
	end = driver_wait_for_start() + seconds_ns();
	do {
		samples_add(&samples, (double)count_and_wait(tally, cells, round++) / 1e6);
	} while (now_ns() < end && samples.count < WAITS_MAX);
	printf("{\"name\": \"crowd\", \"exact\": %s}\n", crowd_is_exact(cells, round) ? "true" : "false");
	samples_print_ranks(&samples, "wait", "ms", RANKS);
	samples_deinit(&samples);
}

static const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}

static const struct {
	const char *name;
	void (*measure)(void);
} questions[] = {{"length", length}, {"serve", serve}, {"crowd", crowd}};

int main(int argc, char **argv)
{
	const struct kind *kind = argc == 3 && strcmp(argv[1], "greedy") == 0 ? find_kind(argv[2]) : NULL;
	void (*measure)(void) = NULL;

	for (size_t i = 0; argc == 2 && i < sizeof(questions) / sizeof(*questions); i++)
		if (strcmp(argv[1], questions[i].name) == 0)
			measure = questions[i].measure;
	if (!kind && !measure) {
		fprintf(stderr, "usage: shares length | greedy work | greedy product | serve | crowd\n");
		return 64;
	}
	driver_open();
	common = driver_module();
	driver_check(cu.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	driver_check(cu.launch(driver_function(common, "empty"), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
		"cuLaunchKernel");
	synchronize();
	if (kind)
		greedy(kind);
	else
		measure();
	return 0;
}
