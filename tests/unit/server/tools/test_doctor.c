// frmpsctl doctor on a machine of files: what it finds where all is well, and where one thing is
// not.

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/probe.h"
#include "server/tools/doctor.h"
#include "server/version.h"
#include "tests/lib/folder.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/one_answer.h"

#define STATUS(version, state)                                                                               \
	"{\"version\": \"" version "\", \"pid\": 7, \"device\": {\"state\": \"" state                        \
	"\", \"reason\": \"it fell off\"}}"
#define GOOD STATUS(SERVER_VERSION, "serving")

static char *folder;

static void set_up(void)
{
	folder = folder_enter();
	folder_shell("mkdir -p etc/frmps proc/7 sys/module/nvidia dev/shm shim");
	folder_shell("echo 'backend = /a/b.so' >etc/frmps/frmps.conf");
	folder_shell("echo 580.1.2 >sys/module/nvidia/version; echo >dev/kmsg");
	folder_shell("printf 'Max locked memory         unlimited            unlimited            bytes\\n"
		     "Max open files            1048576              1048576              files\\n' "
		     ">proc/7/limits");
	folder_put_shim("shim/libcuda.so.1", "some code ");
	setenv("FRMPS_SHIM_DIR", "shim", 1);
}

/* @status: of the service; NULL: there is none. Return: what doctor_run() returns */
static int examine(const char *status, const char *server, bool json, char **ret_text)
{
	pid_t service = status ? one_answer_start("socket", 0, status) : 0;
	struct doctor doctor = {.root = folder, .socket = "socket", .server = server, .json = json};
	size_t length;
	int code;

	doctor.out = open_memstream(ret_text, &length);
	code = doctor_run(&doctor);
	fclose(doctor.out);
	if (service)
		ck_assert_int_eq(waitpid(service, NULL, 0), service);
	return code;
}

TEST(doctor, a_good_machine_has_no_errors)
{
	static const char *const checks[] = {
		"configuration", "driver", "exceptions", "library", "service", "files", "memory", "programs"};
	char *text, line[64];

	ck_assert_int_eq(examine(GOOD, NULL, false, &text), 0);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		snprintf(line, sizeof(line), "ok       %-13s  ", checks[i]);
		ck_assert_msg(strstr(text, line) != NULL, "%s: %s", checks[i], text);
	}
	ck_assert_ptr_null(strstr(text, "error "));
	free(text);
}

/* What makes the machine worse, what the service answers, what is found. */
static const struct {
	const char *command, *status, *found;
	int code;
} bad[] = {
	{"echo 'standbys = 99' >>etc/frmps/frmps.conf", GOOD, "error    configuration  ", 1},
	{"printf 'standbys = 99\nweight = 0\n' >>etc/frmps/frmps.conf", GOOD, "frmps.conf:3: weight", 1},
	{"printf 'memory_limit = 1G\nmemory_guarantee = 2G\n' >>etc/frmps/frmps.conf", GOOD,
		"frmps.conf:3: memory_guarantee is more than memory_limit", 1},
	{"rm shim/libcuda.so.1", GOOD, "error    library        the service's libcuda.so.1 is not found", 1},
	{"echo other >shim/libcuda.so.1", GOOD, "which is not the service's. To do: ", 1},
	{"true", NULL, "error    service        the service at socket cannot be reached", 1},
	{"true", "{}", "error    service        ", 1},
	{"true", STATUS("0.0.1", "serving"),
		"warning  service        the service at socket has version 0.0.1", 0},
	{"true", STATUS(SERVER_VERSION, "failed"),
		"error    device         the service has given the device up: it fell off", 1},
	{"true", STATUS(SERVER_VERSION, "drained"),
		"warning  device         an operator has the device drained", 0},
	{"sed -i 's/1048576/1024/' proc/7/limits", GOOD,
		"warning  files          the service may open 1024 files", 0},
	{"rm proc/7/limits", GOOD, "warning  files          limits of the service are not known", 0},
	{"echo 535.1 >sys/module/nvidia/version", GOOD, "warning  exceptions     ", 0},
	{"mkdir proc/9; echo python3 >proc/9/comm; echo other >libcuda.so.1;"
	 "echo \"1-2 r-xp 0 08:01 5 $PWD/libcuda.so.1\" >proc/9/maps",
		GOOD,
		"warning  programs       1 process uses the driver's library without the service: 9 "
		"(python3)",
		0},
	{"rmdir dev/shm", GOOD, "warning  shared_memory  ", 0},
	{"echo 'backend = cuda' >etc/frmps/frmps.conf", GOOD, "error    driver         frmps-server", 1},
	{"rm dev/kmsg; rm etc/frmps/frmps.conf", GOOD, "warning  kernel_log     ", 1},
};

TEST_LOOP(doctor, one_thing_that_is_wrong_is_found, 0, sizeof(bad) / sizeof(bad[0]))
{
	char *text;

	folder_shell(bad[_i].command);
	ck_assert_int_eq(examine(bad[_i].status, NULL, false, &text), bad[_i].code);
	ck_assert_msg(strstr(text, bad[_i].found) != NULL, "%s", text);
	ck_assert_ptr_nonnull(strstr(strstr(text, bad[_i].found), ". To do: "));
	free(text);
}

TEST(doctor, another_library_before_ours_is_found)
{
	char *text;

	setenv("LD_PRELOAD", "/nonexistent/libcuda.so.1", 1);
	ck_assert_int_eq(examine(GOOD, NULL, false, &text), 1);
	unsetenv("LD_PRELOAD");
	ck_assert_msg(strstr(text, "error    preload        LD_PRELOAD=/nonexistent/libcuda.so.1") != NULL,
		"%s", text);
	free(text);
}

/* A driver's answer, struct probe_answer. @count: of devices; @exclusive: the first byte of that */
static void answer_with(const char *count, const char *exclusive)
{
	char line[512];

	ck_assert_uint_eq(sizeof(struct probe_answer), 5456);
	snprintf(line, sizeof(line),
		"{ printf '#!/bin/sh\\n{ printf \"%s\\\\000\\\\000\\\\000\\\\000\\\\000\\\\000\\\\000%s\"; "
		"head -c 5447 /dev/zero; } | dd bs=5456 iflag=fullblock 2>/dev/null >&3\\n'; } >server; "
		"chmod +x server; rm -f socket",
		count, exclusive);
	folder_shell(line);
}

TEST(doctor, the_driver_is_asked_as_the_service_asks_it)
{
	char *text;

	folder_shell("rm etc/frmps/frmps.conf");
	setenv("FRMPS_DRIVER", "/nonexistent/libcuda.so.1", 1);
	ck_assert_int_eq(examine(GOOD, getenv("FRMPS_TEST_SERVER"), false, &text), 1);
	ck_assert_msg(strstr(text, "no usable GPU: FRMPS_DRIVER names /nonexistent/libcuda.so.1") != NULL,
		"%s", text);
	free(text);
	answer_with("\\\\002", "\\\\000");
	ck_assert_int_eq(examine(GOOD, "./server", false, &text), 0);
	ck_assert_msg(strstr(text, "ok       driver         2 GPUs can be served") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "ok       kernel_log     can be read") != NULL, "%s", text);
	free(text);
}

/* By NVML programs see all. */
TEST(doctor, a_service_that_has_fewer_gpus_than_the_machine_is_named)
{
	const char *found = "ok       devices        the service has 1 of the machine's 2 GPUs";
	char *text;

	folder_shell("rm etc/frmps/frmps.conf; touch dev/nvidia0");
	answer_with("\\\\002", "\\\\000");
	ck_assert_int_eq(examine(GOOD, "./server", false, &text), 0);
	ck_assert_msg(!strstr(text, found), "%s", text);
	free(text);
	folder_shell("touch dev/nvidia1; rm socket");
	ck_assert_int_eq(examine(GOOD, "./server", false, &text), 0);
	ck_assert_msg(strstr(text, found) != NULL, "%s", text);
	free(text);
}

#define MODE(mode)                                                                                           \
	"{\"version\": \"" SERVER_VERSION                                                                    \
	"\", \"pid\": 7, \"device\": {\"state\": \"serving\", \"compute_mode\": \"" mode "\"}}"

TEST(doctor, the_compute_mode_is_looked_at)
{
	static const struct {
		const char *exclusive, *device, *status, *found;
	} rows[] = {
		{"\\\\000", "0", MODE("default"), "ok       compute_mode   several processes"},
		{"\\\\001", "0", MODE("exclusive"), "warning  compute_mode   the GPU lets one process"},
		{"\\\\001", "0", NULL, "warning  compute_mode   the GPU lets one process"},
		{"\\\\001", "0", MODE("default"),
			"warning  compute_mode   the GPU's compute mode was changed"},
		{"\\\\000", "0", MODE("exclusive"),
			"warning  compute_mode   the GPU's compute mode was changed"},
		{"\\\\002", "1", MODE("exclusive"), "warning  compute_mode   the GPU lets one process"},
		{"\\\\002", "0", NULL, "ok       compute_mode   several processes"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char line[64], *text;

		snprintf(line, sizeof(line), "echo devices = %s >etc/frmps/frmps.conf", rows[i].device);
		folder_shell(line);
		answer_with("\\\\002", rows[i].exclusive);
		examine(rows[i].status, "./server", false, &text);
		ck_assert_msg(strstr(text, rows[i].found) != NULL, "row %zu: %s", i, text);
		free(text);
	}
}

/* Whatever the configuration says: an option may have said otherwise. */
TEST(doctor, a_service_without_a_gpu_needs_no_driver)
{
	char *text;

	folder_shell("rm etc/frmps/frmps.conf");
	ck_assert_int_eq(examine("{\"version\": \"" SERVER_VERSION "\", \"backend\": \"host\", \"pid\": 7}",
				 NULL, false, &text),
		0);
	ck_assert_msg(strstr(text, "ok       driver         none is needed") != NULL, "%s", text);
	free(text);
}

TEST(doctor, findings_come_as_json)
{
	const char *advice;
	json_t *root, *one;
	size_t index;
	char *text;

	/* In JSON as well, whatever bytes it is about. */
	folder_shell("printf 'standbys = \\374\\n' >etc/frmps/frmps.conf");
	ck_assert_int_eq(examine(NULL, NULL, true, &text), 1);
	root = json_loads(text, 0, NULL);
	ck_assert_msg(root != NULL, "%s", text);
	ck_assert_uint_ge(json_array_size(json_object_get(root, "findings")), 5);
	ck_assert_str_eq(json_string_value(json_object_get(
				 json_array_get(json_object_get(root, "findings"), 0), "check")),
		"configuration");
	json_array_foreach (json_object_get(root, "findings"), index, one) {
		ck_assert_ptr_nonnull(json_string_value(json_object_get(one, "check")));
		ck_assert_ptr_nonnull(json_string_value(json_object_get(one, "text")));
		advice = json_string_value(json_object_get(one, "advice"));
		ck_assert_int_eq(
			advice == NULL, !strcmp(json_string_value(json_object_get(one, "level")), "ok"));
	}
	json_decref(root);
	free(text);
}

int main(void)
{
	Suite *suite = suite_create("doctor");
	TCase *tests = suite_case(suite, "doctor");

	tcase_add_checked_fixture(tests, set_up, folder_leave);
	suite_add(tests, "doctor");
	return suite_run(suite);
}
