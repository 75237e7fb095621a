// The trial, on the host backend: what it finds where faults are contained, and where they are not.

#include "server/backend/trial.h"

#include <stdlib.h>
#include <time.h>

#include "tests/unit/server/backend/bed.h"

#define PATIENCE_MS	       2000u
#define STANDSTILL_PATIENCE_MS 500u

static char why[TRIAL_TEXT];

static struct trial_kernels kernels = {.survivor = "count_beside",
	.blocks = 1,
	.threads = 1,
	.culprits = {
		{"crash_trap", CUDA_ERROR_LAUNCH_FAILED}, {"crash_illegal", CUDA_ERROR_ILLEGAL_INSTRUCTION}}};

static void *image;

static void open_device(const char *mode)
{
	setenv("FRMPS_HOST_FAULTS", mode, 1);
	ok(OPS->open_executor(0, &bed.device));
	ok(OPS->thread_enter());
	image = host_kernels_read(&kernels.bytes);
	kernels.image = image;
}

static void try(const char *mode, unsigned patience_ms)
{
	open_device(mode);
	trial_run(OPS, &kernels, patience_ms, why);
	free(image);
}

TEST(trial, faults_that_are_contained_are_proved_to_be)
{
	try("named", PATIENCE_MS);
	ck_assert_str_eq(why, "");
}

TEST(trial, a_fault_that_is_not_contained_is_no_proof)
{
	try("unknown", PATIENCE_MS);
	ck_assert_str_eq(why, "after crash_trap: the fault is not contained");
}

TEST(trial, a_fault_of_which_nothing_is_said_is_no_proof)
{
	try("silent", 200);
	ck_assert_str_eq(why, "after crash_trap: the fault was not reported in time");
}

TEST(trial, a_fault_that_is_taken_for_another_is_no_proof)
{
	kernels.culprits[1].code = CUDA_ERROR_ASSERT;
	try("named", PATIENCE_MS);
	ck_assert_str_eq(why, "after crash_illegal: another fault was named (code 715)");
}

TEST(trial, a_count_that_is_not_exact_is_no_proof)
{
	kernels.survivor = "count_beside_wrong";
	try("named", PATIENCE_MS);
	ck_assert_str_eq(why, "after crash_trap: the kernel beside it has counted wrong");
}

TEST(trial, a_kernel_that_does_not_begin_is_no_proof)
{
	kernels.survivor = "crash_stack_and_there_is_none";
	try("named", PATIENCE_MS);
	ck_assert_str_eq(why, "a kernel cannot be launched (code 500)");
}

/* Its context goes on, as if nobody had used it. */
TEST(trial, a_rehearsal_leaves_nothing)
{
	open_device("named");
	/* The second culprit is not rehearsed. */
	kernels.culprits[1].name = "there_is_none";
	for (int i = 0; i < 3; i++) {
		ck_assert(trial_rehearse(OPS, &kernels, PATIENCE_MS, why));
		ck_assert_str_eq(why, "");
	}
	free(image);
	OPS->close();
}

TEST(trial, a_rehearsal_fails_where_a_fault_is_not_contained)
{
	open_device("unknown");
	ck_assert(!trial_rehearse(OPS, &kernels, PATIENCE_MS, why));
	ck_assert_str_eq(why, "after crash_trap: the fault is not contained");
	free(image);
}

/* Stands still once, as a machine does, for longer than a step may take. */
static CUresult query_after_a_standstill(struct backend_stream *stream)
{
	static bool has_stood_still;
	const struct timespec still = {.tv_sec = 2 * STANDSTILL_PATIENCE_MS / 1000};

	if (has_stood_still)
		return OPS->stream_query(stream);
	has_stood_still = true;
	nanosleep(&still, NULL);
	return CUDA_ERROR_NOT_READY;
}

TEST(trial, a_machine_that_stands_still_is_no_silence_of_the_device)
{
	struct backend_ops slow;

	open_device("named");
	slow = *OPS;
	slow.stream_query = query_after_a_standstill;
	trial_run(&slow, &kernels, STANDSTILL_PATIENCE_MS, why);
	ck_assert_str_eq(why, "");
	free(image);
}

/* As if the driver were not known. */
TEST(trial, an_executor_that_is_told_so_contains_nothing)
{
	backend_is_unproved = true;
	try("named", PATIENCE_MS);
	ck_assert(!backend_contains);
	ck_assert_str_eq(why, "after crash_trap: the fault is not contained");
}

int main(void)
{
	Suite *suite = suite_create("trial");
	TCase *tests = tcase_create("trial");

	tcase_set_timeout(tests, 20);
	suite_add(tests, "trial");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
