// The library inside a process that does what processes do: forks, calls from host functions,
// handles signals and faults of its own, unloads the library.
// The tests run against NVIDIA's library as well and must pass there, but for those that say
// otherwise.

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "tests/lib/scarce.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/graphs.h"
#include "tests/system/program.h"

/* ---- forks ---- */

TEST(process, a_forked_child_gets_an_error_and_the_parent_goes_on)
{
	CUdeviceptr p;
	uint32_t word = 5;
	pid_t child;

	if (is_native())
		return;
	driver_open();
	p = device_words(1, 0);
	child = fork();
	if (child == 0)
		_exit(cuMemcpyDtoH_v2(&word, p, 4) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	ck_assert_int_eq(exit_status(child), 0);
	ck_cuda(cuMemcpyDtoH_v2(&word, p, 4));
	ck_assert_uint_eq(word, 0);
}

/* What is done at the end of a process and of a thread is done in the child as well. */
static void *end_in_a_child(void *context)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr word;
	pid_t child;

	ck_cuda(cuCtxSetCurrent(context));
	word = device_words(1, 0);
	/* The thread has something to give back. */
	ck_cuda(cuMemsetD32Async_ptsz(word, 7, 1, NULL));
	child = fork();
	if (child == 0)
		exit(0);
	ck_assert_int_eq(exit_status(child), 0);
	child = fork();
	if (child == 0)
		return NULL;
	ck_assert_int_eq(exit_status(child), 0);
	ck_cuda(cuMemsetD32Async_ptsz(word, 8, 1, NULL));
	ck_cuda(cuStreamSynchronize_ptsz(NULL));
	ck_assert_uint_eq(word_at(word), 8);
	ck_cuda(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	return context;
}

static int outlive_children(int unused)
{
	CUcontext context;
	pthread_t thread;
	void *there;

	(void)unused;
	driver_open();
	ck_cuda(cuCtxGetCurrent(&context));
	ck_assert_int_eq(pthread_create(&thread, NULL, end_in_a_child, context), 0);
	/* In a child there is nobody but that thread: with it ends the process. */
	ck_assert_int_eq(pthread_join(thread, &there), 0);
	ck_assert_ptr_eq(there, context);
	ck_cuda(cuCtxSynchronize());
	return 0;
}

TEST(process, children_end_and_the_parent_goes_on)
{
	/* With the driver such a child crashes at its end. */
	if (is_native())
		return;
	ck_assert_int_eq(exit_status(spawn(outlive_children, 0)), 0);
}

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
TEST_LOOP(process, host_functions_may_not_call_the_driver, 0, 2)
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

TEST(process, a_signal_that_is_waited_for_does_not_come_in_a_host_function)
{
	ck_assert_int_eq(exit_status(spawn(wait_for_signal, 0)), 0);
}

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

/* Memory with a page that the program notices the first write to, as garbage collectors and
 * checkpoints do.
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

TEST_LOOP(process, the_programs_handlers_see_its_faults, 0, 2)
{
	ck_assert_int_eq(exit_status(spawn(_i ? fault_in_copy : fault_in_host_function, 0)), 0);
}

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

TEST(process, the_library_is_unloaded_while_it_works)
{
	if (!is_native())
		ck_assert_int_eq(exit_status(spawn(unload, 0)), 0);
}

/* ---- descriptors ---- */

static int live_without_standard_descriptors(int first)
{
	int file = memfd_create("private", MFD_CLOEXEC);
	CUdeviceptr pointer, word;
	uint8_t *page;

	ck_assert_int_eq(ftruncate(file, 4096), 0);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	close(file);
	for (int fd = first; fd <= STDERR_FILENO; fd++)
		close(fd);
	driver_attach();
	word = device_words(1, 0);
	/* The library has something to say. */
	ck_cuda(cuMemHostRegister_v2(page, 4096, 0));
	if (cuMemHostGetDevicePointer_v2(&pointer, page, 0) != CUDA_ERROR_NOT_SUPPORTED)
		return 1;
	/* As a program does that becomes a daemon. */
	for (int fd = first; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) >= 0 || open("/dev/null", O_RDWR) != fd)
			return 2;
	ck_cuda(cuMemHostUnregister(page));
	return word_at(word) != 0;
}

TEST_LOOP(process, the_session_is_not_in_the_place_of_standard_error, 0, STDERR_FILENO + 1)
{
	if (!is_native())
		ck_assert_int_eq(exit_status(spawn(live_without_standard_descriptors, _i)), 0);
}

/* ---- when there is nothing left ---- */

#if SCARCE_POSSIBLE
/* How a call ends that asks the service. */
static CUresult ask_service(void)
{
	size_t free_bytes, total_bytes;

	return cuMemGetInfo_v2(&free_bytes, &total_bytes);
}

/* With a piece of memory of each size: what a call needs first may fit, and the next may not. */
static int run_out_of_memory(int unused)
{
	int wrong = 0;

	(void)unused;
	/* What is free stays in the process. */
	mallopt(M_MMAP_THRESHOLD, 1 << 25);
	mallopt(M_TRIM_THRESHOLD, 1 << 28);
	driver_attach();
	ck_cuda(ask_service());
	for (size_t bytes = 1 << 15; bytes < 1 << 18; bytes += 1 << 14) {
		void *volatile room = malloc(bytes);
		CUresult r;

		scarce_begin();
		free(room);
		r = ask_service();
		scarce_end();
		wrong += r != CUDA_SUCCESS && r != CUDA_ERROR_OUT_OF_MEMORY;
	}
	return wrong ? 1 : ask_service() != CUDA_SUCCESS;
}
#endif

/* Modules, fat binaries with text and descriptions of graphs go to the service in files of its
 * own. */
static int work_without_files(int unused)
{
	const struct rlimit none = {0, 0};
	void *image = read_file(getenv("FRMPS_TEST_KERNELS")), *source = kernels_source("");
	CUmodule module;
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr p;
	CUstream stream;
	uint32_t word = 0;

	(void)unused;
	setrlimit(RLIMIT_FSIZE, &none);
	driver_open();
	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuModuleUnload(module));
	if (is_without_device())
		ck_cuda(cuModuleLoadData(&module, source));
	ck_cuda(cuModuleLoad(&module, getenv("FRMPS_TEST_KERNELS")));
	p = device_words(1000, 1);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(cuMemsetD32Async(p, 5, 1000, stream));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuMemcpyDtoH_v2(&word, p + 4 * 999, 4));
	free(source);
	free(image);
	return word != 5;
}

TEST(process, a_program_that_may_write_no_files_works)
{
	ck_assert_int_eq(exit_status(spawn(work_without_files, 0)), 0);
}

/* There are numbers left for so many more. */
static void leave_descriptors(const struct rlimit *limit, int count)
{
	int next = dup(0);

	close(next);
	setrlimit(RLIMIT_NOFILE,
		&(struct rlimit){.rlim_cur = (rlim_t)(next + count), .rlim_max = limit->rlim_max});
}

/* Nothing for the socket, or not enough for what comes with the service's answer. */
static int start_without_descriptors(int count)
{
	char text[4096];
	size_t size = sizeof(text);
	struct rlimit limit;
	CUresult r;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	leave_descriptors(&limit, count);
	r = cuInit(0);
	setrlimit(RLIMIT_NOFILE, &limit);
	ck_cuda(cuLogsDumpToMemory(NULL, text, &size, 0));
	if (r != CUDA_ERROR_MPS_CONNECTION_FAILED || !strstr(text, "oo many open files"))
		return 1;
	return cuInit(0) != CUDA_SUCCESS;
}

TEST_LOOP(process, a_program_without_descriptors_is_told_at_its_start, 0, 4)
{
	if (!is_native())
		ck_assert_int_eq(exit_status(spawn(start_without_descriptors, _i)), 0);
}

static int run_out_of_descriptors(int unused)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS")), *pinned;
	struct rlimit limit;
	CUmodule module;
	int wrong = 0;

	(void)unused;
	driver_attach();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	leave_descriptors(&limit, 0);
	/* More often than the service keeps something for a program that takes nothing. */
	for (int i = 0; i < 200; i++) {
		wrong += cuModuleLoadData(&module, image) != CUDA_ERROR_OUT_OF_MEMORY;
		wrong += cuMemHostAlloc(&pinned, 16 << 20, 0) != CUDA_ERROR_OUT_OF_MEMORY;
	}
	setrlimit(RLIMIT_NOFILE, &limit);
	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuMemHostAlloc(&pinned, 16 << 20, 0));
	free(image);
	return wrong != 0;
}

TEST(process, a_program_without_memory_keeps_its_session)
{
#if SCARCE_POSSIBLE
	if (!is_native())
		ck_assert_int_eq(exit_status(spawn(run_out_of_memory, 0)), 0);
#endif
}

TEST(process, a_program_without_descriptors_keeps_its_session)
{
	if (!is_native())
		ck_assert_int_eq(exit_status(spawn(run_out_of_descriptors, 0)), 0);
}

/* ---- places ---- */

/* Memory of its own, memory for reading, none. */
static void check_registrations(CUdeviceptr word)
{
	static const uint32_t kept[2048] = {7};
	const size_t bytes = 8192;
	void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*(uint32_t *)own = 7;
	ck_cuda(cuMemHostRegister_v2(own, bytes, 0));
	ck_cuda(cuMemcpyHtoD_v2(word, own, 4));
	ck_cuda(cuMemHostUnregister(own));
	munmap(own, bytes);
	ck_assert_int_eq(cuMemHostRegister_v2(own, bytes, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemHostRegister_v2((void *)(uintptr_t)kept, 4, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemHostRegister_v2((void *)(uintptr_t)kept, 4, CU_MEMHOSTREGISTER_READ_ONLY));
	ck_cuda(cuMemHostUnregister((void *)(uintptr_t)kept));
}

/* In the service's folder there is nothing but its socket. */
static int live_without_proc(int unused)
{
	const char *socket = strrchr(common_service.socket, '/');
	CUdeviceptr word;

	(void)unused;
	setenv("FRMPS_SOCKET", socket, 1);
	if (chroot(common_service.folder) != 0 || chdir("/") != 0 || access("/proc", F_OK) == 0)
		return 2;
	driver_attach();
	word = device_words(1, 0);
	check_registrations(word);
	return word_at(word) != 7;
}

/* Only root can go there. */
TEST(process, a_program_needs_no_proc)
{
	if (!is_native() && geteuid() == 0)
		ck_assert_int_eq(exit_status(spawn(live_without_proc, 0)), 0);
}

/* ---- CUDA_LAUNCH_BLOCKING ---- */

enum { BLOCKS, BLOCKS_NOT };

/* Long enough that it is not done by accident. */
static CUresult spin_for(CUstream stream)
{
	uint64_t ns = 50000000;
	void *arguments[] = {&ns};

	return launch("spin_ns", 1, 1, stream, arguments);
}

static int launch_and_look(int how)
{
	uint32_t *word;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	setenv("CUDA_LAUNCH_BLOCKING", how == BLOCKS ? "1" : "0", 1);
	driver_open();
	word = shared_word();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	if (how == BLOCKS_NOT) {
		ck_cuda(launch_spin(word, 1, stream));
		ck_assert_int_eq(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
		__atomic_store_n(word, 1, __ATOMIC_RELEASE);
		ck_cuda(cuStreamSynchronize(stream));
		return 0;
	}
	ck_cuda(spin_for(stream));
	ck_cuda(cuStreamQuery(stream));
	ck_cuda(spin_for(CU_STREAM_PER_THREAD));
	ck_cuda(cuStreamQuery(CU_STREAM_PER_THREAD));
	ck_cuda(spin_for(NULL));
	ck_cuda(cuStreamQuery(NULL));
	/* A launch that is captured waits for nothing. */
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(spin_for(stream));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_assert(is_native() || cuStreamQuery(stream) == CUDA_SUCCESS);
	ck_assert_int_eq(launch("crash_trap", 1, 1, stream, NULL), CUDA_ERROR_LAUNCH_FAILED);
	ck_assert_int_eq(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
	return 0;
}

/* The launch waits for its kernel and returns the kernel's error. */
TEST(process, launches_block_where_that_is_asked_for)
{
	ck_assert_int_eq(exit_status(spawn(launch_and_look, BLOCKS)), 0);
	ck_assert_int_eq(exit_status(spawn(launch_and_look, BLOCKS_NOT)), 0);
}

/* ---- variables of the driver's compiler ---- */

static int load_text(int unused)
{
	CUmodule module;

	(void)unused;
	setenv("CUDA_DISABLE_PTX_JIT", "1", 1);
	driver_attach();
	return (int)cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n.address_size 64\n");
}

/* Which code NVIDIA's library returns is not documented. */
/* By the variable that tools use. @_i: one that is not there changes nothing */
TEST_LOOP(process, a_tool_is_called_once, 0, 2)
{
	const char *tool = getenv("FRMPS_TEST_INJECTED_TOOL"), *seen;

	if (!tool)
		return;
	unsetenv("FRMPS_TEST_INJECTED");
	setenv("CUDA_INJECTION64_PATH", _i ? "/nowhere/tool.so" : tool, 1);
	driver_open();
	ck_cuda(cuInit(0));
	seen = getenv("FRMPS_TEST_INJECTED");
	ck_assert_str_eq(seen ? seen : "never", _i ? "never" : "once");
	ck_assert_uint_eq(word_at(device_words(1, 0)), 0);
}

TEST(process, text_is_refused_where_that_is_asked_for)
{
	if (!is_native())
		ck_assert_int_eq(exit_status(spawn(load_text, 0)), CUDA_ERROR_JIT_COMPILATION_DISABLED);
}

int main(void)
{
	Suite *suite = suite_create("process");
	TCase *tests = tcase_create("process");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "process");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
