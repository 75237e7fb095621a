// What the driver's threads ask the kernel-mode driver for after a fault, and what is made of it.

#include "server/backend/cuda/contain.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "server/backend/backend.h"
#include "server/backend/cuda/handles.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/backend/dump_bed.h"

#define STOP	0x83de0317u
#define READ	0x83de0315u
#define LET_GO	0x83de0318u
#define RESET	0x906f0102u
#define CONTROL _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2a, 32)
#define OURS	((struct backend_module *)(uintptr_t)0x4711)

/* What happened, a word each, in order: calls of the watch, and controls that were executed. */
static char story[512];
static struct backend_fault faults[BACKEND_FAULTS_MAX];
static char path[64];

static void tell(const char *word)
{
	strcat(story, word);
	strcat(story, " ");
}

static void suspected(void *context)
{
	ck_assert_ptr_eq(context, story);
	tell("suspected");
}

static void stopped(void *context)
{
	ck_assert_ptr_eq(context, story);
	tell("seen");
}

static void contained(void *context, const struct backend_fault *found, uint32_t count)
{
	ck_assert_ptr_eq(context, story);
	for (uint32_t i = 0; i < count; i++)
		faults[i] = found[i];
	tell("contained");
}

static void uncontained(void *context, const struct backend_fault *found, uint32_t count)
{
	ck_assert_ptr_eq(context, story);
	for (uint32_t i = 0; i < count; i++)
		faults[i] = found[i];
	tell(count ? "uncontained" : "unknown");
}

static const struct backend_watch watch = {.suspected = suspected,
	.stopped = stopped,
	.contained = contained,
	.uncontained = uncontained,
	.context = story};

static int execute(int fd, unsigned long request, void *argument)
{
	uint32_t command = argument ? ((uint32_t *)argument)[2] : 0;

	(void)fd;
	(void)request;
	tell(command == STOP ? "stop" : command == LET_GO ? "go" : command == RESET ? "reset" : "other");
	return 7;
}

static uint8_t state_of_device;
static unsigned executed_reads;

static int execute_read(int fd, unsigned long request, void *argument)
{
	const struct control *control = argument;
	struct control_read *wish = (void *)(uintptr_t)control->parameters;

	(void)fd;
	(void)request;
	executed_reads++;
	memset((void *)(uintptr_t)wish->buffer, state_of_device, wish->length);
	return 0;
}

static void *ask(void *argument)
{
	const uint32_t *wish = argument;
	uint32_t control[8] = {1, 2, wish[0]};

	ck_assert_int_eq(contain_ioctl(3, CONTROL, control, execute), 7);
	return NULL;
}

/* A thread of the driver. */
static void driver(uint32_t command)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, ask, &command), 0);
	pthread_join(thread, NULL);
}

/* The same, for a control that is not executed: the thread never comes back. */
static void driver_is_kept(uint32_t command)
{
	static uint32_t kept;
	uint32_t before = word_acquire(&contain_parked);
	pthread_t thread;

	kept = command;
	ck_assert_int_eq(pthread_create(&thread, NULL, ask, &kept), 0);
	pthread_detach(thread);
	while (word_acquire(&contain_parked) == before)
		sched_yield();
}

/* The driver writes its dump. */
static void write_dump(uint8_t *bytes, size_t size)
{
	FILE *out = fopen(path, "wb");

	ck_assert(out);
	ck_assert_uint_eq(fwrite(bytes, 1, size, out), size);
	fclose(out);
	free(bytes);
}

static void dump(const char *name)
{
	size_t size;
	uint8_t *bytes = dump_load(name, &size);

	write_dump(bytes, size);
}

static void fault(const char *name)
{
	driver(READ);
	driver(STOP);
	dump(name);
	driver(LET_GO);
}

static void open_watch(void)
{
	int fd;

	strcpy(path, "/tmp/frmps-contain-XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	setenv("CUDA_COREDUMP_FILE", path, 1);
	story[0] = '\0';
	memset(faults, 0, sizeof(faults));
	contain_enter_thread();
	atomic_store(&backend_watch, &watch);
	/* What trap.dump, write.dump, jump.dump and stack.dump call the culprit's module. */
	handles_note(0x55fbc7cdd7a0, OURS);
	handles_note(0x55e2305cf700, OURS);
	handles_note(0x564e272cc740, OURS);
	handles_note(0x56212670f660, OURS);
	contain_arm();
}

static void close_watch(void)
{
	contain_disarm();
	atomic_store(&backend_watch, NULL);
	unlink(path);
}

START_TEST(what_we_do_is_no_sign)
{
	uint32_t control[8] = {1, 2, STOP};

	ck_assert_int_eq(contain_ioctl(3, CONTROL, control, execute), 7);
	ck_assert_str_eq(story, "stop ");
}
END_TEST

static void *look_at_terminal(void *unused)
{
	uint32_t argument[8] = {1, 2, STOP};

	(void)unused;
	contain_ioctl(0, TCGETS, argument, execute);
	return NULL;
}

START_TEST(what_is_not_the_drivers_is_no_sign)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, look_at_terminal, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert_str_eq(story, "stop ");
}
END_TEST

static void *open_library(void *file)
{
	void *library = dlopen(file, RTLD_NOW);

	if (library)
		dlclose(library);
	return NULL;
}

static void driver_opens(const char *file)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, open_library, (void *)(uintptr_t)file), 0);
	pthread_join(thread, NULL);
}

/* It opens what it reads a fault with before it makes any control. */
START_TEST(the_debugger_is_the_first_sign)
{
	driver_opens("libm.so.6");
	driver_opens("libcudadebugger.so.1.so");
	open_library((void *)(uintptr_t) "libcudadebugger.so.1");
	ck_assert_str_eq(story, "");
	driver_opens(_i ? "/usr/lib/libcudadebugger.so.1" : "libcudadebugger.so.1");
	ck_assert_str_eq(story, "suspected ");
	fault("write");
	ck_assert_str_eq(story, "suspected other seen stop contained go ");
	driver_opens("libcudadebugger.so.1");
	ck_assert_str_eq(story, "suspected other seen stop contained go ");
}
END_TEST

START_TEST(nothing_is_seen_before_it_is_wanted)
{
	contain_disarm();
	fault("trap");
	driver(RESET);
	ck_assert_str_eq(story, "other stop go reset ");
}
END_TEST

START_TEST(a_fault_of_ours_is_contained)
{
	static const struct {
		const char *dump, *kernel;
		CUresult code;
	} cases[] = {{"trap", "culprit_trap", CUDA_ERROR_LAUNCH_FAILED},
		{"write", "culprit_write", CUDA_ERROR_ILLEGAL_ADDRESS}};

	fault(cases[_i].dump);
	ck_assert_str_eq(story, "suspected other seen stop contained go ");
	ck_assert_ptr_eq(faults[0].module, OURS);
	ck_assert_str_eq(faults[0].kernel, cases[_i].kernel);
	ck_assert_int_eq(faults[0].code, cases[_i].code);
	ck_assert(!faults[0].may_recur);
	driver_is_kept(RESET);
	ck_assert_str_eq(story, "suspected other seen stop contained go ");
	/* Others of the driver's go on. */
	driver(READ);
	ck_assert_str_eq(story, "suspected other seen stop contained go other ");
}
END_TEST

/* The driver reads a line of the device's state. Return: its first byte. */
static uint8_t read_line(uint64_t offset)
{
	uint8_t line[128] = {0};
	struct control_read wish = {
		.memory = 9, .length = sizeof(line), .offset = offset, .buffer = (uintptr_t)line};
	struct control control = {.command = READ, .parameters = (uintptr_t)&wish, .size = sizeof(wish)};

	contain_ioctl(3, CONTROL, &control, execute_read);
	return line[0];
}

static void *read_lines(void *unused)
{
	(void)unused;
	for (unsigned i = 0; i < 1000; i++)
		ck_assert_uint_eq(read_line(i * 128), state_of_device);
	return NULL;
}

static unsigned reads_of_a_thousand(void)
{
	pthread_t thread;

	executed_reads = 0;
	ck_assert_int_eq(pthread_create(&thread, NULL, read_lines, NULL), 0);
	pthread_join(thread, NULL);
	return executed_reads;
}

START_TEST(what_stands_still_is_read_ahead)
{
	driver(STOP);
	state_of_device = 1;
	ck_assert_uint_lt(reads_of_a_thousand(), 100);
	dump("write");
	driver(LET_GO);
	/* Now it does not. */
	state_of_device = 2;
	ck_assert_uint_eq(reads_of_a_thousand(), 1000);
	driver(STOP);
	state_of_device = 3;
	ck_assert_uint_lt(reads_of_a_thousand(), 100);
}
END_TEST

START_TEST(a_fault_of_nobody_is_not_contained)
{
	handles_forget(OURS);
	fault("trap");
	driver(RESET);
	ck_assert_str_eq(story, "suspected other seen stop uncontained go reset ");
	ck_assert_ptr_null(faults[0].module);
	ck_assert_str_eq(faults[0].kernel, "culprit_trap");
}
END_TEST

START_TEST(who_left_the_code_is_not_contained)
{
	fault("jump");
	driver(RESET);
	ck_assert_str_eq(story, "suspected other seen stop uncontained go reset ");
	ck_assert_ptr_eq(faults[0].module, OURS);
	ck_assert_int_eq(faults[0].code, CUDA_ERROR_ILLEGAL_INSTRUCTION);
}
END_TEST

/* Warp and multiprocessor disagree: it may have been that kernel, or another one. */
START_TEST(who_may_not_have_been_it_is_not_named)
{
	size_t size;
	uint8_t *bytes = dump_load_without_culprit(&size);

	handles_note(BYSTANDERS_MODULE, OURS);
	dump_say_of_sm(bytes, 0, CULPRITS_PC);
	dump_say_of_warp(bytes, BYSTANDERS_PC, true);
	driver(READ);
	driver(STOP);
	write_dump(bytes, size);
	driver(LET_GO);
	ck_assert_str_eq(story, "suspected other seen stop unknown go ");
}
END_TEST

START_TEST(a_fault_without_a_dump_is_not_contained)
{
	driver(STOP);
	driver(LET_GO);
	driver(RESET);
	ck_assert_str_eq(story, "suspected seen stop unknown go reset ");
}
END_TEST

START_TEST(bad_addresses_are_contained_again_and_again)
{
	fault("write");
	driver_is_kept(RESET);
	for (int i = 0; i < 3; i++) {
		story[0] = '\0';
		fault("write");
		ck_assert_str_eq(story, "other suspected seen stop contained go ");
	}
}
END_TEST

START_TEST(an_old_dump_proves_nothing)
{
	fault("write");
	story[0] = '\0';
	driver(STOP);
	driver(LET_GO);
	ck_assert_str_eq(story, "suspected seen stop unknown go ");
}
END_TEST

/* A stack that overflows is such a case: it looks like an access beyond shared memory first. */
START_TEST(after_anything_else_the_next_stop_is_the_end)
{
	fault("stack");
	ck_assert(faults[0].may_recur);
	story[0] = '\0';
	driver(STOP);
	ck_assert_str_eq(story, "suspected seen unknown stop ");
	/* The reset of the first one is still kept, but nothing more is said. */
	driver_is_kept(RESET);
	driver(LET_GO);
	ck_assert_str_eq(story, "suspected seen unknown stop go ");
}
END_TEST

START_TEST(codes_are_those_of_the_driver)
{
	ck_assert_int_eq(contain_code(0), CUDA_ERROR_LAUNCH_FAILED);
	ck_assert_int_eq(contain_code(4), CUDA_ERROR_ILLEGAL_INSTRUCTION);
	ck_assert_int_eq(contain_code(5), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(contain_code(6), CUDA_ERROR_MISALIGNED_ADDRESS);
	ck_assert_int_eq(contain_code(12), CUDA_ERROR_ASSERT);
	ck_assert_int_eq(contain_code(14), CUDA_ERROR_ILLEGAL_ADDRESS);
	for (uint32_t exception = 0; exception < 64; exception++)
		ck_assert(backend_is_fatal(contain_code(exception)));
}
END_TEST

/* The definition in the executable is the one that is called. */
START_TEST(the_process_uses_it)
{
	int ends[2], count = -1;

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(write(ends[1], "abc", 3), 3);
	ck_assert_int_eq(ioctl(ends[0], FIONREAD, &count), 0);
	ck_assert_int_eq(count, 3);
	ck_assert_int_eq(ioctl(-1, FIONREAD, &count), -1);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("server/backend/contain");
	TCase *tests = tcase_create("contain");

	tcase_add_checked_fixture(tests, open_watch, close_watch);
	tcase_add_test(tests, what_we_do_is_no_sign);
	tcase_add_test(tests, what_is_not_the_drivers_is_no_sign);
	tcase_add_loop_test(tests, the_debugger_is_the_first_sign, 0, 2);
	tcase_add_test(tests, nothing_is_seen_before_it_is_wanted);
	tcase_add_loop_test(tests, a_fault_of_ours_is_contained, 0, 2);
	tcase_add_test(tests, what_stands_still_is_read_ahead);
	tcase_add_test(tests, a_fault_of_nobody_is_not_contained);
	tcase_add_test(tests, who_left_the_code_is_not_contained);
	tcase_add_test(tests, who_may_not_have_been_it_is_not_named);
	tcase_add_test(tests, a_fault_without_a_dump_is_not_contained);
	tcase_add_test(tests, bad_addresses_are_contained_again_and_again);
	tcase_add_test(tests, an_old_dump_proves_nothing);
	tcase_add_test(tests, after_anything_else_the_next_stop_is_the_end);
	tcase_add_test(tests, codes_are_those_of_the_driver);
	tcase_add_test(tests, the_process_uses_it);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
