// Tests of client/text/text.c: what comes out of a ring that kernels have filled or spoiled, and of
// what is left when the session is over. The test writes what kernels would.

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/state/session.h"
#include "client/text/text.h"
#include "shm/text.h"
#include "tests/unit/client/shim.h"

#define BYTES	    SHM_TEXT_BYTES_MIN
#define KIND_NOBODY 9u /* says nothing */

static struct shm_text *ring;
static int said_fd, old_stderr;

static void setup(void)
{
	shim_setup();
	OK(text_open_small());
	ring = (struct shm_text *)(uintptr_t)shm_text_address(session_self()->connection.window_base,
		session_self()->connection.device_bytes, session_self()->connection.host_bytes);
	said_fd = memfd_create("said", MFD_CLOEXEC);
	old_stderr = dup(STDERR_FILENO);
	dup2(said_fd, STDERR_FILENO);
}

static void teardown(void)
{
	dup2(old_stderr, STDERR_FILENO);
	close(old_stderr);
	close(said_fd);
	shim_teardown();
}

static void put_first(uint64_t position, uint64_t size, uint64_t kind)
{
	word_release(&ring->words[(position & (BYTES - 1)) / 8], SHM_TEXT_FIRST(size, kind, position));
}

/* An assertion that failed, behind what is there. */
static void assert_at(uint64_t position)
{
	static const uint64_t numbers[7] = {7, 1, 2, 3, 4, 5, 6};
	static const char *const texts[3] = {"x", "f.cu", "g"};
	uint64_t words[10] = {0};

	memcpy(words, numbers, sizeof(numbers));
	for (unsigned int i = 0; i < 3; ++i)
		memcpy(&words[7 + i], texts[i], strlen(texts[i]));
	for (unsigned int i = 0; i < 10; ++i)
		word_set(&ring->words[position / 8 + 1 + i], words[i]);
	put_first(position, 88, SHM_TEXT_ASSERT);
	word_release(&ring->head, position + 88);
}

static void expect_said(const char *expected)
{
	char said[256] = "";
	ssize_t bytes = pread(said_fd, said, sizeof(said) - 1, 0);

	ck_assert_int_ge(bytes, 0);
	ck_assert_str_eq(said, expected);
}

static const char line[] = "f.cu:7: g: block: [1,2,3], thread: [4,5,6] Assertion `x` failed.\n";

/* The service ends the session while something is under way. */
static void end_session(void)
{
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	word_set(&loopback->fault, CUDA_ERROR_ASSERT);
}

/* ---- a spoiled ring ---- */

/* A record that ends behind all that was written is none: it would come again and again. */
TEST(text, a_record_without_room)
{
	put_first(24, BYTES, KIND_NOBODY);
	word_release(&ring->head, BYTES + 16);
	text_flush(session_self());
	ck_assert(text_is_used());
}

/* Positions go on at 0 behind the last one. */
TEST(text, a_head_at_the_end_of_numbers)
{
	word_release(&ring->head, UINT64_MAX - 7);
	text_flush(session_self());
	word_release(&ring->head, UINT64_MAX);
	end_session();
	FAILS(cuCtxSynchronize(), ASSERT);
}

/* ---- sizes ---- */

/* Two threads may load the first module that prints at the same time, and one of them may have
 * printed already. */
TEST(text, a_second_module_that_prints)
{
	OK(text_open(2 * BYTES));
	OK(text_resize(4 * BYTES));
	ck_assert_uint_eq(ring->bytes, 4 * BYTES);
	word_release(&ring->head, 8);
	OK(text_open(2 * BYTES));
	FAILS(text_resize(2 * BYTES), INVALID_VALUE);
	ck_assert_uint_eq(ring->bytes, 4 * BYTES);
}

/* ---- the end ---- */

TEST(text, assertions_come_with_the_error)
{
	assert_at(0);
	end_session();
	FAILS(cuCtxSynchronize(), ASSERT);
	expect_said(line);
}

static pthread_barrier_t barrier;
static pthread_t holder;

static void *hold(void *file)
{
	flockfile(file);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	funlockfile(file);
	return NULL;
}

static void let_hold(FILE *file)
{
	pthread_barrier_init(&barrier, NULL, 2);
	ck_assert_int_eq(pthread_create(&holder, NULL, hold, file), 0);
	pthread_barrier_wait(&barrier);
}

static void end_hold(void)
{
	pthread_barrier_wait(&barrier);
	ck_assert_int_eq(pthread_join(holder, NULL), 0);
}

/* Who hears of the end does not wait for a thread that writes. Then they come with the next
 * error. */
TEST(text, assertions_are_not_lost_while_output_is_held)
{
	let_hold(stdout);
	assert_at(0);
	end_session();
	while (cuStreamQuery(NULL) != CUDA_ERROR_ASSERT)
		continue;
	expect_said("");
	end_hold();
	FAILS(cuStreamQuery(NULL), ASSERT);
	expect_said(line);
}

/* A thread that holds it may be waiting for who writes them. */
TEST(text, assertions_do_not_wait_for_who_holds_standard_error)
{
	let_hold(stderr);
	assert_at(0);
	end_session();
	FAILS(cuCtxSynchronize(), ASSERT);
	expect_said(line);
	end_hold();
}

int main(void)
{
	Suite *suite = suite_create("text");
	TCase *tests = tcase_create("text");

	tcase_add_checked_fixture(tests, setup, teardown);
	suite_add(tests, "text");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
