// Kernel faults of the host backend: the process dies by the signal, and the last words name the command. Or
// it outlasts them.

#include "tests/unit/server/backend/bed.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

static struct last_words *words;

static void make_words(void)
{
	words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(words, MAP_FAILED);
}

static void drop_words(void)
{
	munmap(words, 4096);
}

/* Runs body in a child and returns how it ended. */
static int die_in_child(void (*body)(void))
{
	int status;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (!child) {
		close(STDERR_FILENO); /* whatever a libc or sanitizer has to say */
		backend_last_words = words;
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

static void run_crash(void)
{
	struct backend_launch wishes = {
		.grid = {1, 1, 1}, .block = {1, 1, 1}, .session = 42, .seq = 17, .stream_slot = 5};
	struct backend_stream *other = stream_new(), *stream = stream_new();

	launch(other, "endless", NULL);
	launch(stream, "fill", &(struct fill_params){.out = device(0), .value = 1, .count = 1});
	ok(try_launch(stream, crashes[crash].kernel,
		&(struct crash_write_params){.address = device(BED_WINDOW - 16)}, &wishes));
}

START_TEST(a_kernel_fault_kills_the_process_and_names_the_command)
{
	int status;

	crash = _i;
	status = die_in_child(run_crash);
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), crashes[crash].signal);
	ck_assert_uint_eq(words->magic, LAST_WORDS_MAGIC);
	ck_assert_int_eq(words->code, (int)crashes[crash].code);
	ck_assert_int_eq(words->signal, crashes[crash].signal);
	ck_assert_uint_eq(words->session, 42);
	ck_assert_uint_eq(words->seq, 17);
	ck_assert_uint_eq(words->stream, 5);
	ck_assert_str_eq(words->kernel, crashes[crash].kernel);
	ck_assert(backend_is_fatal((CUresult)words->code));
	if (!crash)
		ck_assert_uint_eq(words->address & 0xffff, (BED_WINDOW - 16) & 0xffff);
}
END_TEST

static void fault_elsewhere(void)
{
	struct backend_stream *stream = stream_new();

	close_gate(stream, 0);
	raise(SIGSEGV);
}

START_TEST(a_fault_outside_a_kernel_accuses_nobody)
{
	int status = die_in_child(fault_elsewhere);

	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGSEGV);
	ck_assert_uint_eq(words->magic, LAST_WORDS_MAGIC);
	ck_assert_uint_eq(words->session, 0);
	ck_assert_uint_eq(words->address, 0);
	ck_assert_str_eq(words->kernel, "");
}
END_TEST

/* Copies after a kernel are not the kernel's. */
static void bad_copy(void)
{
	struct backend_launch wishes = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .session = 42, .seq = 1};
	struct backend_stream *stream = stream_new();

	ok(try_launch(
		stream, "fill", &(struct fill_params){.out = device(0), .value = 1, .count = 1}, &wishes));
	ok(OPS->copy(stream, &(struct backend_copy){.dst = device(BED_WINDOW - 4096),
				     .src = device(0),
				     .width = 16,
				     .height = 1,
				     .depth = 1}));
}

START_TEST(a_copy_after_a_kernel_is_not_the_kernels)
{
	int status = die_in_child(bad_copy);

	ck_assert(WIFSIGNALED(status));
	ck_assert_uint_eq(words->magic, LAST_WORDS_MAGIC);
	ck_assert_uint_eq(words->session, 0);
}
END_TEST

static void run_two_crashes(void)
{
	struct backend_stream *streams[2] = {stream_new(), stream_new()};
	struct backend_event *event;

	ok(OPS->event_create(false, &event));
	close_gate(streams[0], 0);
	ok(OPS->event_record(event, streams[0]));
	for (unsigned i = 0; i < 2; i++) {
		struct backend_launch wishes = {
			.grid = {1, 1, 1}, .block = {1, 1, 1}, .session = i + 1, .seq = i + 1};

		ok(OPS->stream_wait(streams[i], event));
		ok(try_launch(streams[i], "crash_trap", NULL, &wishes));
	}
	open_gate(0);
}

START_TEST(of_two_faults_one_is_told_whole)
{
	int status = die_in_child(run_two_crashes);

	ck_assert(WIFSIGNALED(status));
	ck_assert_uint_eq(words->magic, LAST_WORDS_MAGIC);
	ck_assert(words->session == 1 || words->session == 2);
	ck_assert_uint_eq(words->seq, words->session);
}
END_TEST

/* With on_fault = default: a sign at once, and the mark only when everybody was held. Ends: 0 that is so. */
static void fault_gracefully(void)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct backend_stream *stream = stream_new();
	uint64_t signs;

	launch(stream, "crash_write", &(struct crash_write_params){.address = device(BED_WINDOW - 16)});
	if (read(backend_sign_fd, &signs, sizeof(signs)) != sizeof(signs))
		_exit(2);
	/* Many times the length of its dump. */
	for (int i = 0; i < 50; i++) {
		if (OPS->stream_query(stream) != CUDA_ERROR_NOT_READY)
			_exit(3);
		nanosleep(&pause, NULL);
	}
	word_release(&backend_sign_heeded, 1);
	while (OPS->stream_query(stream) == CUDA_ERROR_NOT_READY)
		nanosleep(&pause, NULL);
	_exit(OPS->stream_query(stream) == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 4);
}

START_TEST(a_kernel_that_faulted_is_not_over_before_its_sign_is_heeded)
{
	int status;

	setenv(BACKEND_ON_FAULT, "default", 1);
	setenv("FRMPS_HOST_DUMP_MS", "1", 1);
	backend_sign_fd = eventfd(0, EFD_CLOEXEC);
	status = die_in_child(fault_gracefully);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	close(backend_sign_fd);
}
END_TEST

static void run_endless(void)
{
	launch(stream_new(), "endless", NULL);
	kill(getpid(), SIGKILL);
}

START_TEST(an_endless_kernel_can_be_killed)
{
	int status = die_in_child(run_endless);

	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGKILL);
	ck_assert_uint_eq(words->magic, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("server/backend/faults");
	TCase *tests = suite_case(suite, "faults");

	tcase_add_checked_fixture(tests, make_words, drop_words);
	tcase_add_loop_test(tests, a_kernel_fault_kills_the_process_and_names_the_command, 0,
		sizeof(crashes) / sizeof(crashes[0]));
	tcase_add_test(tests, a_fault_outside_a_kernel_accuses_nobody);
	tcase_add_test(tests, a_copy_after_a_kernel_is_not_the_kernels);
	tcase_add_loop_test(tests, of_two_faults_one_is_told_whole, 0, 5);
	tcase_add_test(tests, a_kernel_that_faulted_is_not_over_before_its_sign_is_heeded);
	tcase_add_test(tests, an_endless_kernel_can_be_killed);
	return suite_run(suite);
}
