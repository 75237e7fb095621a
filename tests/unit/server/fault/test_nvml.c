// NVML as a witness, with a library of the test's own in its place.

#include "server/fault/nvml.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "protocol/cuda_abi.h"
#include "server/fault/kernel_log.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

static const uint8_t uuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static uv_loop_t loop;
static char folder[] = "/tmp/frmps-nvml-XXXXXX", fifo[64];
static struct xid latest;
static unsigned found, open_before;

static void on_found(void *context, const struct xid *xid)
{
	ck_assert_ptr_eq(context, &loop);
	latest = *xid;
	found++;
}

static void begin(void)
{
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(fifo, sizeof(fifo), "%s/events", folder);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	uv_loop_init(&loop);
	open_before = fds_count();
}

static void end(void)
{
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	unlink(fifo);
	rmdir(folder);
}

static struct nvml *open_nvml(void)
{
	return nvml_new(&loop, "host", uuid, on_found, &loop);
}

/* Both ends, so that no event is lost whenever the library opens it. */
static int open_fifo(void)
{
	int fd = open(fifo, O_RDWR | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

TEST(nvml, an_event_is_a_sign_without_a_process)
{
	const unsigned char numbers[] = {63, 43};
	struct nvml *nvml;
	int fd = open_fifo();

	setenv("FRMPS_NVML", getenv("FRMPS_TEST_NVML_LIBRARY"), 1);
	setenv("FRMPS_TEST_NVML", fifo, 1);
	nvml = open_nvml();
	ck_assert_ptr_nonnull(nvml);
	/* A bad page is no fault of a context. */
	ck_assert_int_eq(write(fd, numbers, 2), 2);
	while (!found)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_uint_eq(found, 1);
	ck_assert_uint_eq(latest.number, 43);
	ck_assert_int_eq(latest.pid, 0);
	ck_assert_int_eq(latest.code, CUDA_ERROR_LAUNCH_FAILED);
	ck_assert_str_eq(latest.text, "Xid 43, by NVML");
	/* While the library waits. The thread ends with the next event. */
	nvml_free(nvml);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(write(fd, numbers, 1), 1);
	close(fd);
	while (fds_count() > open_before)
		sched_yield();
}

/* The library has the device open until then. */
TEST(nvml, it_can_be_stopped)
{
	const unsigned char number = 43;
	struct nvml *nvml;
	int fd = open_fifo();

	setenv("FRMPS_NVML", getenv("FRMPS_TEST_NVML_LIBRARY"), 1);
	setenv("FRMPS_TEST_NVML", fifo, 1);
	ck_assert(nvml_stop(NULL));
	nvml = open_nvml();
	ck_assert_int_eq(write(fd, &number, 1), 1);
	while (!found)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert(!nvml_stop(nvml));
	while (!nvml_stop(nvml))
		uv_run(&loop, UV_RUN_ONCE);
	/* All that is open now is the test's. */
	close(fd);
	ck_assert_int_eq(fds_count(), open_before);
	nvml_free(nvml);
}

/* The loop ends because the thread does. */
TEST_LOOP(nvml, a_library_that_is_not_there_or_refuses_is_done_without, 0, 2)
{
	struct nvml *nvml;

	unsetenv("FRMPS_TEST_NVML");
	setenv("FRMPS_NVML", _i ? getenv("FRMPS_TEST_NVML_LIBRARY") : "/nowhere/libnvidia-ml.so.1", 1);
	nvml = open_nvml();
	ck_assert_ptr_nonnull(nvml);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(found, 0);
	nvml_free(nvml);
}

TEST(nvml, without_a_gpu_nobody_asks_for_it)
{
	unsetenv("FRMPS_NVML");
	ck_assert_ptr_null(open_nvml());
	setenv("FRMPS_NVML", "", 1);
	ck_assert_ptr_null(nvml_new(&loop, "cuda", uuid, on_found, &loop));
}

int main(void)
{
	Suite *suite = suite_create("nvml");
	TCase *cases = suite_case(suite, "nvml");

	fake_prepare();
	tcase_add_checked_fixture(cases, begin, end);
	suite_add(cases, "nvml");
	return suite_run(suite);
}
