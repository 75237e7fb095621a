// What becomes of the work beside a faulting kernel in one CUDA context, and what the driver's debugging modes
// (dump on exception, wait on exception, dump on request) change about it. One run is one fault in one fresh
// process; it prints one line of JSON. Needs a GPU and, for Xid lines, read access to /dev/kmsg.
//
// One file, three programs:
//   nvcc -arch=sm_90 -O2 -cubin -DSURVIVOR_MODULE -o X.survivor.cubin exceptions.cu
//   nvcc -arch=sm_90 -O2 -cubin -DCULPRIT_MODULE -lineinfo -o X.culprit.cubin exceptions.cu
//   nvcc -arch=sm_90 -O2 -lcuda -o X exceptions.cu
//   X fault=trap mode=dump stop=any us=500 blocks=16         (every NAME=VALUE is listed at option_list)
//
// Two processes. The outer one never touches CUDA: it sets the environment of the mode, starts the inner one
// (this program again), waits until that is initialised, takes the lock file (lock=PATH: shared while
// initialising, exclusive while measuring, so several runs can be started together and still measure one at a
// time), says go, and measures how long the inner one takes to be reaped. The inner one owns the context.
// Threads of the inner process: main (culprit and policy), issuer (survivors), observer (spins on the marks),
// querier (cuStreamQuery), and one reader each for the kernel log, NVML, the dump and standard error.
//
// Times in the output are milliseconds since the faulting thread said, one instruction earlier, that it is
// about to fault; null means never seen. "pause" is the longest time between two marks of one survivor stream
// after the fault, "base" the same before it.

#include <stdint.h>

#define LANES 64 /* survivor streams at most */

/* One survivor stream as the device sees it. Device memory, written by kernels of that stream only. */
struct lane {
	uint32_t started, finished, left, arrived;
};

/* One survivor stream as the host sees it. Registered host memory; every word has one writer on the device. */
struct lane_words {
	uint64_t mark;
	uint64_t started, finished, tick;
	uint64_t pad[4];
};

struct host_words {
	struct lane_words lane[LANES];
	uint64_t faulting, culprit_mark, verify_mark, release;
	uint64_t pad[4];
};

#if defined(SURVIVOR_MODULE)

/* Steps longer than this are pauses of the multiprocessor and count as no more than this. */
#define STEP_CYCLES 4000

/* A fixed amount of running time: what passes while the multiprocessor is halted does not count. */
static __device__ void work_for(uint64_t cycles)
{
	long long last = clock64();
	uint64_t done = 0;

	while (done < cycles) {
		long long now = clock64();
		uint64_t step = (uint64_t)(now - last);

		done += step < STEP_CYCLES ? step : STEP_CYCLES;
		last = now;
	}
}

static __device__ void begin(struct lane *lane, volatile struct lane_words *words)
{
	if (blockIdx.x == 0 && threadIdx.x == 0)
		words->started = ++lane->started;
}

/* Every thread leaves a trace in its cell; the last block counts the kernel as finished. */
static __device__ void end(struct lane *lane, volatile struct lane_words *words, uint32_t *cells)
{
	cells[blockIdx.x * blockDim.x + threadIdx.x] += 1;
	__syncthreads();
	if (threadIdx.x)
		return;
	__threadfence();
	if (atomicAdd(&lane->left, 1) != gridDim.x - 1)
		return;
	lane->left = 0;
	__threadfence_system();
	words->finished = ++lane->finished;
}

extern "C" __global__ void survivor_work(
	struct lane *lane, volatile struct lane_words *words, uint32_t *cells, uint64_t cycles)
{
	begin(lane, words);
	work_for(cycles);
	end(lane, words, cells);
}

/* Half of the work before a barrier of the whole grid, half behind it. */
extern "C" __global__ void survivor_cooperative(
	struct lane *lane, volatile struct lane_words *words, uint32_t *cells, uint64_t cycles)
{
	begin(lane, words);
	work_for(cycles / 2);
	__syncthreads();
	if (threadIdx.x == 0) {
		uint32_t ticket = atomicAdd(&lane->arrived, 1);
		uint32_t all = (ticket / gridDim.x + 1) * gridDim.x;

		while (*(volatile uint32_t *)&lane->arrived < all)
			;
	}
	__syncthreads();
	work_for(cycles / 2);
	end(lane, words, cells);
}

/* Runs until the host says so. */
extern "C" __global__ void survivor_endless(struct lane *lane, volatile struct lane_words *words,
	uint32_t *cells, volatile uint64_t *release)
{
	uint64_t tick = 0;

	begin(lane, words);
	while (!*release) {
		work_for(20000);
		if (blockIdx.x == 0 && threadIdx.x == 0)
			words->tick = ++tick;
	}
	end(lane, words, cells);
}

extern "C" __global__ void survivor_mark(volatile uint64_t *mark, uint64_t value)
{
	*mark = value;
}

extern "C" __global__ void survivor_empty(void)
{
}

extern "C" __global__ void survivor_store(uint32_t *to, uint64_t count, uint32_t value)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		to[i] = value;
}

#elif defined(CULPRIT_MODULE)

#include <assert.h>

/* Stands in one instruction of culprit_illegal; the host makes that instruction illegal (spoil()). */
#define SPOIL_IMMEDIATE 0x5eedface

static __device__ bool about_to_fault(volatile uint64_t *word, uint64_t cycles)
{
	long long from = clock64();

	while ((uint64_t)(clock64() - from) < cycles)
		;
	/* A block and a thread that are not zero, to be recognised in a dump. */
	if (blockIdx.x != gridDim.x - 1 || threadIdx.x != 3)
		return false;
	*word = 1;
	__threadfence_system();
	return true;
}

static __device__ __noinline__ uint32_t recurse(uint32_t depth, volatile uint64_t *word)
{
	volatile uint32_t local[64];

	for (unsigned i = 0; i < 64; i++)
		local[i] = depth + i;
	if (depth == 1u << 30)
		return local[*word & 63];
	return recurse(depth + 1, word) + local[(*word + depth) & 63];
}

#define CULPRIT(name, ...)                                                                                   \
	extern "C" __global__ void culprit_##name(volatile uint64_t *word, uint64_t cycles, uint64_t address)    \
	{                                                                                                        \
		if (about_to_fault(word, cycles)) {                                                                  \
			__VA_ARGS__                                                                                      \
		}                                                                                                    \
	}

CULPRIT(none, (void)address;)
CULPRIT(write, *(volatile uint32_t *)address = 1;)
CULPRIT(read, word[1] = *(volatile uint32_t *)address;)
CULPRIT(null, *(volatile uint32_t *)address = 1;)
CULPRIT(misaligned, *(volatile uint32_t *)address = 1;)
CULPRIT(shared, asm volatile("st.shared.u32 [%0], %1;" ::"r"((uint32_t)address), "r"(1) : "memory");)
CULPRIT(trap, asm volatile("trap;");)
CULPRIT(assert, assert(address == 1);)
CULPRIT(stack, word[1] = recurse((uint32_t)address, word);)
CULPRIT(jump, ((void (*)(uint32_t))address)(1);)
CULPRIT(illegal, word[1] = (uint32_t)address ^ SPOIL_IMMEDIATE;)
CULPRIT(breakpoint, asm volatile("brkpt;");)

extern "C" __global__ void culprit_harmless(void)
{
}

#else

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPOIL_IMMEDIATE 0x5eedfaceu
#define ALL_FLAGS                                                                                            \
	"skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,"                  \
	"skip_constbank_memory,skip_abort"
#define VERIFY_BYTES (16u << 20)
#define MARK_EVENTS 64
#define RUN_SECONDS 14 /* a run that takes longer is killed */

/* File descriptors of the inner process. */
enum { CONTROL_FD = 100, STANDBY_FD, DUMP_FD };

/* ---- options ---- */

static struct options {
	const char *cell, *fault, *mode, *flags, *work, *mark, *stop, *dump, *lock, *names, *halt;
	unsigned streams, depth, blocks, threads, us, mib, graph_nodes;
	unsigned culprit_blocks, culprit_threads, culprit_us, before;
	unsigned warm, watch, linger, quiet, trigger, query, nvml, standby, rate, hold, halted, again, second;
} opt = {
	.cell = "", .fault = "none", .mode = "none", .flags = ALL_FLAGS, .work = "kernel", .mark = "value",
	.stop = "go", .dump = "/dev/null", .lock = NULL, .names = "", .halt = "", .streams = 4, .depth = 4, .blocks = 16,
	.threads = 32, .us = 500, .mib = 64, .graph_nodes = 3, .culprit_blocks = 2, .culprit_threads = 64,
	.culprit_us = 200, .before = 5, .warm = 30, .watch = 1500, .linger = 100, .quiet = 300, .trigger = 0,
	.query = 1, .nvml = 0, .standby = 0, .rate = 0, .hold = 0, .halted = 400,
};

static const struct option_row {
	const char *name;
	const char **text;
	unsigned *number;
} option_list[] = {
	{"cell", &opt.cell, NULL}, /* label, printed as it is */
	{"fault", &opt.fault, NULL}, /* none write read null misaligned shared trap assert stack jump illegal breakpoint */
	{"mode", &opt.mode, NULL}, /* words of enter_mode() and context_attributes(), comma-separated */
	{"flags", &opt.flags, NULL}, /* CUDA_COREDUMP_GENERATION_FLAGS; "" sets none */
	{"work", &opt.work, NULL}, /* kernel cooperative graph endless h2d d2h d2d memset */
	{"mark", &opt.mark, NULL}, /* value (stream write) | kernel | event */
	{"stop", &opt.stop, NULL}, /* go | xid | any (Xid, dump begun, text of the driver, error) | N ms after the fault */
	{"dump", &opt.dump, NULL}, /* PATH | memfd | fifo */
	{"hold", NULL, &opt.hold}, /* ms that a dump into a fifo is not read once it has begun */
	{"halt", &opt.halt, NULL}, /* N: the process is stopped (SIGSTOP) N ms after the end of a dump into a fifo */
	{"halted", NULL, &opt.halted}, /* ms that it is stopped */
	{"lock", &opt.lock, NULL}, /* see the head */
	{"names", &opt.names, NULL}, /* "yes": print addresses and names to check a dump reader against */
	{"streams", NULL, &opt.streams}, /* survivors */
	{"depth", NULL, &opt.depth}, /* commands kept in flight per survivor; 0: idle survivors */
	{"blocks", NULL, &opt.blocks}, {"threads", NULL, &opt.threads},
	{"us", NULL, &opt.us}, /* running time of a survivor's kernel */
	{"mib", NULL, &opt.mib}, /* size of a survivor's copy */
	{"culprit_blocks", NULL, &opt.culprit_blocks}, {"culprit_threads", NULL, &opt.culprit_threads},
	{"culprit_us", NULL, &opt.culprit_us}, /* from its start to the fault */
	{"again", NULL, &opt.again}, /* further launches of the faulting kernel right behind the first */
	{"second", NULL, &opt.second}, /* ms after the fault: the faulting kernel once more, on a stream of its own */
	{"before", NULL, &opt.before}, /* harmless launches on the culprit's stream first */
	{"warm", NULL, &opt.warm}, /* ms of survivors' work before the culprit is launched */
	{"watch", NULL, &opt.watch}, /* ms after the fault, at most */
	{"linger", NULL, &opt.linger}, /* ms after the fault, at least */
	{"quiet", NULL, &opt.quiet}, /* ms without a mark that end the run once issuing has stopped */
	{"trigger", NULL, &opt.trigger}, /* ms after the fault: ask for a dump through the pipe (mode user) */
	{"query", NULL, &opt.query}, /* 1: poll cuStreamQuery */
	{"nvml", NULL, &opt.nvml}, /* 1: wait for NVML's Xid event too */
	{"standby", NULL, &opt.standby}, /* 1: another process launches kernels from the fault on */
	{"rate", NULL, &opt.rate}, /* 1: no fault, measure what the mode costs */
};

static void parse(int count, char **word)
{
	for (int i = 1; i < count; i++) {
		const char *equals = strchr(word[i], '=');
		bool known = false;

		for (const struct option_row &row : option_list) {
			if (!equals || strncmp(word[i], row.name, (size_t)(equals - word[i])) ||
				row.name[equals - word[i]])
				continue;
			known = true;
			if (row.text)
				*row.text = equals + 1;
			else
				*row.number = (unsigned)strtoul(equals + 1, NULL, 10);
		}
		if (!known) {
			fprintf(stderr, "unknown option %s\n", word[i]);
			exit(2);
		}
	}
	if (opt.streams > LANES || !opt.streams) {
		fprintf(stderr, "1 to %d streams\n", LANES);
		exit(2);
	}
}

static bool has_mode(const char *name)
{
	size_t length = strlen(name);

	for (const char *at = opt.mode; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, name, length) && (at[length] == ',' || !at[length]))
			return true;
	}
	return false;
}

static bool is(const char *a, const char *b)
{
	return !strcmp(a, b);
}

/* ---- time ---- */

static uint64_t now_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void sleep_us(unsigned us)
{
	struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};

	nanosleep(&time, NULL);
}

/* Things that happen at most once in a run, in the order they are printed. */
enum moment {
	FAULT, /* the faulting thread is about to fault */
	XID, /* first Xid line of the kernel log */
	XID_PID, /* first one with this process's id */
	NVML, /* first critical-Xid event */
	TEXT, /* first text of the driver on standard output or error */
	DUMP_FIRST, /* first byte of the dump, or its file was made or truncated */
	DUMP_LAST, /* last growth of it */
	DUMP_ELF, /* its section table lies inside it */
	QUERY_ERROR, /* first error of cuStreamQuery */
	ISSUE_ERROR, /* first error of a survivor's call */
	SUCCESS, /* first success of cuStreamQuery on the culprit's stream */
	CULPRIT_MARK, /* the write behind the faulting kernel arrived */
	STOP, /* issuing stopped */
	TRIGGERED, /* the request for a dump was written */
	LAST_MARK, /* last mark of any survivor */
	LAST_TICK, /* last tick of an endless survivor */
	END, /* the watch ended */
	MOMENTS
};

static const char *const moment_names[MOMENTS] = {"fault", "xid", "xid_pid", "nvml", "text", "dump_first",
	"dump_last", "dump_elf", "query_error", "issue_error", "success", "culprit_mark", "stop", "triggered",
	"last_mark", "last_tick", "end"};

static volatile uint64_t moments[MOMENTS];

static void note(enum moment moment)
{
	if (!moments[moment])
		moments[moment] = now_ns();
}

static bool seen(enum moment moment)
{
	return moments[moment] != 0;
}

static double since_fault(uint64_t at)
{
	return (double)(int64_t)(at - moments[FAULT]) / 1e6;
}

/* ---- output: one growing line of JSON ---- */

static char line[4000];
static size_t line_length;

static void put(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	line_length += (size_t)vsnprintf(line + line_length, sizeof(line) - line_length, format, arguments);
	va_end(arguments);
	if (line_length > sizeof(line) - 1)
		line_length = sizeof(line) - 1;
}

static void put_text(const char *name, const char *text)
{
	put(", \"%s\": \"", name);
	for (; *text; text++)
		if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ' || (unsigned char)*text > '~')
			put(" ");
		else
			put("%c", *text);
	put("\"");
}

/* ---- state of the inner process ---- */

struct survivor {
	CUstream stream;
	CUdeviceptr lane, words, cells; /* device addresses */
	CUgraphExec graph;
	CUevent events[MARK_EVENTS];
	CUdeviceptr device; /* of a copy: what is written, or read for d2h */
	uint32_t *host;
	volatile uint64_t issued; /* commands, one mark each */
	/* Observer only. */
	uint64_t marked, marked_at;
	double pause, base;
};

static struct survivor survivors[LANES];
static struct host_words *words; /* registered shared memory */
static CUdeviceptr words_device;
static CUcontext context;
static CUmodule survivor_module, culprit_module;
static CUfunction f_work, f_mark, f_culprit, f_harmless;
static CUstream culprit_stream, verify_stream;
static CUdeviceptr source_device[2];
static uint32_t *source_host[2];
static uint64_t cycles_per_us;
static pthread_mutex_t launch_mutex = PTHREAD_MUTEX_INITIALIZER; /* makes the ordinals exact */
static unsigned launches, culprit_ordinal;
static volatile bool stop_issuing, stop_observing;
static volatile int query_code, issue_code;
static volatile uint64_t longest_call_ns, call_since;
static char dump_path[256], pipe_path[256];
static int dump_fd = -1;
static volatile uint64_t dump_size;
static uint64_t marks_before_halt, marks_after_halt;
static CUstream second_stream;
static CUresult second_code;
static double halted_from, halted_until;
static char xids[256], xid_text[300], driver_text[700], attribute_codes[200];
static uint32_t *verify_buffer;
static char verify_result[80] = "stuck";

static volatile uint64_t *host_word(uint64_t *word)
{
	return word;
}

static CUdeviceptr device_word(const uint64_t *word)
{
	return words_device + (CUdeviceptr)((const char *)word - (const char *)words);
}

static void check_at(CUresult code, const char *what)
{
	if (code == CUDA_SUCCESS)
		return;
	dprintf(CONTROL_FD, "!%s: %d", what, code);
	_exit(1);
}
#define CHECK(call) check_at(call, #call)

static void start(void *(*run)(void *))
{
	pthread_t thread;

	pthread_create(&thread, NULL, run, NULL);
	pthread_detach(thread);
}

/* ---- the modes ---- */

/* Outer process: environment of the inner one. */
static void enter_mode(void)
{
	snprintf(dump_path, sizeof(dump_path), "%s", opt.dump);
	if (is(opt.dump, "memfd")) {
		dup2(memfd_create("dump", 0), DUMP_FD);
		snprintf(dump_path, sizeof(dump_path), "/proc/self/fd/%d", DUMP_FD);
	} else if (is(opt.dump, "fifo")) {
		snprintf(dump_path, sizeof(dump_path), "/tmp/exceptions.%d.fifo", getpid());
		mkfifo(dump_path, 0600);
	}
	snprintf(pipe_path, sizeof(pipe_path), "/tmp/exceptions.%d.pipe", getpid());
	setenv("EXCEPTIONS_DUMP", dump_path, 1);
	setenv("EXCEPTIONS_PIPE", pipe_path, 1);
	if (has_mode("dump"))
		setenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1", 1);
	if (has_mode("light"))
		setenv("CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", "1", 1);
	if (has_mode("noabort"))
		setenv("CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION", "0", 1);
	if (has_mode("waits"))
		setenv("CUDA_DEVICE_WAITS_ON_EXCEPTION", "1", 1);
	if (has_mode("progress"))
		setenv("CUDA_COREDUMP_SHOW_PROGRESS", "1", 1);
	if (has_mode("preempt"))
		setenv("CUDA_DEBUGGER_SOFTWARE_PREEMPTION", "1", 1);
	if (has_mode("user")) {
		setenv("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1", 1);
		setenv("CUDA_COREDUMP_PIPE", pipe_path, 1);
	}
	if (has_mode("dump") || has_mode("light") || has_mode("user")) {
		setenv("CUDA_COREDUMP_FILE", dump_path, 1);
		if (*opt.flags)
			setenv("CUDA_COREDUMP_GENERATION_FLAGS", opt.flags, 1);
	}
}

/* The same through the attribute interface: mode `attribute` for the current context, `global` for all. */
static void context_attributes(CUresult (*set)(CUcoredumpSettings, void *, size_t *))
{
	bool yes = true, no = false;
	int flags = CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT;
	size_t bool_size = sizeof(bool), int_size = sizeof(int), path_size = strlen(dump_path) + 1;
	CUresult file = set(CU_COREDUMP_FILE, dump_path, &path_size);
	CUresult flag = set(CU_COREDUMP_GENERATION_FLAGS, &flags, &int_size);
	CUresult host = set(CU_COREDUMP_TRIGGER_HOST, &no, &bool_size);
	CUresult enable = has_mode("ctxflag") ? CUDA_SUCCESS : set(CU_COREDUMP_ENABLE_ON_EXCEPTION, &yes, &bool_size);

	snprintf(attribute_codes, sizeof(attribute_codes), "file %d flags %d host %d enable %d", file, flag, host, enable);
}

/* ---- readers of signs ---- */

static void *read_kernel_log(void *)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	struct pollfd wait = {.fd = fd, .events = POLLIN, .revents = 0};
	char record[8192];

	if (fd < 0)
		return NULL;
	lseek(fd, 0, SEEK_END);
	for (;;) {
		ssize_t got = read(fd, record, sizeof(record) - 1);
		char *text, *pid, *number;
		size_t used = strlen(xids);

		if (got < 0 && errno == EAGAIN)
			poll(&wait, 1, -1);
		if (got <= 0)
			continue;
		record[got] = 0;
		text = strstr(record, "NVRM: Xid (");
		if (!text || !seen(FAULT))
			continue;
		note(XID);
		pid = strstr(text, "pid=");
		number = strstr(text, "): ");
		if (pid && atoi(pid + 4) == getpid())
			note(XID_PID);
		if (number)
			snprintf(xids + used, sizeof(xids) - used, "%d%s@%.1f ", atoi(number + 3),
				pid && atoi(pid + 4) == getpid() ? "*" : "", since_fault(now_ns()));
		if (!*xid_text)
			snprintf(xid_text, sizeof(xid_text), "%s", text);
	}
}

/* Everything that the driver prints in this process. */
static void *read_driver_text(void *argument)
{
	int fd = (int)(intptr_t)argument;
	size_t length = 0;
	ssize_t got;

	while ((got = read(fd, driver_text + length, sizeof(driver_text) - 1 - length)) > 0) {
		if (seen(FAULT))
			note(TEXT);
		if (length < sizeof(driver_text) / 2)
			length += (size_t)got;
	}
	return NULL;
}

/* The interface of NVML that is used, by its documented layout. */
static void *read_nvml(void *)
{
	struct {
		void *device;
		unsigned long long type, data;
		unsigned gpu, compute;
	} event;
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device, *set;

	if (!library)
		return NULL;
#define NVML_CALL(name, types) ((int(*) types)dlsym(library, name))
	if (NVML_CALL("nvmlInit_v2", (void))() ||
		NVML_CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))(0, &device) ||
		NVML_CALL("nvmlEventSetCreate", (void **))(&set) ||
		NVML_CALL("nvmlDeviceRegisterEvents", (void *, unsigned long long, void *))(device, 8, set))
		return NULL;
	auto wait = NVML_CALL("nvmlEventSetWait_v2", (void *, void *, unsigned));
#undef NVML_CALL
	for (;;)
		if (wait && !wait(set, &event, 100) && seen(FAULT))
			note(NVML);
}

static bool elf_is_complete(int fd, uint64_t size)
{
	struct {
		unsigned char magic[16];
		uint16_t type, machine;
		uint32_t version;
		uint64_t entry, segments, sections;
		uint32_t flags;
		uint16_t header_size, segment_size, segment_count, section_size, section_count, names;
	} head;

	return pread(fd, &head, sizeof(head), 0) == sizeof(head) && !memcmp(head.magic, "\177ELF", 4) &&
		head.sections && head.sections + (uint64_t)head.section_size * head.section_count <= size;
}

static void dump_grew(uint64_t size)
{
	note(DUMP_FIRST);
	dump_size = size;
	moments[DUMP_LAST] = now_ns();
}

static void *watch_dump_file(void *)
{
	bool exists_before = is(opt.dump, "memfd");
	struct stat status;

	/* Opened anew each time: the driver may replace the file. */
	for (;; sleep_us(300)) {
		int fd = open(dump_path, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			continue;
		if (!fstat(fd, &status)) {
			if ((uint64_t)status.st_size != dump_size || (!seen(DUMP_FIRST) && !exists_before))
				dump_grew((uint64_t)status.st_size);
			if (!seen(DUMP_ELF) && dump_size && elf_is_complete(fd, dump_size))
				note(DUMP_ELF);
		}
		close(fd);
	}
}

/* A process that wakes this one up again after it has stopped itself. */
static int waker = -1;

static void start_waker(void)
{
	int ends[2];
	char go;

	if (pipe(ends))
		return;
	waker = ends[1];
	if (fork())
		return;
	close(ends[1]);
	while (read(ends[0], &go, 1) == 1) {
		sleep_us(opt.halted * 1000);
		kill(getppid(), SIGCONT);
	}
	_exit(0);
}

static uint64_t marks_now(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < opt.streams; i++)
		sum += *host_word(&words->lane[i].mark);
	return sum;
}

static void halt(void)
{
	sleep_us((unsigned)strtoul(opt.halt, NULL, 10) * 1000);
	marks_before_halt = marks_now();
	halted_from = since_fault(now_ns());
	if (write(waker, "1", 1) != 1)
		return;
	kill(getpid(), SIGSTOP);
	marks_after_halt = marks_now();
	halted_until = since_fault(now_ns());
}

static void *drain_dump_fifo(void *)
{
	static char bytes[1 << 20];
	bool over = false;

	for (;;) {
		struct pollfd begun = {.fd = dump_fd, .events = POLLIN, .revents = 0};
		ssize_t got;

		if (!seen(DUMP_FIRST) && poll(&begun, 1, 0) == 1 && begun.revents & POLLIN) {
			note(DUMP_FIRST);
			sleep_us(opt.hold * 1000);
		}
		got = read(dump_fd, bytes, sizeof(bytes));
		if (got > 0) {
			dump_grew(dump_size + (uint64_t)got);
		} else if (!got && dump_size && !over) {
			over = true;
			note(DUMP_ELF);
			if (*opt.halt)
				halt();
		} else {
			sleep_us(200);
		}
	}
}

static void watch_dump(void)
{
	if (is(dump_path, "/dev/null") || has_mode("none"))
		return;
	if (is(opt.dump, "fifo")) {
		dump_fd = open(dump_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		fcntl(dump_fd, F_SETPIPE_SZ, opt.hold ? 4096 : 1 << 20);
		if (*opt.halt)
			start_waker();
		start(drain_dump_fifo);
	} else {
		start(watch_dump_file);
	}
}

/* ---- survivors ---- */

static bool is_copy(void)
{
	return is(opt.work, "h2d") || is(opt.work, "d2h") || is(opt.work, "d2d") || is(opt.work, "memset");
}

static unsigned kernels_per_command(void)
{
	return is_copy() ? 0 : is(opt.work, "graph") ? opt.graph_nodes : 1;
}

static uint32_t copy_pattern(uint64_t seq)
{
	return is(opt.work, "memset") ? (uint32_t)seq : seq & 1 ? 0x11111111u : 0x22222222u;
}

static void work_arguments(struct survivor *survivor, void **arguments, uint64_t *last)
{
	*last = is(opt.work, "endless") ? device_word(&words->release) : opt.us * cycles_per_us;
	arguments[0] = &survivor->lane;
	arguments[1] = &survivor->words;
	arguments[2] = &survivor->cells;
	arguments[3] = last;
}

static void make_graph(struct survivor *survivor)
{
	CUDA_KERNEL_NODE_PARAMS node = {};
	CUgraphNode last = NULL, added;
	uint64_t cycles;
	void *arguments[4];
	CUgraph graph;

	work_arguments(survivor, arguments, &cycles);
	node.func = f_work;
	node.gridDimX = opt.blocks;
	node.blockDimX = opt.threads;
	node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
	node.kernelParams = arguments;
	CHECK(cuGraphCreate(&graph, 0));
	for (unsigned i = 0; i < opt.graph_nodes; i++, last = added)
		CHECK(cuGraphAddKernelNode(&added, graph, last ? &last : NULL, last ? 1 : 0, &node));
	CHECK(cuGraphInstantiate(&survivor->graph, graph, 0));
}

static void make_survivors(void)
{
	size_t cells = (size_t)opt.blocks * opt.threads * sizeof(uint32_t), bytes = (size_t)opt.mib << 20;

	for (unsigned i = 0; is_copy() && i < 2; i++) {
		CHECK(cuMemAlloc(&source_device[i], bytes));
		CHECK(cuMemsetD32(source_device[i], copy_pattern(i), bytes / 4));
		CHECK(cuMemHostAlloc((void **)&source_host[i], bytes, 0));
		CHECK(cuMemcpyDtoH(source_host[i], source_device[i], bytes));
	}
	for (unsigned i = 0; i < opt.streams; i++) {
		struct survivor *survivor = &survivors[i];

		CHECK(cuStreamCreate(&survivor->stream, CU_STREAM_NON_BLOCKING));
		CHECK(cuMemAlloc(&survivor->lane, sizeof(struct lane)));
		CHECK(cuMemsetD8(survivor->lane, 0, sizeof(struct lane)));
		survivor->words = words_device + i * sizeof(struct lane_words);
		CHECK(cuMemAlloc(&survivor->cells, cells));
		CHECK(cuMemsetD8(survivor->cells, 0, cells));
		for (unsigned n = 0; is(opt.mark, "event") && n < MARK_EVENTS; n++)
			CHECK(cuEventCreate(&survivor->events[n], CU_EVENT_DISABLE_TIMING));
		if (is(opt.work, "graph"))
			make_graph(survivor);
		if (is_copy())
			CHECK(cuMemAlloc(&survivor->device, bytes));
		if (is(opt.work, "d2h"))
			CHECK(cuMemHostAlloc((void **)&survivor->host, bytes, 0));
	}
}

static CUresult launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream, void **arguments)
{
	CUresult code;

	pthread_mutex_lock(&launch_mutex);
	launches++;
	code = cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL);
	pthread_mutex_unlock(&launch_mutex);
	return code;
}

static CUresult issue_work(struct survivor *survivor)
{
	uint64_t seq = survivor->issued + 1, last;
	size_t bytes = (size_t)opt.mib << 20;
	void *arguments[4];

	work_arguments(survivor, arguments, &last);
	if (is(opt.work, "graph"))
		return cuGraphLaunch(survivor->graph, survivor->stream);
	if (is(opt.work, "cooperative"))
		return cuLaunchCooperativeKernel(
			f_work, opt.blocks, 1, 1, opt.threads, 1, 1, 0, survivor->stream, arguments);
	if (is(opt.work, "h2d"))
		return cuMemcpyHtoDAsync(survivor->device, source_host[seq & 1], bytes, survivor->stream);
	if (is(opt.work, "d2h"))
		return cuMemcpyDtoHAsync(survivor->host, source_device[seq & 1], bytes, survivor->stream);
	if (is(opt.work, "d2d"))
		return cuMemcpyDtoDAsync(survivor->device, source_device[seq & 1], bytes, survivor->stream);
	if (is(opt.work, "memset"))
		return cuMemsetD32Async(survivor->device, copy_pattern(seq), bytes / 4, survivor->stream);
	return launch(f_work, opt.blocks, opt.threads, survivor->stream, arguments);
}

static CUresult issue_mark(struct survivor *survivor, uint64_t seq)
{
	CUdeviceptr mark = device_word(&words->lane[survivor - survivors].mark);
	void *arguments[] = {&mark, &seq};

	if (is(opt.mark, "event"))
		return cuEventRecord(survivor->events[seq % MARK_EVENTS], survivor->stream);
	if (is(opt.mark, "kernel"))
		return launch(f_mark, 1, 1, survivor->stream, arguments);
	return cuStreamWriteValue64(survivor->stream, mark, seq, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static bool survived_call(CUresult code)
{
	if (code == CUDA_SUCCESS)
		return true;
	if (!issue_code)
		issue_code = code;
	note(ISSUE_ERROR);
	return false;
}

/* Moves the mark of a stream whose marks are events. */
static void look_at_events(struct survivor *survivor, volatile uint64_t *mark)
{
	while (*mark < survivor->issued) {
		CUresult code = cuEventQuery(survivor->events[(*mark + 1) % MARK_EVENTS]);

		if (code == CUDA_ERROR_NOT_READY || !survived_call(code))
			return;
		++*mark;
	}
}

static bool issue_one(struct survivor *survivor)
{
	uint64_t from = now_ns();
	bool good;

	call_since = from;
	good = survived_call(issue_work(survivor));
	if (good) {
		survivor->issued++;
		good = survived_call(issue_mark(survivor, survivor->issued));
	}
	call_since = 0;
	if (seen(FAULT) && now_ns() - from > longest_call_ns)
		longest_call_ns = now_ns() - from;
	return good;
}

static void *issue(void *)
{
	cuCtxSetCurrent(context);
	for (;;) {
		for (unsigned i = 0; i < opt.streams; i++) {
			struct survivor *survivor = &survivors[i];
			volatile uint64_t *mark = host_word(&words->lane[i].mark);

			if (is(opt.mark, "event"))
				look_at_events(survivor, mark);
			if (stop_issuing || issue_code)
				note(STOP);
			else if (survivor->issued - *mark < opt.depth)
				issue_one(survivor);
		}
		if (seen(STOP))
			sleep_us(20);
	}
}

static void observe_survivor(struct survivor *survivor, uint64_t mark, uint64_t now)
{
	double gap;

	if (mark == survivor->marked)
		return;
	if (!survivor->marked_at)
		survivor->marked_at = seen(FAULT) ? moments[FAULT] : now;
	gap = now > survivor->marked_at ? (double)(now - survivor->marked_at) / 1e6 : 0;
	if (!seen(FAULT)) {
		if (survivor->marked && gap > survivor->base)
			survivor->base = gap;
	} else if (gap > survivor->pause) {
		survivor->pause = gap;
	}
	survivor->marked = mark;
	survivor->marked_at = now;
	if (seen(FAULT))
		moments[LAST_MARK] = now;
}

static void *observe(void *)
{
	uint64_t ticks = 0;

	while (!stop_observing) {
		uint64_t now = now_ns(), all_ticks = 0;

		if (*host_word(&words->faulting))
			note(FAULT);
		if (*host_word(&words->culprit_mark))
			note(CULPRIT_MARK);
		for (unsigned i = 0; i < opt.streams; i++) {
			observe_survivor(&survivors[i], *host_word(&words->lane[i].mark), now);
			all_ticks += *host_word(&words->lane[i].tick);
		}
		if (all_ticks != ticks && seen(FAULT))
			moments[LAST_TICK] = now;
		ticks = all_ticks;
	}
	return NULL;
}

static void *query(void *)
{
	cuCtxSetCurrent(context);
	for (unsigned turn = 0;; turn++, sleep_us(150)) {
		CUresult code;

		if (!seen(FAULT))
			continue;
		code = cuStreamQuery(turn & 1 ? culprit_stream : survivors[0].stream);
		if (code == CUDA_SUCCESS && turn & 1)
			note(SUCCESS);
		if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY) {
			query_code = code;
			note(QUERY_ERROR);
			return NULL;
		}
	}
}

static bool all_marked(void)
{
	for (unsigned i = 0; i < opt.streams; i++)
		if (survivors[i].issued != *host_word(&words->lane[i].mark))
			return false;
	return true;
}

/* ---- afterwards: is what the survivors computed right, and do copies still work ---- */

static bool words_are(const uint32_t *word, size_t count, uint32_t value)
{
	for (size_t i = 0; i < count; i++)
		if (word[i] != value)
			return false;
	return true;
}

/* Copies to verify_buffer and waits for the copy. False with verify_result set. */
static bool fetch(CUdeviceptr from, size_t bytes)
{
	static uint64_t turn;
	uint64_t from_ns = now_ns();
	CUresult code = cuMemcpyDtoHAsync(verify_buffer, from, bytes, verify_stream);

	turn++;
	if (code == CUDA_SUCCESS)
		code = cuStreamWriteValue64(verify_stream, device_word(&words->verify_mark), turn, 0);
	if (code != CUDA_SUCCESS) {
		snprintf(verify_result, sizeof(verify_result), "error %d", code);
		return false;
	}
	while (*host_word(&words->verify_mark) != turn) {
		if (now_ns() - from_ns > 300000000) {
			snprintf(verify_result, sizeof(verify_result), "copy never ends");
			return false;
		}
	}
	return true;
}

static bool verify_kernels(unsigned i)
{
	size_t count = (size_t)opt.blocks * opt.threads;
	uint32_t expected = (uint32_t)*host_word(&words->lane[i].finished);

	if (!fetch(survivors[i].cells, count * sizeof(uint32_t)))
		return false;
	if (words_are(verify_buffer, count, expected))
		return true;
	snprintf(verify_result, sizeof(verify_result), "differs: stream %u, first cell %u, finished %u", i,
		verify_buffer[0], expected);
	return false;
}

static bool verify_copy(unsigned i)
{
	size_t bytes = (size_t)opt.mib << 20, part = bytes < VERIFY_BYTES ? bytes : VERIFY_BYTES;
	uint32_t expected = copy_pattern(survivors[i].issued);

	if (!survivors[i].issued)
		return true;
	for (size_t at = 0; at <= bytes - part; at += bytes - part ? bytes - part : bytes) {
		const uint32_t *got = verify_buffer;

		if (is(opt.work, "d2h"))
			got = survivors[i].host + at / 4;
		else if (!fetch(survivors[i].device + at, part))
			return false;
		if (!words_are(got, part / 4, expected)) {
			snprintf(verify_result, sizeof(verify_result), "differs: stream %u at %zu", i, at);
			return false;
		}
	}
	return !is(opt.work, "d2h") || fetch(source_device[0], 4096);
}

static void *verify(void *)
{
	cuCtxSetCurrent(context);
	for (unsigned i = 0; i < opt.streams; i++)
		if (is_copy() ? !verify_copy(i) : !verify_kernels(i))
			return NULL;
	snprintf(verify_result, sizeof(verify_result), "ok");
	return NULL;
}

/* ---- the culprit ---- */

/* Makes the marked instruction of culprit_illegal one that does not exist. */
static void spoil(unsigned char *image, size_t size)
{
	for (size_t at = 0; at + 16 <= size; at += 4) {
		uint32_t word;

		memcpy(&word, image + at, sizeof(word));
		/* The immediate is the second word of a 16-byte instruction, the operation the low 12 bits of its first. */
		if (word != SPOIL_IMMEDIATE || at < 4)
			continue;
		image[at - 4] = 0xff;
		image[at - 3] |= 0x0f;
	}
}

static CUmodule load(const char *suffix)
{
	char path[400], self[300] = "";
	CUmodule module;
	unsigned char *image;
	size_t size;
	FILE *file;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		check_at(CUDA_ERROR_FILE_NOT_FOUND, "readlink");
	snprintf(path, sizeof(path), "%s.%s.cubin", self, suffix);
	file = fopen(path, "rb");
	if (!file)
		check_at(CUDA_ERROR_FILE_NOT_FOUND, path);
	image = (unsigned char *)malloc(16 << 20);
	size = fread(image, 1, 16 << 20, file);
	fclose(file);
	if (is(opt.fault, "illegal"))
		spoil(image, size);
	CHECK(cuModuleLoadData(&module, image));
	return module;
}

static uint64_t culprit_address(void)
{
	CUdeviceptr address;

	if (is(opt.fault, "null"))
		return 0;
	if (is(opt.fault, "shared"))
		return 0xfffff0;
	if (is(opt.fault, "stack"))
		return 0;
	if (is(opt.fault, "jump"))
		return 0xdead0000;
	if (is(opt.fault, "misaligned")) {
		CHECK(cuMemAlloc(&address, 4096));
		return address + 1;
	}
	/* Reserved and never mapped. */
	CHECK(cuMemAddressReserve(&address, 2 << 20, 0, 0, 0));
	return address + 0x1000;
}

static void launch_culprit(void)
{
	uint64_t word = device_word(&words->faulting), cycles = opt.culprit_us * cycles_per_us;
	static uint64_t address;
	void *arguments[] = {&word, &cycles, &address};

	address = culprit_address();
	for (unsigned i = 0; i < opt.before; i++)
		CHECK(launch(f_harmless, 1, 32, culprit_stream, NULL));
	pthread_mutex_lock(&launch_mutex);
	culprit_ordinal = ++launches;
	CHECK(cuLaunchKernel(f_culprit, opt.culprit_blocks, 1, 1, opt.culprit_threads, 1, 1, 0, culprit_stream,
		arguments, NULL));
	pthread_mutex_unlock(&launch_mutex);
	CHECK(cuStreamWriteValue64(culprit_stream, device_word(&words->culprit_mark), 1, 0));
	for (unsigned i = 0; i < opt.again; i++)
		CHECK(cuLaunchKernel(f_culprit, opt.culprit_blocks, 1, 1, opt.culprit_threads, 1, 1, 0, culprit_stream,
			arguments, NULL));
}

static void launch_second(void)
{
	uint64_t word = device_word(&words->faulting), cycles = opt.culprit_us * cycles_per_us, address = culprit_address();
	void *arguments[] = {&word, &cycles, &address};

	second_code = cuLaunchKernel(
		f_culprit, opt.culprit_blocks, 1, 1, opt.culprit_threads, 1, 1, 0, second_stream, arguments, NULL);
	opt.second = 0;
}

/* ---- the run ---- */

static void ask_for_dump(void)
{
	int fd = open(pipe_path, O_WRONLY | O_NONBLOCK);

	if (fd < 0 || write(fd, "1", 1) != 1)
		snprintf(attribute_codes, sizeof(attribute_codes), "pipe: %s", strerror(errno));
	note(TRIGGERED);
}

static bool must_stop(uint64_t now)
{
	if (is(opt.stop, "go"))
		return false;
	if (is(opt.stop, "xid"))
		return seen(XID);
	if (is(opt.stop, "any"))
		return seen(XID) || seen(TEXT) || seen(DUMP_FIRST) || seen(QUERY_ERROR) || seen(ISSUE_ERROR);
	return now - moments[FAULT] >= strtoull(opt.stop, NULL, 10) * 1000000;
}

static bool is_over(uint64_t now)
{
	uint64_t quiet_since = seen(LAST_MARK) ? moments[LAST_MARK] : moments[FAULT];

	if (now - moments[FAULT] >= opt.watch * 1000000ull)
		return true;
	if (now - moments[FAULT] < opt.linger * 1000000ull)
		return false;
	if (seen(STOP) && all_marked())
		return true;
	if (seen(STOP) && moments[STOP] > quiet_since)
		quiet_since = moments[STOP];
	return seen(STOP) && now - quiet_since >= opt.quiet * 1000000ull;
}

static void run_fault(void)
{
	uint64_t began, now;

	start(read_kernel_log);
	watch_dump();
	start(observe);
	start(issue);
	if (opt.query)
		start(query);
	sleep_us(opt.warm * 1000);
	launch_culprit();
	for (began = now_ns(); !seen(FAULT); sleep_us(20))
		if (now_ns() - began > 2000000000)
			note(FAULT);
	do {
		sleep_us(30);
		now = now_ns();
		if (must_stop(now))
			stop_issuing = true;
		if (opt.trigger && !seen(TRIGGERED) && now - moments[FAULT] >= opt.trigger * 1000000ull)
			ask_for_dump();
		if (opt.second && now - moments[FAULT] >= opt.second * 1000000ull)
			launch_second();
	} while (!is_over(now));
	note(END);
	stop_issuing = true;
	*host_word(&words->release) = 1;
	/* The issuer says STOP when it is between two commands and will begin no other. */
	for (began = now_ns(); !(seen(STOP) && all_marked()) && now_ns() - began < 250000000 && !seen(ISSUE_ERROR);)
		sleep_us(50);
	start(verify);
	for (began = now_ns(); is(verify_result, "stuck") && now_ns() - began < 600000000;)
		sleep_us(50);
	stop_observing = true;
}

/* Totals over all survivors, and the streams one by one where they are few. */
static void report_survivors(void)
{
	uint64_t issued = 0, marked = 0, started = 0, finished = 0, lost = 0;
	unsigned each = kernels_per_command();
	double pause = 0, base = 0;
	bool exact = true;

	for (unsigned i = 0; i < opt.streams; i++) {
		struct survivor *s = &survivors[i];
		struct lane_words *w = &words->lane[i];

		issued += s->issued;
		marked += w->mark;
		started += w->started;
		finished += w->finished;
		lost = s->issued - w->mark > lost ? s->issued - w->mark : lost;
		pause = s->pause > pause ? s->pause : pause;
		base = s->base > base ? s->base : base;
		exact = exact && s->issued == w->mark &&
			(!each || (w->started == s->issued * each && w->finished == s->issued * each));
	}
	if (!strncmp(verify_result, "differs", 7))
		exact = false;
	put(", \"exact\": %s, \"issued\": %lu, \"marked\": %lu, \"started\": %lu, \"finished\": %lu, \"lost\": %lu",
		exact ? "true" : "false", issued, marked, started, finished, lost);
	put(", \"pause\": %.1f, \"base\": %.1f", pause, base);
	for (unsigned i = 0; opt.streams <= 4 && i < opt.streams; i++)
		put("%s%lu/%lu/%lu/%lu", i ? " " : ", \"each\": \"", survivors[i].issued, words->lane[i].mark,
			words->lane[i].started, words->lane[i].finished);
	if (opt.streams <= 4)
		put("\"");
}

static void report_names(void)
{
	const char *name = "?";
	int binary = 0, registers = 0;

	cuFuncGetName(&name, f_culprit);
	cuFuncGetAttribute(&binary, CU_FUNC_ATTRIBUTE_BINARY_VERSION, f_culprit);
	cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f_culprit);
	put(", \"names\": {\"kernel\": \"%s\", \"module\": \"%p\", \"function\": \"%p\", \"survivor_module\": \"%p\", "
		"\"stream\": \"%p\", \"context\": \"%p\", \"grid\": %u, \"block\": %u, \"thread\": 3, \"pid\": %d}",
		name, (void *)culprit_module, (void *)f_culprit, (void *)survivor_module, (void *)culprit_stream,
		(void *)context, opt.culprit_blocks, opt.culprit_threads, getpid());
}

static void report(void)
{
	report_survivors();
	for (unsigned i = XID; i < MOMENTS; i++)
		if (seen((enum moment)i))
			put(", \"%s\": %.1f", moment_names[i], since_fault(moments[i]));
		else
			put(", \"%s\": null", moment_names[i]);
	put(", \"query_code\": %d, \"issue_code\": %d, \"longest_call\": %.1f, \"call_hangs\": %s", query_code, issue_code,
		(double)longest_call_ns / 1e6, call_since && now_ns() - call_since > 50000000 ? "true" : "false");
	put(", \"dump_size\": %lu, \"ordinal\": %u", dump_size, culprit_ordinal);
	put_text("verify", verify_result);
	put_text("xids", xids);
	put_text("attributes", attribute_codes);
	if (*opt.names)
		report_names();
	put_text("xid_text", xid_text);
	if (second_code)
		put(", \"second_code\": %d", second_code);
	if (*opt.halt)
		put(", \"halt\": [%.1f, %.1f], \"halt_marks\": [%lu, %lu]", halted_from, halted_until, marks_before_halt,
			marks_after_halt);
	put_text("driver_text", driver_text);
}

/* ---- what the mode costs without a fault ---- */

static volatile bool rate_over;

static void *launch_for_rate(void *count)
{
	CUfunction empty;
	CUstream stream;
	uint64_t done = 0;

	cuCtxSetCurrent(context);
	CHECK(cuModuleGetFunction(&empty, survivor_module, "survivor_empty"));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	while (!rate_over) {
		CHECK(cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
		if (++done % 5000 == 0)
			CHECK(cuStreamSynchronize(stream));
	}
	CHECK(cuStreamSynchronize(stream));
	*(uint64_t *)count = done;
	return NULL;
}

static double launch_rate(unsigned threads)
{
	pthread_t thread[16];
	uint64_t count[16], all = 0, from = now_ns();

	rate_over = false;
	for (unsigned i = 0; i < threads; i++)
		pthread_create(&thread[i], NULL, launch_for_rate, &count[i]);
	sleep_us(400000);
	rate_over = true;
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(thread[i], NULL);
		all += count[i];
	}
	return (double)all * 1e6 / (double)(now_ns() - from);
}

/* Microseconds of the device for one of `rounds` launches of a kernel that stores `bytes`. */
static double store_us(uint64_t bytes, unsigned rounds)
{
	CUfunction store;
	CUevent from, to;
	CUdeviceptr memory;
	uint64_t words_stored = bytes / 4;
	uint32_t value = 1;
	void *arguments[] = {&memory, &words_stored, &value};
	float ms;

	CHECK(cuModuleGetFunction(&store, survivor_module, "survivor_store"));
	CHECK(cuMemAlloc(&memory, bytes));
	CHECK(cuEventCreate(&from, 0));
	CHECK(cuEventCreate(&to, 0));
	for (unsigned i = 0; i < rounds + 20; i++) {
		if (i == 20)
			CHECK(cuEventRecord(from, culprit_stream));
		CHECK(cuLaunchKernel(store, 132, 1, 1, 512, 1, 1, 0, culprit_stream, arguments, NULL));
	}
	CHECK(cuEventRecord(to, culprit_stream));
	CHECK(cuEventSynchronize(to));
	CHECK(cuEventElapsedTime(&ms, from, to));
	return ms * 1000 / rounds;
}

static void run_rate(void)
{
	double one, eight, wait_us;
	uint64_t from;

	launch_rate(1);
	one = launch_rate(1);
	eight = launch_rate(8);
	from = now_ns();
	for (unsigned i = 0; i < 5000; i++) {
		CHECK(cuLaunchKernel(f_harmless, 1, 1, 1, 32, 1, 1, 0, culprit_stream, NULL, NULL));
		CHECK(cuStreamSynchronize(culprit_stream));
	}
	wait_us = (double)(now_ns() - from) / 5e6;
	put(", \"rate_1\": %.1f, \"rate_8\": %.1f, \"wait_us\": %.2f, \"store_small_us\": %.2f, \"store_64m_us\": %.2f",
		one, eight, wait_us, store_us(132 * 512 * 4, 3000), store_us(64 << 20, 300));
}

/* ---- inner process ---- */

static void make_words(void)
{
	int fd = memfd_create("words", MFD_CLOEXEC);

	if (ftruncate(fd, 1 << 20))
		check_at(CUDA_ERROR_OUT_OF_MEMORY, "ftruncate");
	words = (struct host_words *)mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(cuMemHostRegister(words, 1 << 20, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostGetDevicePointer(&words_device, words, 0));
}

static void open_context(void)
{
	unsigned flags = has_mode("ctxflag") ? CU_CTX_COREDUMP_ENABLE : 0;
	CUdevice device;
	int khz;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device));
	cycles_per_us = (uint64_t)khz / 1000;
	if (has_mode("global"))
		context_attributes(cuCoredumpSetAttributeGlobal);
	CHECK(cuCtxCreate(&context, NULL, flags, device));
	if (has_mode("attribute") || has_mode("ctxflag"))
		context_attributes(cuCoredumpSetAttribute);
}

static void prepare(void)
{
	char name[40];
	const char *work = is(opt.work, "cooperative") ? "survivor_cooperative" :
		is(opt.work, "endless") ? "survivor_endless" : "survivor_work";

	open_context();
	make_words();
	survivor_module = load("survivor");
	culprit_module = load("culprit");
	snprintf(name, sizeof(name), "culprit_%s", opt.fault);
	CHECK(cuModuleGetFunction(&f_culprit, culprit_module, name));
	CHECK(cuModuleGetFunction(&f_harmless, culprit_module, "culprit_harmless"));
	CHECK(cuModuleGetFunction(&f_work, survivor_module, work));
	CHECK(cuModuleGetFunction(&f_mark, survivor_module, "survivor_mark"));
	CHECK(cuStreamCreate(&culprit_stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&second_stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&verify_stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemHostAlloc((void **)&verify_buffer, VERIFY_BYTES, 0));
	make_survivors();
	/* Functions are loaded at first use, which stops the context: not in the middle of the run. */
	for (CUfunction function : {f_culprit, f_harmless, f_work, f_mark})
		CHECK(cuFuncLoad(function));
	CHECK(cuCtxSynchronize());
}

static int inner(void)
{
	int text[2];
	char go;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (pipe2(text, O_CLOEXEC))
		return 1;
	dup2(text[1], 1);
	dup2(text[1], 2);
	pthread_t reader;
	pthread_create(&reader, NULL, read_driver_text, (void *)(intptr_t)text[0]);
	snprintf(dump_path, sizeof(dump_path), "%s", getenv("EXCEPTIONS_DUMP"));
	snprintf(pipe_path, sizeof(pipe_path), "%s", getenv("EXCEPTIONS_PIPE"));
	prepare();
	if (opt.nvml) {
		start(read_nvml);
		sleep_us(150000);
	}
	if (write(CONTROL_FD, "r", 1) != 1 || read(CONTROL_FD, &go, 1) != 1)
		return 1;
	if (opt.rate) {
		run_rate();
	} else {
		run_fault();
		report();
	}
	if (write(CONTROL_FD, line, line_length) < 0)
		return 1;
	_exit(0);
}

/* ---- standby: another process that wants the GPU from the moment of the fault ---- */

struct standby_page {
	volatile uint64_t ready, go_ns, first_ns, longest_ns, rounds, code;
};

static int standby(void)
{
	struct standby_page *page =
		(struct standby_page *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, STANDBY_FD, 0);
	CUfunction function;
	CUresult code;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, NULL, 0, 0));
	CHECK(cuModuleGetFunction(&function, load("survivor"), "survivor_empty"));
	CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	CHECK(cuCtxSynchronize());
	page->ready = 1;
	while (!page->go_ns)
		;
	for (uint64_t last = page->go_ns;; last = now_ns(), page->rounds++) {
		code = cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
		if (code == CUDA_SUCCESS)
			code = cuCtxSynchronize();
		if (code != CUDA_SUCCESS) {
			page->code = code;
			return 1;
		}
		if (!page->first_ns)
			page->first_ns = now_ns();
		if (now_ns() - last > page->longest_ns)
			page->longest_ns = now_ns() - last;
	}
}

/* ---- outer process ---- */

static pid_t spawn(const char *role, char **word, int fd, int as)
{
	pid_t child = fork();

	if (child)
		return child;
	setenv("EXCEPTIONS_ROLE", role, 1);
	dup2(fd, as);
	execv("/proc/self/exe", word);
	_exit(127);
}

/* Reads the inner process's answer. Null when it died or took too long. */
static bool answer(int fd, char *into, size_t room, unsigned seconds)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN, .revents = 0};
	ssize_t got;

	if (poll(&wait, 1, (int)seconds * 1000) != 1)
		return false;
	got = read(fd, into, room - 1);
	if (got <= 0)
		return false;
	into[got] = 0;
	return true;
}

static void reap(pid_t child, uint64_t from)
{
	int status;

	for (unsigned i = 0; i < 20000; i++, sleep_us(1000))
		if (waitpid(child, &status, WNOHANG) == child) {
			put(", \"reap\": %.0f, \"signal\": %d}\n", (double)(now_ns() - from) / 1e6,
				WIFSIGNALED(status) ? WTERMSIG(status) : 0);
			return;
		}
	put(", \"reap\": null, \"signal\": null}\n");
}

static void put_standby(const struct standby_page *page)
{
	if (!page->go_ns)
		return;
	put(", \"standby_first\": %.1f, \"standby_longest\": %.1f, \"standby_rounds\": %lu, \"standby_code\": %lu",
		page->first_ns ? (double)(page->first_ns - page->go_ns) / 1e6 : -1, (double)page->longest_ns / 1e6,
		page->rounds, page->code);
}

static int outer(char **word)
{
	static struct standby_page none;
	struct standby_page *page = &none;
	int pair[2], lock = opt.lock ? open(opt.lock, O_CREAT | O_RDWR | O_CLOEXEC, 0600) : -1, page_fd;
	static char text[sizeof(line)];
	pid_t child, beside = 0;
	uint64_t asked;
	bool good;

	if (lock >= 0)
		flock(lock, LOCK_SH);
	if (opt.standby) {
		page_fd = memfd_create("standby", MFD_CLOEXEC);
		if (ftruncate(page_fd, 4096))
			return 1;
		page = (struct standby_page *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
		beside = spawn("standby", word, page_fd, STANDBY_FD);
		for (unsigned i = 0; i < 5000 && !page->ready; i++)
			sleep_us(1000);
	}
	enter_mode();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return 1;
	child = spawn("inner", word, pair[1], CONTROL_FD);
	close(pair[1]);
	put("{\"cell\": \"%s\", \"fault\": \"%s\", \"mode\": \"%s\"", opt.cell, opt.fault, opt.mode);
	good = answer(pair[0], text, sizeof(text), 25) && is(text, "r");
	if (lock >= 0 && good) {
		flock(lock, LOCK_UN);
		flock(lock, LOCK_EX);
	}
	asked = now_ns();
	if (good) {
		/* The survivors warm up first; the standby may begin a little before the fault. */
		good = write(pair[0], "g", 1) == 1;
		if (opt.standby) {
			sleep_us((opt.warm + 2) * 1000);
			page->go_ns = now_ns();
		}
		good = answer(pair[0], text, sizeof(text), RUN_SECONDS) && good && *text != '!';
	}
	if (good)
		put("%s", text);
	else
		put_text("failed", *text ? text : "no answer");
	put_standby(page);
	put(", \"run\": %.0f", (double)(now_ns() - asked) / 1e6);
	if (!good)
		kill(child, SIGKILL);
	asked = now_ns();
	reap(child, asked);
	if (beside) {
		kill(beside, SIGKILL);
		waitpid(beside, NULL, 0);
	}
	if (is(opt.dump, "fifo"))
		unlink(dump_path);
	unlink(pipe_path);
	return write(1, line, line_length) < 0 || !good;
}

int main(int count, char **word)
{
	const char *role = getenv("EXCEPTIONS_ROLE");

	parse(count, word);
	if (!role)
		return outer(word);
	return is(role, "standby") ? standby() : inner();
}

#endif
