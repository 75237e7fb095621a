// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The library inside a process that does what processes do: calls it too early, from a forked child, from a
// host function, with nothing, with what is no more; handles signals, ends threads and contexts at any time,
// unloads it; and everything at once from many threads. Run against NVIDIA's library, the same tests must
// pass, but for those that say otherwise.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

static bool is_native(void)
{
	return getenv("FRMPS_TEST_NATIVE") != NULL;
}

/* ---- every call there is ---- */

static const char *const calls[] = {
#define NAME_FULL(symbol)  #symbol,
#define NAME_LOCAL(symbol) #symbol,
#define NAME_REFUSED(symbol)
#define API(symbol, base, since, variant, kind, note) NAME_##kind(symbol)
#include "client/api.def"
#undef API
};

/* As many words as any call takes, in registers and behind them; structs that go by value are in them. */
typedef CUresult any_call(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
	uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static CUresult call_with_nothing(const char *symbol)
{
	any_call *call = (any_call *)dlsym(RTLD_DEFAULT, symbol);

	ck_assert_msg(call, "no %s", symbol);
	return call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
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
	return false;
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
START_TEST(calls_come_too_early)
{
	ck_assert_int_eq(is_native() ? 0 : count_too_early(), 0);
}
END_TEST

static int call_in_child(int unused)
{
	(void)unused;
	return count_too_early() || cuInit(0) != CUDA_ERROR_NOT_INITIALIZED;
}

START_TEST(a_forked_child_has_nothing)
{
	CUstream stream;

	if (is_native())
		return;
	driver_open();
	ck_cuda(cuStreamCreate(&stream, 0));
	ck_cuda(cuMemsetD8Async_ptsz(device_words(1, 0), 1, 4, NULL));
	ck_assert_int_eq(exit_status(spawn(call_in_child, 0)), 0);
	ck_cuda(cuCtxSynchronize());
}
END_TEST

/* Calls with all arguments zero: errors, or what they mean; never the end of the program, which NVIDIA's
 * library does not promise. */
START_TEST(nothing_is_asked_of_everything)
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
END_TEST

/* ---- forks ---- */

typedef CUresult storage_put(CUcontext context, void *key, void *value, void *destructor);
typedef CUresult storage_get(void **value, CUcontext context, void *key);

/* Values of the runtime and of its libraries, which take them for a sign that all is as it was. */
static void *const *storage(void)
{
	static const CUuuid id = {{(char)0xc6, (char)0x93, 0x33, 0x6e, 0x11, 0x21, (char)0xdf, 0x11,
		(char)0xa8, (char)0xc3, 0x68, (char)0xf3, 0x55, (char)0xd8, (char)0x95, (char)0x93}};
	const void *table;

	ck_cuda(cuGetExportTable(&table, &id));
	return table;
}

static int a_key;

static int look_in_child(int unused)
{
	CUcontext context = (CUcontext)-1;
	void *value;

	(void)unused;
	return ((storage_get *)storage()[2])(&value, context, &a_key) == CUDA_SUCCESS;
}

START_TEST(a_forked_child_does_not_find_its_parents_values)
{
	CUcontext context;
	void *value;

	if (is_native())
		return;
	driver_attach();
	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(((storage_put *)storage()[0])(context, &a_key, &context, NULL));
	ck_cuda(((storage_get *)storage()[2])(&value, context, &a_key));
	ck_assert_ptr_eq(value, &context);
	ck_assert_int_eq(exit_status(spawn(look_in_child, 0)), 0);
}
END_TEST

/* ---- host functions ---- */

struct permission {
	CUcontext context;
	CUfunction function;
	CUdeviceptr memory;
	CUstream own, idle, busy; /* busy: waits for a word */
	CUevent event;
	CUresult refused[9], permitted[5], waiting[3];
	sigset_t blocked;
};

/* Until there is no place left behind what waits. */
static CUresult record_many(CUevent event, CUstream stream)
{
	CUresult r = CUDA_SUCCESS;

	for (int i = 0; r == CUDA_SUCCESS && i < 100000; i++)
		r = cuEventRecord(event, stream);
	return r;
}

static void ask_permission(void *user)
{
	struct permission *p = user;
	CUresult *refused = p->refused, *permitted = p->permitted;
	uint32_t one = 1;
	void *pointer, *arguments[] = {&p->memory, &one};
	CUcontext current;
	CUdeviceptr memory;
	CUstream stream;
	size_t free_bytes, total_bytes;
	int value;

	*refused++ = cuCtxGetCurrent(&current);
	*refused++ = cuCtxSetCurrent(p->context);
	*refused++ = cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
	*refused++ = cuMemGetInfo_v2(&free_bytes, &total_bytes);
	*refused++ = cuMemAlloc_v2(&memory, 100);
	*refused++ = cuMemHostAlloc(&pointer, 100, 0);
	*refused++ = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
	*refused++ = cuMemcpyHtoD_v2(p->memory, &one, 4);
	*refused++ = cuLaunchKernel(p->function, 1, 1, 1, 1, 1, 1, 0, p->idle, arguments, NULL);
	*permitted++ = cuStreamQuery(p->own);
	*permitted++ = cuStreamQuery(p->idle);
	*permitted++ = cuStreamSynchronize(p->idle);
	*permitted++ = cuEventQuery(p->event);
	*permitted++ = cuEventRecord(p->event, p->idle);
	pthread_sigmask(SIG_BLOCK, NULL, &p->blocked);
	if (is_native()) /* which may wait for ever */
		return;
	p->waiting[0] = cuStreamSynchronize(p->busy);
	p->waiting[1] = cuCtxSynchronize();
	p->waiting[2] = record_many(p->event, p->busy);
}

static void ask_in_callback(CUstream stream, CUresult status, void *user)
{
	(void)stream;
	(void)status;
	ask_permission(user);
}

static void expect_permissions(const struct permission *p)
{
	static const CUresult permitted[] = {
		CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUDA_SUCCESS, CUDA_SUCCESS, CUDA_SUCCESS};

	for (int i = 0; i < 9; i++)
		ck_assert_msg(p->refused[i] == CUDA_ERROR_NOT_PERMITTED, "call %d is %d", i, p->refused[i]);
	for (int i = 0; i < 5; i++)
		ck_assert_msg(p->permitted[i] == permitted[i], "call %d is %d", i, p->permitted[i]);
	for (int i = 0; i < 3 && !is_native(); i++)
		ck_assert_int_eq(p->waiting[i], CUDA_ERROR_NOT_PERMITTED);
	for (int i = 1; i < 32; i++)
		ck_assert_int_eq(sigismember(&p->blocked, i), 0);
}

/* But for some that do not wait. */
START_TEST(host_functions_may_not_call_the_driver)
{
	struct permission p = {0};
	uint32_t *gate;

	driver_open();
	ck_cuda(cuCtxGetCurrent(&p.context));
	p.function = kernel("count_up");
	p.memory = device_words(1, 0);
	ck_cuda(cuStreamCreate(&p.own, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&p.idle, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&p.busy, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&p.event, CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuMemHostAlloc((void **)&gate, 64, 0));
	*gate = 0;
	ck_cuda(cuStreamWaitValue32_v2(p.busy, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuEventRecord(p.event, p.idle));
	ck_cuda(cuStreamSynchronize(p.idle));
	if (_i)
		ck_cuda(cuStreamAddCallback(p.own, ask_in_callback, &p, 0));
	else
		ck_cuda(cuLaunchHostFunc(p.own, ask_permission, &p));
	ck_cuda(cuStreamSynchronize(p.own));
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(p.busy));
	expect_permissions(&p);
}
END_TEST

static sem_t is_running, may_end;

static void run_until_told(void *unused)
{
	(void)unused;
	sem_post(&is_running);
	sem_wait(&may_end);
}

/* Every thread of the program has the signal blocked. */
static int wait_for_signal(int unused)
{
	CUstream stream;
	sigset_t set;
	int signal;

	(void)unused;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sem_init(&is_running, 0, 0);
	sem_init(&may_end, 0, 0);
	driver_attach();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuLaunchHostFunc(stream, run_until_told, NULL));
	sem_wait(&is_running);
	kill(getpid(), SIGUSR1);
	sigwait(&set, &signal);
	sem_post(&may_end);
	ck_cuda(cuStreamSynchronize(stream));
	return signal != SIGUSR1;
}

START_TEST(a_signal_that_is_waited_for_does_not_come_in_a_host_function)
{
	ck_assert_int_eq(exit_status(spawn(wait_for_signal, 0)), 0);
}
END_TEST

#define PAGE 4096u

static uint8_t *guarded; /* a page */

static void open_guarded(int signal, siginfo_t *info, void *unused)
{
	uint8_t *at = info->si_addr;

	(void)signal;
	(void)unused;
	if (at < guarded || at >= guarded + PAGE || mprotect(guarded, PAGE, PROT_READ | PROT_WRITE) != 0)
		_exit(3);
}

/* Memory with a page that the program notices the first write to, as garbage collectors and checkpoints do.
 */
static uint8_t *guarded_memory(size_t bytes, size_t page)
{
	struct sigaction action = {.sa_sigaction = open_guarded, .sa_flags = SA_SIGINFO};
	uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert(memory != MAP_FAILED);
	guarded = memory + page * PAGE;
	ck_assert_int_eq(mprotect(guarded, PAGE, PROT_READ), 0);
	sigaction(SIGSEGV, &action, NULL);
	return memory;
}

static void write_guarded(void *unused)
{
	(void)unused;
	guarded[0] = 7;
}

static int fault_in_host_function(int unused)
{
	CUstream stream;

	(void)unused;
	driver_attach();
	guarded_memory(PAGE, 0);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuLaunchHostFunc(stream, write_guarded, NULL));
	ck_cuda(cuStreamSynchronize(stream));
	return guarded[0] != 7;
}

/* Large enough for two threads to write it, and the page is the second one's. */
static int fault_in_copy(int unused)
{
	size_t bytes = 1 << 20;
	uint8_t *out;
	CUdeviceptr memory;

	(void)unused;
	driver_attach();
	out = guarded_memory(bytes, bytes * 3 / 4 / PAGE);
	ck_cuda(cuMemAlloc_v2(&memory, bytes));
	ck_cuda(cuMemsetD8_v2(memory, 7, bytes));
	ck_cuda(cuMemcpyDtoH_v2(out, memory, bytes));
	return out[0] != 7 || guarded[0] != 7 || out[bytes - 1] != 7;
}

START_TEST(the_programs_handlers_see_its_faults)
{
	ck_assert_int_eq(exit_status(spawn(_i ? fault_in_copy : fault_in_host_function, 0)), 0);
}
END_TEST

/* ---- threads that are cancelled ---- */

static void *allocate_cancelled(void *unused)
{
	CUcontext context = unused;
	CUdeviceptr memory;

	ck_cuda(cuCtxSetCurrent(context));
	pthread_cancel(pthread_self());
	cuMemAlloc_v2(&memory, 100 << 20);
	pthread_testcancel();
	return NULL;
}

/* It leaves nobody waiting for it. */
START_TEST(a_thread_is_cancelled_in_a_call)
{
	CUcontext context;
	CUdeviceptr memory;
	pthread_t thread;
	void *result;

	driver_attach();
	ck_cuda(cuCtxGetCurrent(&context));
	ck_assert_int_eq(pthread_create(&thread, NULL, allocate_cancelled, context), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_cuda(cuMemAlloc_v2(&memory, 100 << 20));
}
END_TEST

/* ---- unloading ---- */

typedef CUresult call_init(unsigned int flags);
typedef CUresult call_retain(CUcontext *context, CUdevice device);
typedef CUresult call_set_current(CUcontext context);
typedef CUresult call_host_function(CUstream stream, CUhostFn function, void *user);
typedef CUresult call_synchronize(CUstream stream);

static void do_nothing(void *unused)
{
	(void)unused;
}

static void *symbol_of(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	ck_assert_msg(symbol, "no %s", name);
	return symbol;
}

/* Leaves a thread of the library behind, and something to be done at its own end. */
static void *use_and_unload(void *library)
{
	CUcontext context;

	ck_cuda(((call_init *)symbol_of(library, "cuInit"))(0));
	ck_cuda(((call_retain *)symbol_of(library, "cuDevicePrimaryCtxRetain"))(&context, 0));
	ck_cuda(((call_set_current *)symbol_of(library, "cuCtxSetCurrent"))(context));
	ck_cuda(((call_host_function *)symbol_of(library, "cuLaunchHostFunc_ptsz"))(NULL, do_nothing, NULL));
	ck_cuda(((call_synchronize *)symbol_of(library, "cuStreamSynchronize_ptsz"))(NULL));
	ck_assert_int_eq(dlclose(library), 0);
	return NULL;
}

/* The program is linked with the library, so it loads another copy. */
static int unload(int unused)
{
	char path[64];
	Dl_info own;
	int fd = memfd_create("libcuda", MFD_CLOEXEC), original;
	pthread_t thread;
	void *library;

	(void)unused;
	ck_assert(fd >= 0 && dladdr((void *)cuInit, &own));
	original = open(own.dli_fname, O_RDONLY | O_CLOEXEC);
	while (sendfile(fd, original, NULL, 1 << 20) > 0)
		continue;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(library, "%s", dlerror());
	ck_assert_int_eq(pthread_create(&thread, NULL, use_and_unload, library), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	/* The thread of host functions looks around ten times a second. */
	pass_time(250);
	return 0;
}

START_TEST(the_library_is_unloaded_while_it_works)
{
	if (!is_native())
		ck_assert_int_eq(exit_status(spawn(unload, 0)), 0);
}
END_TEST

/* ---- contexts ---- */

static void *retain_and_release(void *image)
{
	int rounds = is_native() ? 5 : 50;

	for (int i = 0; i < rounds; i++) {
		CUcontext context;
		CUdeviceptr memory;
		CUmodule module;

		ck_cuda(cuDevicePrimaryCtxRetain(&context, 0));
		ck_cuda(cuCtxSetCurrent(context));
		ck_cuda(cuMemAlloc_v2(&memory, 1000));
		ck_cuda(cuMemsetD8_v2(memory, 1, 1000));
		ck_cuda(cuMemFree_v2(memory));
		/* To be unloaded with the context: that takes a while. */
		ck_cuda(cuModuleLoadData(&module, image));
		ck_cuda(cuCtxSetCurrent(NULL));
		ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	}
	return NULL;
}

/* Who has retained it can use it, whoever else has just released it. */
START_TEST(a_retained_context_stays)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	pthread_t threads[4];

	ck_cuda(cuInit(0));
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, retain_and_release, image), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	free(image);
}
END_TEST

static sem_t is_ending;

static void end_slowly(CUcontext context, void *key, void *value)
{
	(void)context;
	(void)key;
	(void)value;
	sem_post(&is_ending);
	pass_time(100);
}

static void *retain_at_the_end(void *unused)
{
	CUcontext context;
	CUdeviceptr memory;

	(void)unused;
	sem_wait(&is_ending);
	ck_cuda(cuDevicePrimaryCtxRetain(&context, 0));
	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuMemAlloc_v2(&memory, 1000));
	ck_cuda(cuMemsetD8_v2(memory, 1, 1000));
	return NULL;
}

/* The runtime's values of a context end with it, and while they do, another thread wants it again. */
START_TEST(a_context_is_retained_while_it_ends)
{
	unsigned int flags;
	CUcontext context;
	pthread_t thread;
	int active;

	if (is_native())
		return;
	sem_init(&is_ending, 0, 0);
	driver_attach();
	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(((storage_put *)storage()[0])(context, &a_key, &context, (void *)end_slowly));
	ck_assert_int_eq(pthread_create(&thread, NULL, retain_at_the_end, NULL), 0);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	pthread_join(thread, NULL);
	ck_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert(active);
	ck_cuda(cuCtxSynchronize());
}
END_TEST

/* ---- what is no more ---- */

static CUresult launch_function(CUfunction function, CUstream stream)
{
	CUdeviceptr word = 0;
	uint32_t one = 1;
	void *arguments[] = {&word, &one};

	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

/* NVIDIA's library follows handles of streams, events and graphs' nodes wherever they lead. */
START_TEST(destroyed_streams_and_events_are_refused)
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
END_TEST

START_TEST(what_was_destroyed_is_refused)
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
END_TEST

START_TEST(nothing_else_is_left_of_them)
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
END_TEST

/* ---- everything at once ---- */

#define WORKERS 8
#define ROUNDS	60

struct worker {
	pthread_t thread;
	CUcontext context;
	const void *image;
	uint32_t number;
	int rounds; /* that were as they should be */
};

static void expect_word(CUdeviceptr address, uint32_t value, CUstream stream)
{
	uint32_t word = ~value;

	ck_cuda(cuMemcpyDtoHAsync_v2(&word, address, 4, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word, value);
}

static void use_module(const struct worker *worker, CUdeviceptr word, CUstream stream)
{
	uint32_t by = worker->number + 1;
	void *arguments[] = {&word, &by};
	CUfunction function;
	CUmodule module;

	ck_cuda(cuModuleLoadData(&module, worker->image));
	ck_cuda(cuModuleGetFunction(&function, module, "count_up"));
	ck_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
	ck_cuda(cuModuleUnload(module));
}

static void use_graph(CUdeviceptr words, uint32_t value, uint32_t *from, CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ck_cuda(cuMemsetD32Async(words, value, 1, stream));
	ck_cuda(cuMemcpyHtoDAsync_v2(words + 4, from, 4, stream));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_cuda(cuGraphDestroy(graph));
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamSynchronize(stream));
	*from = value + 1;
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuGraphExecDestroy(exec));
}

static void use_pool(uint32_t value, CUstream stream)
{
	CUdeviceptr memory;

	ck_cuda(cuMemAllocAsync(&memory, 4096, stream));
	ck_cuda(cuMemsetD32Async(memory, value, 1024, stream));
	expect_word(memory + 4092, value, stream);
	ck_cuda(cuMemFreeAsync(memory, stream));
}

static void work_a_round(const struct worker *worker, int round)
{
	uint32_t value = worker->number * 1000 + (uint32_t)round, staged = value, *pinned;
	CUdeviceptr words;
	CUstream stream, second;
	CUevent event;

	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreateWithPriority(&second, CU_STREAM_NON_BLOCKING, -1));
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuMemAlloc_v2(&words, 4096));
	ck_cuda(cuMemHostAlloc((void **)&pinned, 4096, 0));
	*pinned = value;
	ck_cuda(cuMemcpyHtoDAsync_v2(words, pinned, 4, stream));
	if (round % 8 == 0)
		use_module(worker, words, stream);
	ck_cuda(cuEventRecord(event, stream));
	ck_cuda(cuStreamWaitEvent(second, event, 0));
	expect_word(words, round % 8 == 0 ? value + worker->number + 1 : value, second);
	use_graph(words, value, &staged, stream);
	expect_word(words, value, stream);
	expect_word(words + 4, value + 1, stream);
	use_pool(value, second);
	ck_cuda(cuEventDestroy_v2(event));
	ck_cuda(cuMemFreeHost(pinned));
	ck_cuda(cuMemFree_v2(words));
	ck_cuda(cuStreamDestroy_v2(second));
	ck_cuda(cuStreamDestroy_v2(stream));
}

static void *work(void *data)
{
	struct worker *worker = data;

	ck_cuda(cuCtxSetCurrent(worker->context));
	for (; worker->rounds < ROUNDS; worker->rounds++)
		work_a_round(worker, worker->rounds);
	return NULL;
}

START_TEST(everything_happens_at_once)
{
	struct worker workers[WORKERS] = {{0}};
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUcontext context;

	driver_attach();
	ck_cuda(cuCtxGetCurrent(&context));
	for (uint32_t i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.context = context, .image = image, .number = i};
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		ck_assert_int_eq(workers[i].rounds, ROUNDS);
	}
	ck_cuda(cuCtxSynchronize());
	free(image);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("process");
	TCase *tests = tcase_create("process");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	tcase_add_test(tests, calls_come_too_early);
	tcase_add_test(tests, a_forked_child_has_nothing);
	tcase_add_test(tests, nothing_is_asked_of_everything);
	tcase_add_test(tests, a_forked_child_does_not_find_its_parents_values);
	tcase_add_loop_test(tests, host_functions_may_not_call_the_driver, 0, 2);
	tcase_add_test(tests, a_signal_that_is_waited_for_does_not_come_in_a_host_function);
	tcase_add_loop_test(tests, the_programs_handlers_see_its_faults, 0, 2);
	tcase_add_test(tests, a_thread_is_cancelled_in_a_call);
	tcase_add_test(tests, the_library_is_unloaded_while_it_works);
	tcase_add_test(tests, a_retained_context_stays);
	tcase_add_test(tests, a_context_is_retained_while_it_ends);
	tcase_add_test(tests, destroyed_streams_and_events_are_refused);
	tcase_add_test(tests, what_was_destroyed_is_refused);
	tcase_add_test(tests, nothing_else_is_left_of_them);
	tcase_add_test(tests, everything_happens_at_once);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
