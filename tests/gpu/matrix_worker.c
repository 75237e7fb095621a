// The programs of the fault matrix (matrix.py): one binary that runs natively, under stock MPS and
// through frmps, because it opens whatever libcuda.so.1 the loader finds.
//
//   worker survivor [--kernel-us N] [--idle] [--repeatable] [--kept] [--constant] [--depth N]
//                   [--blocks N] [--held N] [--launch FORM] [--also ACTIVITY]
//   worker culprit FAULT [--warm-ms N] [--delay-ms N] [--wait-ms N] [--kernel-us N] [--blocks N]
//                        [--threads N] [--all-threads]
//
// Everything is said in lines. Orders come on standard input; its end means "stop".
//
// A survivor keeps --depth kernels on the device, of --blocks blocks (4) that take --kernel-us
// microseconds each. Unless --repeatable they are black boxes: each counts itself and changes every
// cell in place, half of them at its beginning and half at its end, so that a kernel that was lost,
// repeated, cut or out of order shows for ever. Repeatable kernels overwrite. With --kept the black
// boxes count in variables of their module that only kernels know; with --constant each finds its
// number in a constant of the module, which is set in front of it. An idle survivor has run a few
// kernels and keeps its memory. With --held there are that many further allocations of 16 MiB, of
// which both ends are looked at. --launch and --also say how it launches its kernels, and what it
// does between two of them (matrix_activity.h). It says "ready", then
//   watch    forgets its longest gap; answers "watching"
//   more N   answers "more GAP TIME" once N further kernels are finished (at once when idle): the
//            longest gap, and the longest time that the activity took, so far, ms
//   check    waits for its work and looks at all its memory; answers "checked"
//   stop     the same, prints what it found as JSON and ends
// It does so as well, unasked, as soon as it is told an error or finds a wrong word.
//
// A culprit has its module loaded and a harmless kernel of --warm-ms behind it when it says
// "ready"; at the next line it launches the kernel of that fault, in --blocks blocks (1) of
// --threads threads (32) of which every warp faults, in one of its threads or in all (with a
// harmless one of --delay-ms before it), says "launched", and calls the driver until it is told an
// error or --wait-ms have passed. The fault "busy" is none: kernels of --kernel-us, 64 deep, until
// it is killed.

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/lib/driver.h"
#include "tests/gpu/matrix_activity.h"

#define CELLS	     1024u
#define BLOCKS	     4u
#define THREADS	     128u
#define SLOTS	     64u /* of outputs that repeatable kernels write in turn */
#define DEPTH_MAX    64u
#define FIRST	     8u /* kernels before "ready" */
#define MEMORY_WORDS (UINT32_C(1) << 18)
#define IDLE_WORDS   (UINT32_C(1) << 21)
#define HELD_MAX     256u
#define HELD_WORDS   (UINT32_C(1) << 22) /* of each allocation that is only held */
#define END_WORDS    64u		 /* of such a one that are looked at, at either end */
/* Of a culprit: farther than any allocation of its own, and than the guard. */
#define NEAR_BYTES (UINT64_C(64) << 20)
/* Where nobody ever has memory: below what the service gives out and the driver uses. The device
 * does not fault at the first, and a process with an address sanitizer has memory at the second. */
#define FAR_ADDRESS_HOST   (UINT64_C(1) << 40)
#define FAR_ADDRESS_DEVICE (UINT64_C(6) << 40)
#define JUMP_ADDRESS	   UINT64_C(0xdead0000)

struct options {
	const char *fault;
	uint32_t kernel_us, blocks, threads, depth, wait_ms, warm_ms, delay_ms, held;
	bool idle, repeatable, kept, constant, all_threads;
	enum launch_form form;
	const char *also; /* NULL: nothing */
};

struct survivor {
	struct options options;
	CUfunction kernel, reader; /* reader: of what is kept; NULL: nothing is */
	CUstream stream;
	CUevent events[DEPTH_MAX];
	CUdeviceptr cells, counters, input, memory;
	CUdeviceptr held[HELD_MAX];
	CUdeviceptr constant; /* the next kernel's number; 0: it has it otherwise */
	uint32_t memory_words;
	uint32_t launched, finished,
		more_at;	      /* more_at: "more" is due when that many are finished; 0: it is not */
	uint32_t expected[CELLS];     /* cells after `finished` kernels */
	uint64_t last_ns, longest_ns; /* last end of a kernel; longest time between two */
	uint64_t shortest_ns;	      /* and the shortest; 0: there were no two */
	struct trouble trouble;
	char wrong[96]; /* what is not as it must be, if anything */
	char line[64];	/* of orders, as far as it has come */
	size_t line_length;
};

static int usage(void)
{
	fprintf(stderr, "usage: matrix_worker survivor|culprit FAULT [options]\n");
	return 2;
}

static uint32_t scramble(uint32_t x)
{
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

static uint32_t stepped(uint32_t cell, uint32_t round, uint32_t position)
{
	return scramble(cell + round * UINT32_C(2654435761) + position);
}

static uint32_t pattern(uint32_t position)
{
	return scramble(position + 1 + (uint32_t)getpid());
}

static void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

/*
 * Survivors
 */

static uint32_t words_of_cells(const struct survivor *survivor)
{
	return survivor->options.repeatable ? CELLS * SLOTS : CELLS;
}

static CUdeviceptr filled(uint32_t words)
{
	uint32_t *bytes = calloc(words, sizeof(*bytes));
	CUdeviceptr address;

	for (uint32_t i = 0; bytes && i < words; i++)
		bytes[i] = pattern(i);
	driver_check(cu.alloc(&address, words * sizeof(*bytes)), "cuMemAlloc");
	driver_check(cu.htod(address, bytes, words * sizeof(*bytes)), "cuMemcpyHtoD");
	free(bytes);
	return address;
}

static void hold(struct survivor *survivor)
{
	for (uint32_t i = 0; i < survivor->options.held; i++) {
		driver_check(cu.alloc(&survivor->held[i], HELD_WORDS * sizeof(uint32_t)), "cuMemAlloc");
		driver_check(cu.set32(survivor->held[i], pattern(i), HELD_WORDS), "cuMemsetD32");
	}
}

static const char *kernel_name(const struct options *options)
{
	if (options->form == LAUNCH_COOPERATIVE)
		return "change_cells_cooperatively";
	if (options->form == LAUNCH_CLUSTERS)
		return "change_cells_in_clusters";
	return options->repeatable ? "overwrite_cells"
	       : options->kept	   ? "change_cells_kept"
	       : options->constant ? "change_cells_told"
				   : "change_cells";
}

static void survivor_open(struct survivor *survivor)
{
	CUmodule module;

	driver_open();
	module = driver_module();
	survivor->kernel = driver_function(module, kernel_name(&survivor->options));
	if (survivor->options.constant)
		driver_check(cu.global(&survivor->constant, NULL, module, "told"), "cuModuleGetGlobal");
	if (survivor->options.kept && !survivor->options.repeatable)
		survivor->reader = driver_function(module, "read_kept");
	survivor->memory_words = survivor->options.idle ? IDLE_WORDS : MEMORY_WORDS;
	survivor->memory = filled(survivor->memory_words);
	survivor->input = filled(CELLS);
	survivor->cells = filled(words_of_cells(survivor));
	survivor->counters = filled(2);
	driver_check(cu.set32(survivor->counters, 0, 2), "cuMemsetD32");
	hold(survivor);
	driver_check(cu.sync(), "cuCtxSynchronize");
	for (uint32_t i = 0; i < CELLS; i++)
		survivor->expected[i] = pattern(i);
	driver_check(cu.stream_create(&survivor->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	for (uint32_t i = 0; i < survivor->options.depth; i++)
		driver_check(cu.event_create(&survivor->events[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

static bool launch_one(struct survivor *survivor)
{
	CUdeviceptr out = survivor->cells +
			  (CUdeviceptr)(survivor->options.repeatable ? survivor->launched % SLOTS : 0) *
				  CELLS * sizeof(uint32_t);
	CUevent event = survivor->events[survivor->launched % survivor->options.depth];
	uint64_t ns = survivor->options.kernel_us * UINT64_C(1000);
	uint32_t count = CELLS;
	void *arguments[] = {&out, &survivor->input, &survivor->counters, &count, &survivor->launched, &ns};

	if (survivor->constant &&
		failed(&survivor->trouble,
			cu.set32_async(survivor->constant, survivor->launched, 1, survivor->stream),
			"cuMemsetD32Async"))
		return false;
	if (!launch_as(survivor->options.form, survivor->kernel, survivor->options.blocks, THREADS,
		    survivor->stream, arguments, &survivor->trouble))
		return false;
	survivor->launched++;
	return !failed(&survivor->trouble, cu.event_record(event, survivor->stream), "cuEventRecord");
}

static bool await_one(struct survivor *survivor)
{
	uint32_t round = survivor->finished;
	uint64_t now, gap;

	if (failed(&survivor->trouble, cu.event_sync(survivor->events[round % survivor->options.depth]),
		    "cuEventSynchronize"))
		return false;
	now = now_ns();
	gap = survivor->last_ns ? now - survivor->last_ns : 0;
	if (gap > survivor->longest_ns)
		survivor->longest_ns = gap;
	if (gap && (!survivor->shortest_ns || gap < survivor->shortest_ns))
		survivor->shortest_ns = gap;
	survivor->last_ns = now;
	for (uint32_t i = 0; i < CELLS && !survivor->options.repeatable; i++)
		survivor->expected[i] = stepped(survivor->expected[i], round, i);
	survivor->finished++;
	return true;
}

static bool drain(struct survivor *survivor)
{
	while (survivor->finished != survivor->launched)
		if (!await_one(survivor))
			return false;
	return true;
}

/* Return: the words, for the caller to free; NULL if the driver refuses them. */
static uint32_t *fetch(struct survivor *survivor, CUdeviceptr from, uint32_t words)
{
	uint32_t *bytes = calloc(words, sizeof(*bytes));

	if (bytes &&
		failed(&survivor->trouble, cu.dtoh(bytes, from, words * sizeof(*bytes)), "cuMemcpyDtoH")) {
		free(bytes);
		return NULL;
	}
	return bytes;
}

static void found(
	struct survivor *survivor, const char *where, uint32_t position, uint32_t value, uint32_t expected)
{
	if (value != expected && !survivor->wrong[0])
		snprintf(survivor->wrong, sizeof(survivor->wrong), "%s[%u] is %#x, not %#x", where, position,
			value, expected);
}

/* What a cell must hold. */
static uint32_t expected_cell(const struct survivor *survivor, uint32_t position)
{
	uint32_t slot = position / CELLS, cell = position % CELLS, round;

	if (!survivor->options.repeatable)
		return survivor->expected[cell];
	if (survivor->finished <= slot)
		return pattern(position);
	round = slot + (survivor->finished - 1 - slot) / SLOTS * SLOTS;
	return stepped(pattern(cell), round, cell);
}

static bool check_patterned(struct survivor *survivor, const char *where, CUdeviceptr from, uint32_t words)
{
	uint32_t *bytes = fetch(survivor, from, words);

	for (uint32_t i = 0; bytes && i < words; i++)
		found(survivor, where, i, bytes[i], pattern(i));
	free(bytes);
	return bytes != NULL;
}

static bool check_end(struct survivor *survivor, uint32_t which, uint32_t from)
{
	uint32_t *words = fetch(survivor, survivor->held[which] + from * sizeof(uint32_t), END_WORDS);

	for (uint32_t i = 0; words && i < END_WORDS; i++)
		found(survivor, "held", which, words[i], pattern(which));
	free(words);
	return words != NULL;
}

static bool check_held(struct survivor *survivor)
{
	for (uint32_t i = 0; i < survivor->options.held; i++)
		if (!check_end(survivor, i, 0) || !check_end(survivor, i, HELD_WORDS - END_WORDS))
			return false;
	return true;
}

static bool fetch_kept(struct survivor *survivor)
{
	void *arguments[] = {&survivor->counters};

	return !survivor->reader ||
	       (!failed(&survivor->trouble,
			cu.launch(survivor->reader, 1, 1, 1, 1, 1, 1, 0, survivor->stream, arguments, NULL),
			"cuLaunchKernel") &&
		       !failed(&survivor->trouble, cu.sync(), "cuCtxSynchronize"));
}

/* Everything that the survivor owns, against what it must be. */
static bool check_all(struct survivor *survivor)
{
	uint32_t *cells, *counters;

	if (!drain(survivor) ||
		!check_patterned(survivor, "memory", survivor->memory, survivor->memory_words) ||
		!check_patterned(survivor, "input", survivor->input, CELLS) || !check_held(survivor))
		return false;
	cells = fetch(survivor, survivor->cells, words_of_cells(survivor));
	for (uint32_t i = 0; cells && i < words_of_cells(survivor); i++)
		found(survivor, "cells", i, cells[i], expected_cell(survivor, i));
	free(cells);
	counters = cells && fetch_kept(survivor) ? fetch(survivor, survivor->counters, 2) : NULL;
	for (uint32_t i = 0; counters && i < 2 && !survivor->options.repeatable; i++)
		found(survivor, "counters", i, counters[i], survivor->finished);
	free(counters);
	survivor->last_ns = 0; /* the look was no pause */
	return counters && !survivor->wrong[0];
}

/* A kernel with more blocks than there is room for takes longer than each of them does. */
static double gap_ms(const struct survivor *survivor)
{
	uint64_t kernel_ns = survivor->options.kernel_us * UINT64_C(1000);

	if (kernel_ns < survivor->shortest_ns)
		kernel_ns = survivor->shortest_ns;
	return survivor->longest_ns > kernel_ns ? (double)(survivor->longest_ns - kernel_ns) / 1e6 : 0;
}

static int survivor_end(const struct survivor *survivor)
{
	const char *outcome = "exact";

	if (survivor->wrong[0])
		outcome = "wrong";
	else if (survivor->trouble.code)
		outcome = "told";
	printf("{\"name\": \"survivor\", \"outcome\": \"%s\", \"code\": %d, \"call\": \"%s\", \"wrong\": "
	       "\"%s\", "
	       "\"kernels\": %u, \"kernel_us\": %u, \"pause_ms\": %.3f}\n",
		outcome, (int)survivor->trouble.code, survivor->trouble.call ? survivor->trouble.call : "",
		survivor->wrong, survivor->finished, survivor->options.idle ? 0 : survivor->options.kernel_us,
		survivor->options.idle ? 0 : gap_ms(survivor));
	fflush(stdout);
	return 0;
}

/* Return: false if the survivor is to end. */
static bool obey(struct survivor *survivor, const char *order)
{
	if (strcmp(order, "watch") == 0) {
		survivor->longest_ns = 0;
		activity_forget();
		say("watching");
		return true;
	}
	if (strncmp(order, "more ", 5) == 0) {
		survivor->more_at = survivor->finished + (uint32_t)strtoul(order + 5, NULL, 10);
		if (survivor->options.idle)
			survivor->more_at = survivor->finished;
		return true;
	}
	if (strcmp(order, "check") == 0 && check_all(survivor)) {
		say("checked");
		return true;
	}
	return false;
}

/* Takes what orders there are. Return: false if the survivor is to end. */
static bool take_orders(struct survivor *survivor, bool wait)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};

	while (poll(&input, 1, wait ? -1 : 0) > 0) {
		char byte;

		if (read(0, &byte, 1) != 1)
			return false;
		if (byte != '\n') {
			if (survivor->line_length < sizeof(survivor->line) - 1)
				survivor->line[survivor->line_length++] = byte;
			continue;
		}
		survivor->line[survivor->line_length] = '\0';
		survivor->line_length = 0;
		return obey(survivor, survivor->line);
	}
	return true;
}

static void answer_more(struct survivor *survivor)
{
	if (!survivor->more_at || survivor->finished < survivor->more_at)
		return;
	survivor->more_at = 0;
	printf("more %.3f %.3f\n", gap_ms(survivor), (double)activity_longest_ns() / 1e6);
	fflush(stdout);
}

static bool work(struct survivor *survivor)
{
	while (survivor->launched - survivor->finished < survivor->options.depth)
		if (!launch_one(survivor))
			return false;
	return await_one(survivor) && activity_round(&survivor->trouble, survivor->wrong) &&
	       !survivor->wrong[0];
}

static bool first_kernels(struct survivor *survivor)
{
	for (uint32_t i = 0; i < FIRST; i++)
		if (!launch_one(survivor) || !drain(survivor))
			return false;
	return true;
}

static int run_survivor(const struct options *options)
{
	static struct survivor survivor;
	bool goes_on;

	survivor.options = *options;
	survivor_open(&survivor);
	if (options->also && !activity_open(options->also))
		return usage();
	goes_on = first_kernels(&survivor);
	if (goes_on)
		say("ready");
	while (goes_on && !survivor.trouble.code) {
		goes_on = take_orders(&survivor, options->idle) && (options->idle || work(&survivor));
		answer_more(&survivor);
	}
	/* An idle one works once more: it is not only its memory that has to be there. */
	if (!survivor.trouble.code && !survivor.wrong[0] && (!options->idle || first_kernels(&survivor)))
		check_all(&survivor);
	return survivor_end(&survivor);
}

/*
 * Culprits
 */

struct culprit {
	CUfunction kernel, pass_time;
	CUdeviceptr memory;
	uint64_t address;
};

static const struct {
	const char *name, *kernel;
} faults[] = {
	{"none", "fault_none"},
	{"near-write", "fault_write"},
	{"near-read", "fault_read"},
	{"far-write", "fault_write"},
	{"far-read", "fault_read"},
	{"null", "fault_write"},
	{"misaligned", "fault_misaligned"},
	{"shared", "fault_shared"},
	{"stack", "fault_stack"},
	{"trap", "fault_trap"},
	{"assert", "fault_assert"},
	{"jump", "fault_jump"},
	{"illegal", "fault_illegal"},
	{"endless", "fault_endless"},
	{"same", "change_cells"}, /* the survivors' kernel, of their module, with a wild pointer */
	{"busy", "pass_time"},
};

static const char *kernel_of(const char *fault)
{
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		if (strcmp(faults[i].name, fault) == 0)
			return faults[i].kernel;
	fprintf(stderr, "worker: no fault is called %s\n", fault);
	exit(2);
}

static uint64_t far_address(void)
{
	const char *module = getenv("FRMPS_BENCH_MODULE");

	return module && strstr(module, ".so") ? FAR_ADDRESS_HOST : FAR_ADDRESS_DEVICE;
}

static uint64_t address_of(const char *fault, CUdeviceptr memory)
{
	if (strncmp(fault, "near", 4) == 0)
		return memory + NEAR_BYTES;
	if (strncmp(fault, "far", 3) == 0 || strcmp(fault, "same") == 0)
		return far_address();
	if (strcmp(fault, "misaligned") == 0)
		return memory + 1;
	if (strcmp(fault, "jump") == 0)
		return JUMP_ADDRESS;
	return 0;
}

static CUresult launch_timed(CUfunction kernel, uint64_t ns)
{
	void *arguments[] = {&ns};

	return cu.launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

static void culprit_open(const struct options *options, struct culprit *culprit)
{
	CUmodule module;

	driver_open();
	module = driver_module();
	culprit->kernel = driver_function(module, kernel_of(options->fault));
	driver_check(cu.alloc(&culprit->memory, 1 << 20), "cuMemAlloc");
	culprit->address = address_of(options->fault, culprit->memory);
	culprit->pass_time = driver_function(module, "pass_time");
	driver_check(
		launch_timed(culprit->pass_time, options->warm_ms * UINT64_C(1000000)), "cuLaunchKernel");
	driver_check(cu.sync(), "cuCtxSynchronize");
}

/* A call or two that must notice. The kernel that faulted may look finished for a while. */
static CUresult look(void)
{
	CUresult code = cu.sync();
	CUdeviceptr memory;

	if (code == CUDA_SUCCESS)
		code = cu.alloc(&memory, 4096);
	return code ? code : cu.free(memory);
}

static CUresult call_until_told(uint64_t begin, uint32_t wait_ms)
{
	struct timespec pause = {.tv_nsec = 500000}; /* what is measured needs the processors as well */
	CUresult code;

	while ((code = look()) == CUDA_SUCCESS && now_ns() - begin < wait_ms * UINT64_C(1000000))
		nanosleep(&pause, NULL);
	return code;
}

/* Until it is killed. */
static void run_busy(const struct options *options, const struct culprit *culprit)
{
	for (uint32_t i = 0;; i++) {
		driver_check(
			launch_timed(culprit->kernel, options->kernel_us * UINT64_C(1000)), "cuLaunchKernel");
		if (i % 64 == 63)
			driver_check(cu.sync(), "cuCtxSynchronize");
		if (i == 32)
			say("launched");
	}
}

static int run_culprit(const struct options *options)
{
	struct culprit culprit;
	CUresult code, again;
	uint64_t begin;
	uint32_t count = CELLS, round = 0, lane = options->all_threads ? UINT32_MAX : 3;
	uint64_t ns = 0;
	void *arguments[] = {&culprit.memory, &culprit.address, &lane};
	void *survivors_arguments[] = {
		&culprit.address, &culprit.memory, &culprit.memory, &count, &round, &ns};
	bool same = strcmp(options->fault, "same") == 0;

	culprit_open(options, &culprit);
	say("ready");
	if (getchar() == EOF)
		return 1;
	if (strcmp(options->fault, "busy") == 0)
		run_busy(options, &culprit);
	if (options->delay_ms)
		driver_check(launch_timed(culprit.pass_time, options->delay_ms * UINT64_C(1000000)),
			"cuLaunchKernel");
	begin = now_ns();
	code = cu.launch(culprit.kernel, options->blocks, 1, 1, options->threads, 1, 1, 1024, NULL,
		same ? survivors_arguments : arguments, NULL);
	say("launched");
	if (code == CUDA_SUCCESS)
		code = call_until_told(begin, options->wait_ms);
	again = code ? cu.sync() : CUDA_SUCCESS;
	printf("{\"name\": \"culprit\", \"fault\": \"%s\", \"code\": %d, \"sticky\": %s, \"after_ms\": "
	       "%.3f}\n",
		options->fault, (int)code, again == code ? "true" : "false",
		(double)(now_ns() - begin) / 1e6);
	fflush(stdout);
	return 0;
}

static uint32_t number(const char *text)
{
	return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

int main(int argc, char **argv)
{
	struct options options = {.kernel_us = 100, .depth = 4, .wait_ms = 10000, .threads = 32};
	bool culprit = argc > 2 && strcmp(argv[1], "culprit") == 0;

	if (!culprit && (argc < 2 || strcmp(argv[1], "survivor") != 0))
		return usage();
	if (culprit)
		options.fault = argv[2];
	for (int i = culprit ? 3 : 2; i < argc; i++) {
		if (strcmp(argv[i], "--idle") == 0)
			options.idle = true;
		else if (strcmp(argv[i], "--repeatable") == 0)
			options.repeatable = true;
		else if (strcmp(argv[i], "--all-threads") == 0)
			options.all_threads = true;
		else if (strcmp(argv[i], "--kept") == 0)
			options.kept = true;
		else if (strcmp(argv[i], "--constant") == 0)
			options.constant = true;
		else if (strcmp(argv[i], "--kernel-us") == 0)
			options.kernel_us = number(argv[++i]);
		else if (strcmp(argv[i], "--blocks") == 0)
			options.blocks = number(argv[++i]);
		else if (strcmp(argv[i], "--threads") == 0)
			options.threads = number(argv[++i]);
		else if (strcmp(argv[i], "--also") == 0)
			options.also = argv[++i];
		else if (strcmp(argv[i], "--depth") == 0)
			options.depth = number(argv[++i]);
		else if (strcmp(argv[i], "--held") == 0)
			options.held = number(argv[++i]);
		else if (strcmp(argv[i], "--warm-ms") == 0)
			options.warm_ms = number(argv[++i]);
		else if (strcmp(argv[i], "--delay-ms") == 0)
			options.delay_ms = number(argv[++i]);
		else if (strcmp(argv[i], "--wait-ms") == 0)
			options.wait_ms = number(argv[++i]);
		else if (strcmp(argv[i], "--launch") != 0 || !launch_form_of(argv[++i], &options.form))
			return usage();
	}
	if (!options.blocks)
		options.blocks = culprit ? 1 : BLOCKS;
	if (!options.threads || !options.depth || options.depth > DEPTH_MAX || options.held > HELD_MAX)
		return usage();
	return culprit ? run_culprit(&options) : run_survivor(&options);
}
