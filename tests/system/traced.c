// Programs that trace.py lets run with `frmps-run --trace`. Each checks its own results: a trace
// changes none.
//
//   traced work            every kind of command, in several streams and threads, with NVTX marks
//   traced fork            the same in a child as well, which was forked before cuInit
//   traced fault           a kernel, then one that faults; prints the error's number
//   traced many COUNT      so many launches without a wait in between
//   traced spin COUNT NS   so many kernels that take so long
//   traced leave           ends by exit() with kernels under way
//   traced steps           for each line of its input runs a kernel of 1 ms and says "done"
//
// Exit status: 0, or 1 if something is not as it should be.

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CUDA_API_CALLER
#include "client/entry/api.h"

#define WORDS 65536u

static CUmodule module;

static void fail(const char *what, int code)
{
	fprintf(stderr, "%s: %d\n", what, code);
	exit(1);
}

#define CHECK(call)                                                                                          \
	do {                                                                                                 \
		CUresult result_ = (call);                                                                   \
		if (result_ != CUDA_SUCCESS)                                                                 \
			fail(#call, (int)result_);                                                           \
	} while (0)

/*
 * NVTX as its header does it: a tool's library gets at the places of functions.
 */

typedef void function_fn(void);

#define NVTX_MARK  2
#define NVTX_PUSH  9
#define NVTX_POP   11
#define NVTX_CALLS 16u

static function_fn *nvtx[NVTX_CALLS];

static int find_table(int number, function_fn ****ret_table, unsigned int *ret_count)
{
	static function_fn **places[NVTX_CALLS];

	for (unsigned int i = 1; i < NVTX_CALLS; i++)
		places[i] = &nvtx[i];
	*ret_table = places;
	*ret_count = number == 1 ? NVTX_CALLS : 0;
	return number == 1;
}

static const void *find(uint32_t table)
{
	static const struct {
		size_t size;
		int (*find_table)(int, function_fn ****, unsigned int *);
	} callbacks = {sizeof(callbacks), find_table};

	return table == 1 ? &callbacks : NULL;
}

static void nvtx_open(void)
{
	const char *path = getenv("NVTX_INJECTION64_PATH");
	void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
	int (*initialize)(const void *(*)(uint32_t)) = NULL;

	if (library)
		*(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
	if (initialize)
		initialize(find);
}

static void nvtx_push(const char *name)
{
	if (nvtx[NVTX_PUSH])
		((int (*)(const char *))nvtx[NVTX_PUSH])(name);
}

static void nvtx_pop(void)
{
	if (nvtx[NVTX_POP])
		((int (*)(void))nvtx[NVTX_POP])();
}

static void nvtx_mark(const char *name)
{
	if (nvtx[NVTX_MARK])
		((void (*)(const char *))nvtx[NVTX_MARK])(name);
}

/*
 * Work
 */

static CUcontext open_driver(void)
{
	CUcontext context;

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoad(&module, getenv("FRMPS_TEST_KERNELS")));
	return context;
}

static CUfunction kernel(const char *name)
{
	CUfunction function;

	CHECK(cuModuleGetFunction(&function, module, name));
	return function;
}

static void fill(CUdeviceptr out, uint32_t value, CUstream stream)
{
	uint64_t count = WORDS;
	void *arguments[] = {&out, &value, &count};

	CHECK(cuLaunchKernel(kernel("fill"), 4, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
}

static void spin(uint64_t ns, CUstream stream)
{
	void *arguments[] = {&ns};

	CHECK(cuLaunchKernel(kernel("spin_ns"), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static void expect(const uint32_t *words, uint32_t value)
{
	for (uint32_t i = 0; i < WORDS; i++)
		if (words[i] != value)
			fail("a word is wrong", (int)i);
}

static CUdeviceptr allocate(void)
{
	CUdeviceptr memory;

	CHECK(cuMemAlloc_v2(&memory, WORDS * sizeof(uint32_t)));
	return memory;
}

/* Three fills by kernels in a thread of its own. */
static void *run_thread(void *context)
{
	uint32_t *words = malloc(WORDS * sizeof(*words));
	CUdeviceptr memory;
	CUstream stream;

	CHECK(cuCtxSetCurrent(context));
	memory = allocate();
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	nvtx_push("thread");
	for (uint32_t i = 1; i <= 3; i++)
		fill(memory, i, stream);
	CHECK(cuStreamSynchronize(stream));
	nvtx_pop();
	CHECK(cuMemcpyDtoH_v2(words, memory, WORDS * sizeof(*words)));
	expect(words, 3);
	free(words);
	return NULL;
}

/* A fill and two kernels as a graph, twice. */
static void run_graph(CUdeviceptr memory, CUstream stream)
{
	CUgraphExec executable;
	CUgraph graph;

	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK(cuMemsetD32Async(memory, 5, WORDS, stream));
	fill(memory, 6, stream);
	fill(memory, 7, stream);
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
	CHECK(cuGraphLaunch(executable, stream));
	CHECK(cuGraphLaunch(executable, stream));
}

static void run_streams(void)
{
	uint32_t *words = malloc(WORDS * sizeof(*words)), *pinned;
	CUdeviceptr first = allocate(), second = allocate();
	CUstream a, b;

	CHECK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemHostAlloc((void **)&pinned, WORDS * sizeof(*pinned), 0));
	memset(words, 1, WORDS * sizeof(*words));
	CHECK(cuMemcpyHtoD_v2(first, words, WORDS * sizeof(*words)));
	nvtx_push("outer \"quoted\"\n\xc3\xa4\xff");
	nvtx_push("inner");
	for (int i = 0; i < 3; i++)
		spin(2000000, a);
	fill(second, 8, b);
	CHECK(cuMemcpyDtoDAsync_v2(first, second, WORDS * sizeof(*words), b));
	CHECK(cuMemcpyDtoHAsync_v2(pinned, first, WORDS * sizeof(*words), b));
	CHECK(cuStreamSynchronize(b));
	expect(pinned, 8);
	nvtx_mark("half");
	CHECK(cuMemsetD32Async(first, 9, WORDS, a));
	CHECK(cuStreamSynchronize(a));
	nvtx_pop();
	run_graph(second, a);
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH_v2(words, first, WORDS * sizeof(*words)));
	expect(words, 9);
	CHECK(cuMemcpyDtoH_v2(words, second, WORDS * sizeof(*words)));
	expect(words, 7);
	nvtx_pop();
	free(words);
}

static int work(void)
{
	CUcontext context = open_driver();
	pthread_t thread;

	nvtx_open();
	if (pthread_create(&thread, NULL, run_thread, context))
		fail("pthread_create", 0);
	pthread_join(thread, NULL);
	run_streams();
	return 0;
}

static int fork_and_work(void)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		return work();
	return work() || waitpid(child, &status, 0) != child || status;
}

static int fault(void)
{
	CUdeviceptr memory;
	CUresult r;

	open_driver();
	memory = allocate();
	fill(memory, 1, NULL);
	CHECK(cuCtxSynchronize());
	r = cuLaunchKernel(kernel("crash_trap"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	if (r == CUDA_SUCCESS)
		r = cuCtxSynchronize();
	printf("%d\n", (int)r);
	return r == CUDA_SUCCESS;
}

static int many(unsigned long count)
{
	uint32_t *words = malloc(WORDS * sizeof(*words));
	CUfunction function;
	CUdeviceptr memory;
	uint64_t one = 1;
	uint32_t value = 0;
	void *arguments[] = {&memory, &value, &one};

	open_driver();
	function = kernel("fill");
	memory = allocate();
	for (unsigned long i = 1; i <= count; i++) {
		value = (uint32_t)i;
		CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
	}
	CHECK(cuMemcpyDtoH_v2(words, memory, sizeof(*words)));
	if (*words != count)
		fail("the last launch", (int)*words);
	free(words);
	return 0;
}

static int leave(void)
{
	open_driver();
	for (int i = 0; i < 3; i++)
		spin(1000000, NULL);
	return 0;
}

static int spin_often(unsigned long count, unsigned long ns)
{
	open_driver();
	for (unsigned long i = 0; i < count; i++)
		spin(ns, NULL);
	CHECK(cuCtxSynchronize());
	return 0;
}

static int steps(void)
{
	char line[16];

	open_driver();
	while (fgets(line, sizeof(line), stdin)) {
		spin(1000000, NULL);
		CHECK(cuCtxSynchronize());
		puts("done");
		fflush(stdout);
	}
	return 0;
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";

	if (!strcmp(what, "work"))
		return work();
	if (!strcmp(what, "fork"))
		return fork_and_work();
	if (!strcmp(what, "fault"))
		return fault();
	if (!strcmp(what, "many") && count == 3)
		return many(strtoul(arguments[2], NULL, 10));
	if (!strcmp(what, "leave"))
		return leave();
	if (!strcmp(what, "spin") && count == 4)
		return spin_often(strtoul(arguments[2], NULL, 10), strtoul(arguments[3], NULL, 10));
	if (!strcmp(what, "steps"))
		return steps();
	return 64;
}
