// Faults of the device itself: what programs and operators notice. The kernel log is a FIFO, NVML a
// library of ours, so the device need not be hurt, nor be one.

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define PROGRAMS 3

static struct service service;
static struct child programs[PROGRAMS];
static char folder[64], log_path[96], nvml_path[96];
static int kernel_log, nvml;
static int place[3]; /* PCI domain, bus, device */

static int make_fifo(char *path, size_t size, const char *name)
{
	int fd;

	snprintf(path, size, "%s/%s", folder, name);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	/* For reading as well: it has no end. */
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static int find_place(int to)
{
	static const CUdevice_attribute attributes[] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
		CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};

	driver_attach();
	for (int i = 0; i < 3; i++)
		ck_cuda(cuDeviceGetAttribute(&place[i], attributes[i], 0));
	return write(to, place, sizeof(place)) != sizeof(place);
}

static void read_place(void)
{
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_eq(exit_status(spawn(find_place, ends[1])), 0);
	ck_assert_int_eq(read(ends[0], place, sizeof(place)), sizeof(place));
	close(ends[0]);
	close(ends[1]);
}

static void start(void)
{
	strcpy(folder, "/tmp/frmps-device-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	kernel_log = make_fifo(log_path, sizeof(log_path), "kmsg");
	nvml = make_fifo(nvml_path, sizeof(nvml_path), "nvml");
	setenv("FRMPS_KERNEL_LOG", log_path, 1);
	setenv("FRMPS_NVML", getenv("FRMPS_TEST_NVML_LIBRARY"), 1);
	setenv("FRMPS_TEST_NVML", nvml_path, 1);
	ck_assert(service_start(&service, NULL));
	ck_assert(service_log_wait(&service, "is a witness of faults", 2, 60));
	read_place();
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
	close(kernel_log);
	close(nvml);
	unlink(log_path);
	unlink(nvml_path);
	rmdir(folder);
}

static void write_record(const char *where, const char *line)
{
	char record[512];
	int length = snprintf(record, sizeof(record), "4,1,1,-;NVRM: Xid (%s): %s\n", where, line);

	ck_assert_int_eq(write(kernel_log, record, (size_t)length), length);
}

/* About another device by so much. */
static void write_log_beside(const char *line, int domain, int bus, int device)
{
	char where[64];

	snprintf(where, sizeof(where), "PCI:%04x:%02x:%02x", (unsigned)(place[0] + domain),
		(unsigned)(place[1] + bus), (unsigned)(place[2] + device));
	write_record(where, line);
}

static void write_log(const char *line)
{
	write_log_beside(line, 0, 0, 0);
}

/* Waits, when it is ordered to, for a kernel that never ends. Return: the error that it gets, which
 * must be that of the next calls as well. */
static int waiter(int progress, int orders)
{
	uint32_t *word;
	CUresult code;

	driver_open();
	word = shared_word();
	*word = 1;
	ck_cuda(launch_spin(word, 1, NULL));
	ck_cuda(cuCtxSynchronize());
	report(progress);
	ordered(orders, true);
	*word = 0;
	ck_cuda(launch_spin(word, 1, NULL));
	report(progress);
	code = cuCtxSynchronize();
	if (cuCtxSynchronize() != code || cuMemAlloc_v2(&(CUdeviceptr){0}, 4096) != code)
		return 1;
	return (int)code;
}

/* The same, but before that it waits for an order with no code in use: so it can be moved. */
static int late_waiter(int progress, int orders)
{
	driver_open();
	report(progress);
	ordered(orders, true);
	return waiter(progress, orders);
}

static void gather(void)
{
	for (int i = 0; i < PROGRAMS; i++) {
		programs[i] = child_start(waiter);
		child_wait(&programs[i], 1);
	}
	for (int i = 0; i < PROGRAMS; i++) {
		child_order(&programs[i]);
		child_wait(&programs[i], 1);
	}
}

static time_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

/* Everybody gets the code, soon. */
static void expect_told(int code, time_t begin)
{
	for (int i = 0; i < PROGRAMS; i++)
		ck_assert_int_eq(child_end(&programs[i]), code);
	ck_assert_int_le(now() - begin, 10);
}

static int init_code(int argument)
{
	(void)argument;
	return (int)cuInit(0);
}

static void expect_refused(int code)
{
	time_t begin = now();

	ck_assert_int_eq(exit_status(spawn(init_code, 0)), code);
	ck_assert_int_le(now() - begin, 10);
}

static void expect_status(int code, const char *reason)
{
	char said[16384], command[256];
	json_t *status = status_of(&service), *device = json_object_get(status, "device");
	FILE *out;

	ck_assert_str_eq(json_string_value(json_object_get(device, "state")), "failed");
	ck_assert_int_eq(json_integer_value(json_object_get(device, "code")), code);
	ck_assert_msg(strstr(json_string_value(json_object_get(device, "reason")), reason) != NULL, "%s",
		json_string_value(json_object_get(device, "reason")));
	json_decref(status);
	snprintf(command, sizeof(command), "%s status", getenv("FRMPS_TEST_CTL"));
	out = popen(command, "r");
	ck_assert_ptr_nonnull(out);
	said[fread(said, 1, sizeof(said) - 1, out)] = '\0';
	ck_assert_int_eq(pclose(out), 0);
	ck_assert_msg(strstr(said, "the device has failed: ") && strstr(said, reason), "%s", said);
}

/* Executors are gone, and no other one comes; the daemon and the keeper stay. */
static void expect_nobody_is_started(int code)
{
	pid_t pids[16];
	time_t begin = now();

	while (service_children(&service, pids, 16) > 2)
		ck_assert_int_le(now() - begin, 60);
	expect_refused(code);
	ck_assert_int_eq(service_children(&service, pids, 16), 2);
	ck_assert_int_eq(service_log_count(&service, "could not start"), 0);
}

static const struct {
	const char *line;
	unsigned char event; /* by NVML, if there is no line */
	int code;
	const char *reason;
} failures[] = {
	{"79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 0, CUDA_ERROR_DEVICE_UNAVAILABLE,
		"): 79, pid="},
	{"48, An uncorrectable double bit error (DBE) has been detected", 0, CUDA_ERROR_ECC_UNCORRECTABLE,
		"double bit error"},
	{"94, Contained: SM", 0, CUDA_ERROR_ECC_UNCORRECTABLE, "Contained"},
	{NULL, 95, CUDA_ERROR_ECC_UNCORRECTABLE, "Xid 95, by NVML"},
	{NULL, 119, CUDA_ERROR_DEVICE_UNAVAILABLE, "Xid 119, by NVML"},
};

TEST_LOOP(device, when_the_device_fails_everybody_gets_an_error, 0, sizeof(failures) / sizeof(failures[0]))
{
	time_t begin;

	gather();
	begin = now();
	if (failures[_i].line)
		write_log(failures[_i].line);
	else
		ck_assert_int_eq(write(nvml, &failures[_i].event, 1), 1);
	expect_told(failures[_i].code, begin);
	expect_refused(failures[_i].code);
	expect_status(failures[_i].code, failures[_i].reason);
	expect_nobody_is_started(failures[_i].code);
	ck_assert_int_eq(service_log_count(&service, "Restart the service"), 1);
	ck_assert_int_eq(service_log_count(&service, "culprit"), 0);
	/* The way out. */
	ck_assert_int_eq(service_stop(&service), 0);
	ck_assert(service_start(&service, NULL));
	ck_assert_int_eq(exit_status(spawn(one_program, 5)), 0);
}

/* Lines of the log in a row: the last one shows that those before it have been read. */
TEST(device, a_fault_of_another_device_has_no_consequence)
{
	gather();
	for (int i = 0; i < 4; i++) {
		if (i < 3)
			write_log_beside("79, GPU has fallen off the bus.", i == 0, i == 1, i == 2);
		else
			write_record("GPU", "79, GPU has fallen off the bus.");
		ck_assert(service_log_wait(&service, "another device has a fault", i + 1, 60));
	}
	ck_assert_int_eq(exit_status(spawn(one_program, 5)), 0);
	for (int i = 0; i < PROGRAMS; i++)
		ck_assert(child_runs(&programs[i]));
	write_log(failures[0].line);
	expect_told(CUDA_ERROR_DEVICE_UNAVAILABLE, now());
}

TEST(device, a_contained_fault_hurts_the_programs_of_its_executor)
{
	struct child other;
	char line[128], why[400];
	time_t begin;

	gather();
	other = child_start(late_waiter);
	child_wait(&other, 1);
	ck_assert(status_isolate(&service, other.pid, why, sizeof(why)));
	ck_assert_str_eq(why, "");
	for (int i = 0; i < 2; i++) {
		child_order(&other);
		child_wait(&other, 1);
	}
	snprintf(line, sizeof(line), "94, pid=%d, name=frmps-server, Contained: SM (0x1)",
		(int)service_active(&service));
	begin = now();
	write_log(line);
	expect_told(CUDA_ERROR_ECC_UNCORRECTABLE, begin);
	/* The device goes on. */
	ck_assert_int_eq(exit_status(spawn(one_program, 5)), 0);
	ck_assert(child_runs(&other));
	write_log(failures[0].line);
	ck_assert_int_eq(child_end(&other), CUDA_ERROR_DEVICE_UNAVAILABLE);
	ck_assert_int_eq(service_log_count(&service, "culprit"), 0);
}

int main(void)
{
	Suite *suite = suite_create("device");
	TCase *tests = tcase_create("device");

	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "device");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
