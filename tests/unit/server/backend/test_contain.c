// What the driver's threads do after a fault: kept from them where the service handles exceptions
// itself, and the sign of a fault otherwise.

#include "server/backend/cuda/contain.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "server/backend/backend.h"
#include "tests/lib/suite.h"

#define OTHER	0x83de0315u
#define RESET	0x906f0102u
#define CONTROL _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2a, 32)

/* What happened, a word each, in order: calls of the watch, and controls that were executed. */
static char story[512];

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

static void uncontained(void *context, const struct backend_fault *faults, uint32_t count)
{
	(void)faults;
	ck_assert_ptr_eq(context, story);
	ck_assert_uint_eq(count, 0);
	tell("unknown");
}

static const struct backend_watch watch = {
	.suspected = suspected, .uncontained = uncontained, .context = story};

static int execute(int fd, unsigned long request, void *argument)
{
	(void)fd;
	(void)request;
	tell(((uint32_t *)argument)[2] == RESET ? "reset" : "other");
	return 7;
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

static void open_watch(void)
{
	story[0] = '\0';
	contain_enter_thread();
	atomic_store(&backend_watch, &watch);
	contain_arm();
}

static void close_watch(void)
{
	contain_disarm();
	atomic_store(&backend_watch, NULL);
}

TEST(contain, what_we_do_is_no_sign)
{
	uint32_t control[8] = {1, 2, RESET};

	ck_assert_int_eq(contain_ioctl(3, CONTROL, control, execute), 7);
	ck_assert_str_eq(story, "reset ");
}

static void *look_at_terminal(void *unused)
{
	uint32_t argument[8] = {1, 2, RESET};

	(void)unused;
	contain_ioctl(0, TCGETS, argument, execute);
	return NULL;
}

TEST(contain, what_is_not_the_drivers_is_no_sign)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, look_at_terminal, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert_str_eq(story, "reset ");
}

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
TEST_LOOP(contain, the_debugger_is_the_first_sign, 0, 2)
{
	driver_opens("libm.so.6");
	driver_opens("libcudadebugger.so.1.so");
	open_library((void *)(uintptr_t) "libcudadebugger.so.1");
	ck_assert_str_eq(story, "");
	driver_opens(_i ? "/usr/lib/libcudadebugger.so.1" : "libcudadebugger.so.1");
	ck_assert_str_eq(story, "suspected unknown ");
	/* Told once. */
	driver_opens("libcudadebugger.so.1");
	driver(OTHER);
	ck_assert_str_eq(story, "suspected unknown other ");
}

/* Exceptions are not handled here: nothing is kept from the driver. */
TEST(contain, any_control_is_a_sign)
{
	driver(OTHER);
	driver(RESET);
	ck_assert_str_eq(story, "suspected unknown other reset ");
	ck_assert(!backend_contains);
	ck_assert_uint_eq(word_acquire(&contain_parked), 0);
}

TEST(contain, nothing_is_seen_before_it_is_wanted)
{
	contain_disarm();
	driver(OTHER);
	driver(RESET);
	driver_opens("libcudadebugger.so.1");
	ck_assert_str_eq(story, "other reset ");
}

/* The definition in the executable is the one that is called. */
TEST(contain, the_process_uses_it)
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

int main(void)
{
	Suite *suite = suite_create("server/backend/contain");
	TCase *tests = tcase_create("contain");

	tcase_add_checked_fixture(tests, open_watch, close_watch);
	suite_add(tests, "contain");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
