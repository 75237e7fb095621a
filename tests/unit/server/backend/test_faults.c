// Kernel faults of the host backend: what is said of them, and what goes on.

#include "tests/unit/server/backend/bed.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

/* Runs body in a child and returns how it ended. */
static int die_in_child(void (*body)(void))
{
	int status;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (!child) {
		close(STDERR_FILENO); /* whatever a libc or sanitizer has to say */
		bed_init();
		body();
		for (;;)
			pause();
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return status;
}

static const struct {
	const char *kernel;
	int signal;
	CUresult code;
} crashes[] = {
	{"crash_write", SIGSEGV, CUDA_ERROR_ILLEGAL_ADDRESS},
	{"crash_trap", SIGABRT, CUDA_ERROR_LAUNCH_FAILED},
	{"crash_illegal", SIGILL, CUDA_ERROR_ILLEGAL_INSTRUCTION},
	{"crash_divide", SIGFPE, CUDA_ERROR_LAUNCH_FAILED},
	{"crash_stack", SIGSEGV, CUDA_ERROR_HARDWARE_STACK_ERROR},
};
static int crash;

/* What a fault leaves unfinished is never destroyed, and held here: the leak checker finds it. */
static struct backend_stream *held;

static void run_crash(void)
{
	held = stream_new();
	launch(held, crashes[crash].kernel, &(struct crash_write_params){.address = device(BED_WINDOW - 16)});
}

/* A tool: there is nobody to tell. */
TEST_LOOP(faults, where_nobody_watches_the_process_dies, 0, sizeof(crashes) / sizeof(crashes[0]))
{
	int status;

	crash = _i;
	status = die_in_child(run_crash);
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), crashes[_i].signal);
}

/* What was said, a letter each. */
static char story[16];
static word32 letters;
static struct backend_fault fault;

static void tell(char letter)
{
	uint32_t at = word_acquire(&letters);

	ck_assert_uint_lt(at, sizeof(story) - 1);
	story[at] = letter;
	word_release(&letters, at + 1);
}

static void suspected(void *context)
{
	ck_assert_ptr_eq(context, &fault);
	tell('s');
}

static void stopped(void *context)
{
	ck_assert_ptr_eq(context, &fault);
	tell('x');
}

static void contained(void *context, const struct backend_fault *faults, uint32_t count)
{
	ck_assert_ptr_eq(context, &fault);
	ck_assert_uint_eq(count, 1);
	fault = faults[0];
	tell('c');
}

static void uncontained(void *context, const struct backend_fault *faults, uint32_t count)
{
	(void)faults;
	ck_assert_ptr_eq(context, &fault);
	ck_assert_uint_eq(count, 0);
	tell('u');
}

static const struct backend_watch watch = {.suspected = suspected,
	.stopped = stopped,
	.contained = contained,
	.uncontained = uncontained,
	.context = &fault};

static void open_slow(const char *mode, const char *ms)
{
	setenv("FRMPS_HOST_FAULTS", mode, 1);
	setenv("FRMPS_HOST_FAULT_MS", ms, 1);
	bed_init();
	atomic_store(&backend_watch, &watch);
}

static void open_mode(const char *mode)
{
	open_slow(mode, "5");
}

static void expect_story(const char *whole)
{
	while (word_acquire(&letters) < strlen(whole))
		sched_yield();
	ck_assert_str_eq(story, whole);
}

TEST_LOOP(faults, a_fault_is_named_and_the_rest_goes_on, 0, sizeof(crashes) / sizeof(crashes[0]))
{
	struct backend_stream *stream, *other;

	open_mode("named");
	ck_assert(backend_contains);
	stream = stream_new();
	other = stream_new();
	launch(stream, crashes[_i].kernel, &(struct crash_write_params){.address = device(BED_WINDOW - 16)});
	launch(stream, "fill", &(struct fill_params){.out = device(0), .value = 7, .count = 1});
	launch(other, "fill", &(struct fill_params){.out = device(64), .value = 8, .count = 1});
	wait_stream(stream);
	wait_stream(other);
	ck_assert_uint_eq(*(uint32_t *)(uintptr_t)device(0), 7);
	expect_story("sxc");
	ck_assert_ptr_eq(fault.module, bed.module);
	ck_assert_int_eq(fault.code, crashes[_i].code);
	ck_assert_str_eq(fault.kernel, crashes[_i].kernel);
	/* Nothing of it is left. */
	ok(OPS->stream_destroy(stream));
	ok(OPS->stream_destroy(other));
	atomic_store(&backend_watch, NULL);
	bed_deinit();
}

/* More than there is room for. */
TEST(faults, many_launches_of_a_kernel_are_one_fault)
{
	struct backend_stream *stream;

	open_slow("named", "2000");
	stream = stream_new();
	for (uint32_t i = 0; i < 2 * BACKEND_FAULTS_MAX; i++)
		launch(stream, "crash_trap", NULL);
	wait_stream(stream);
	expect_story("sxc");
	ck_assert_str_eq(fault.kernel, "crash_trap");
	ok(OPS->stream_destroy(stream));
	atomic_store(&backend_watch, NULL);
	bed_deinit();
}

TEST(left, a_fault_may_be_seen_and_not_be_known)
{
	open_mode("unknown");
	ck_assert(!backend_contains);
	run_crash();
	expect_story("su");
}

TEST(left, a_fault_may_be_silent)
{
	struct backend_stream *stream, *other;

	open_mode("silent");
	ck_assert(backend_contains);
	stream = held = stream_new();
	other = stream_new();
	close_gate(other, 0);
	launch(stream, crashes[0].kernel, &(struct crash_write_params){.address = device(BED_WINDOW - 16)});
	launch(stream, "fill", &(struct fill_params){.out = device(64), .value = 7, .count = 1});
	/* While a kernel runs that does not end. */
	ck_assert_int_eq(OPS->stream_query(stream), CUDA_ERROR_NOT_READY);
	open_gate(0);
	while (OPS->stream_query(stream) == CUDA_ERROR_NOT_READY)
		sched_yield();
	ck_assert_int_eq(OPS->stream_query(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_str_eq(story, "");
	ok(OPS->stream_destroy(other));
}

TEST(faults_2, what_it_is_not_is_refused)
{
	struct backend_device device;

	setenv("FRMPS_HOST_FAULTS", "often", 1);
	ck_assert_int_eq(OPS->open_executor(0, &device), CUDA_ERROR_INVALID_VALUE);
	unsetenv("FRMPS_HOST_FAULTS");
}

static void fault_elsewhere(void)
{
	struct backend_stream *stream = stream_new();

	atomic_store(&backend_watch, &watch);
	close_gate(stream, 0);
	raise(SIGSEGV);
}

/* Copies after a kernel are not the kernel's. */
static void bad_copy(void)
{
	struct backend_stream *stream = stream_new();

	atomic_store(&backend_watch, &watch);
	launch(stream, "fill", &(struct fill_params){.out = device(0), .value = 1, .count = 1});
	ok(OPS->copy(stream, &(struct backend_copy){.dst = device(BED_WINDOW - 4096),
				     .src = device(0),
				     .width = 16,
				     .height = 1,
				     .depth = 1}));
}

TEST_LOOP(faults_2, a_fault_outside_a_kernel_is_the_end, 0, 2)
{
	int status = die_in_child(_i ? bad_copy : fault_elsewhere);

	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGSEGV);
}

static void run_endless(void)
{
	launch(stream_new(), "endless", NULL);
	kill(getpid(), SIGKILL);
}

TEST(faults_2, an_endless_kernel_can_be_killed)
{
	int status = die_in_child(run_endless);

	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGKILL);
}

int main(void)
{
	Suite *suite = suite_create("server/backend/faults");
	/* What is left of a fault is left to the end of the process, and the module with it. */
	TCase *tests = suite_case(suite, "faults"), *left = tcase_create("left");

	suite_add(tests, "faults");
	suite_add(left, "left");
	suite_add_tcase(suite, left);
	suite_add(tests, "faults_2");
	return suite_run(suite);
}
