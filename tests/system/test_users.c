// For whom the service works, and as whom. Without a GPU it does not start unless it is asked for
// the host backend. There programs bring code that runs in executors, so an executor has the rights
// of its programs and no other. Those tests need root; a service of anybody else serves its own
// user only.

#include <fcntl.h>
#include <ctype.h>
#include <dirent.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/tools/ask.h"
#include "tests/lib/reach.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define FILES_MAX 64

static struct service service;
static char folder[64]; /* where modules say as whom they are loaded */

/* What programs are. All with the same number of groups as their lines say. */
static const struct user {
	uid_t uid;
	gid_t gid;
	size_t group_count;
	gid_t groups[2];
	const char *lines[3];
} users[] = {
	{12345, 23456, 2, {34567, 34568},
		{"Uid:\t12345\t12345\t12345\t12345\n", "Gid:\t23456\t23456\t23456\t23456\n",
			"Groups:\t34567 34568 \n"}},
	{12345, 23456, 1, {34567},
		{"Uid:\t12345\t12345\t12345\t12345\n", "Gid:\t23456\t23456\t23456\t23456\n",
			"Groups:\t34567 \n"}},
	{12345, 23457, 1, {34567},
		{"Uid:\t12345\t12345\t12345\t12345\n", "Gid:\t23457\t23457\t23457\t23457\n",
			"Groups:\t34567 \n"}},
	{54321, 0, 0, {0}, {"Uid:\t54321\t54321\t54321\t54321\n", "Gid:\t0\t0\t0\t0\n", "Groups:\t \n"}},
	{0, 0, 0, {0}, {"Uid:\t0\t0\t0\t0\n", "Gid:\t0\t0\t0\t0\n", "Groups:\t \n"}},
};
#define USERS (sizeof(users) / sizeof(users[0]))

static void make_folder(void)
{
	strcpy(folder, "/tmp/frmps-users-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chmod(folder, 01777), 0);
	setenv("FRMPS_TEST_IDENTITY", folder, 1);
}

static void open_to_all(void)
{
	ck_assert_int_eq(chmod(service.folder, 0755), 0);
}

static void stop(void)
{
	char command[128];

	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	if (folder[0])
		ck_assert_int_eq(system(command), 0);
	folder[0] = '\0';
}

/*
 * No GPU
 */

/* Runs the server to its end. Return: its exit status; what it says is in `said`. */
static int run_server(const char *const *arguments, char *said, size_t size)
{
	int log = memfd_create("log", MFD_CLOEXEC);
	ssize_t length;
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		dup2(log, STDERR_FILENO);
		execv(getenv("FRMPS_TEST_SERVER"), (char **)(uintptr_t)arguments);
		_exit(127);
	}
	status = exit_status(pid);
	length = pread(log, said, size - 1, 0);
	said[length < 0 ? 0 : length] = '\0';
	close(log);
	return status;
}

static int count_lines(const char *text)
{
	int count = 0;

	for (; *text; text++)
		count += *text == '\n';
	return count;
}

/* Nobody of it is left, either: whoever loses its parent becomes our child. */
TEST(start, without_a_gpu_the_service_does_not_start)
{
	char path[128], said[4096];
	const char *arguments[] = {"frmps-server", "--config", "/dev/null", "--socket", path, NULL};

	make_folder();
	snprintf(path, sizeof(path), "%s/service/frmps.sock", folder);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	setenv("FRMPS_DRIVER", "/nonexistent/libcuda.so.1", 1);
	ck_assert_int_eq(run_server(arguments, said, sizeof(said)), 69);
	ck_assert_int_eq(count_lines(said), 1);
	ck_assert_msg(strstr(said, "the service does not start without a usable GPU") != NULL, "%s", said);
	ck_assert_msg(strstr(said, "/nonexistent/libcuda.so.1") != NULL, "%s", said);
	*strrchr(path, '/') = '\0';
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert_int_eq(waitpid(-1, NULL, 0), -1);
}

/* It would be ready, and refuse every program. @limit: of open files; 0: as it is */
static void expect_wrong(const char *line, rlim_t limit, const char *says)
{
	char path[128], config[128], said[4096];
	const char *arguments[] = {
		"frmps-server", "--config", config, "--socket", path, "--backend", service_backend(), NULL};
	struct rlimit files = {limit, limit};
	FILE *file;

	make_folder();
	snprintf(path, sizeof(path), "%s/frmps.sock", folder);
	snprintf(config, sizeof(config), "%s/conf", folder);
	file = fopen(config, "we");
	ck_assert_ptr_nonnull(file);
	fputs(line, file);
	ck_assert_int_eq(fclose(file), 0);
	if (limit)
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	ck_assert_int_eq(run_server(arguments, said, sizeof(said)), 78);
	ck_assert_msg(strstr(said, says) != NULL, "%s", said);
}

TEST(start, a_guarantee_that_nobody_could_get_is_no_configuration)
{
	expect_wrong("memory_guarantee = 5G\n", 0,
		"memory_guarantee: 5G are more than the device has for a program, 4094M: set it lower");
}

TEST(start, too_few_open_files_are_said_at_the_start)
{
	expect_wrong("", 64, "the limit of open files is 64 and must be 512 at least");
}

/* Return: 0 if the device's name says that it is none. */
static int read_name(int argument)
{
	char name[256];

	(void)argument;
	driver_attach();
	ck_cuda(cuDeviceGetName(name, sizeof(name), 0));
	return strcmp(name, "frmps host backend (no GPU)") != 0;
}

TEST(start, the_host_backend_says_what_it_is)
{
	char said[8192] = "", command[256];
	json_t *status;
	FILE *out;

	ck_assert(service_start(&service, NULL));
	ck_assert_int_eq(exit_status(spawn(read_name, 0)), 0);
	status = status_of(&service);
	ck_assert_str_eq(json_string_value(json_object_get(status, "backend")), "host");
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(status, "device"), "name")),
		"frmps host backend (no GPU)");
	json_decref(status);
	snprintf(command, sizeof(command), "%s status", getenv("FRMPS_TEST_CTL"));
	out = popen(command, "r");
	ck_assert_ptr_nonnull(out);
	said[fread(said, 1, sizeof(said) - 1, out)] = '\0';
	ck_assert_int_eq(pclose(out), 0);
	ck_assert_msg(strstr(said, "host backend, frmps host backend (no GPU)") != NULL, "%s", said);
}

/*
 * As whom
 */

static const struct user *self;

static void become_self(void)
{
	if (setgroups(self->group_count, self->groups) || setresgid(self->gid, self->gid, self->gid) ||
		setresuid(self->uid, self->uid, self->uid))
		_exit(90);
	/* As a program that was started by that user. */
	prctl(PR_SET_DUMPABLE, 1);
}

/* Loads the module, and goes on with it whenever it is ordered to; three orders are its good
 * end. */
static int loader(int progress, int orders)
{
	void *image = read_file(getenv("FRMPS_TEST_IDENTITY_MODULE"));
	CUfunction function;
	CUmodule module;

	become_self();
	driver_attach();
	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuModuleGetFunction(&function, module, "nothing"));
	free(image);
	for (int i = 0; i < 3; i++) {
		ck_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
		ck_cuda(cuCtxSynchronize());
		report(progress);
		ordered(orders, true);
	}
	return 0;
}

static int count_matches(const struct user *user, char files[][4096], int count)
{
	int matches = 0;

	for (int i = 0; i < count; i++)
		matches += strstr(files[i], user->lines[0]) && strstr(files[i], user->lines[1]) &&
			   strstr(files[i], user->lines[2]);
	return matches;
}

/* What executors have said. Return: how many. */
static int read_files(char files[][4096])
{
	char path[512];
	DIR *list = opendir(folder);
	struct dirent *entry;
	int count = 0;

	ck_assert_ptr_nonnull(list);
	while ((entry = readdir(list))) {
		if (entry->d_name[0] == '.')
			continue;
		ck_assert_int_lt(count, FILES_MAX);
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		char *text = read_file(path);
		snprintf(files[count++], 4096, "%s", text);
		free(text);
	}
	closedir(list);
	return count;
}

/* Each user's module was loaded by `each` executors, as that user, and by nobody else. */
static void expect_loads(int each)
{
	static const char *const nothing[] = {"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n",
		"CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "CapAmb:\t0000000000000000\n",
		"NoNewPrivs:\t1\n"};
	static char files[FILES_MAX][4096];
	int count = read_files(files);

	ck_assert_int_eq(count, each * (int)USERS);
	for (size_t i = 0; i < USERS; i++)
		ck_assert_msg(count_matches(&users[i], files, count) == each, "user %d of the list: %d",
			(int)i, count_matches(&users[i], files, count));
	for (int i = 0; i < count; i++)
		for (size_t line = 0; line < sizeof(nothing) / sizeof(nothing[0]); line++)
			ck_assert_msg(strstr(files[i], nothing[line]) != NULL, "%s", files[i]);
}

static void kill_all_active(void)
{
	json_t *status = status_of(&service), *domain, *one;
	size_t i, j;

	json_array_foreach (json_object_get(status, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, "executors"), j, one)
			if (!strcmp(json_string_value(json_object_get(one, "role")), "active"))
				ck_assert_int_eq(
					kill((pid_t)json_integer_value(json_object_get(one, "pid")), SIGKILL),
					0);
	json_decref(status);
}

static void kill_daemon(void)
{
	json_t *status = status_of(&service);

	ck_assert_int_eq(kill((pid_t)json_integer_value(json_object_get(status, "pid")), SIGKILL), 0);
	json_decref(status);
	ck_assert(service_log_wait(&service, "the daemon is back", 1, 60));
}

static void start_all(struct child *children)
{
	for (size_t i = 0; i < USERS; i++) {
		self = &users[i];
		children[i] = child_start(loader);
		child_wait(&children[i], 1);
	}
}

static void order_all(struct child *children, bool reports)
{
	for (size_t i = 0; i < USERS; i++) {
		child_order(&children[i]);
		if (reports)
			child_wait(&children[i], 1);
	}
}

TEST(rights, modules_have_the_rights_of_their_program)
{
	struct child children[USERS];

	make_folder();
	ck_assert_int_eq(setgroups(0, NULL), 0); /* the service's own are user 0's */
	ck_assert(service_start(&service, NULL));
	open_to_all();
	start_all(children);
	status_await_executors(&service);
	expect_loads(2);
	/* Standbys take over, and have successors. */
	kill_all_active();
	order_all(children, true);
	status_await_executors(&service);
	expect_loads(3);
	/* Executors that the next life of the daemon starts know as well who they are. */
	kill_daemon();
	kill_all_active();
	order_all(children, true);
	status_await_executors(&service);
	expect_loads(4);
	order_all(children, false);
	for (size_t i = 0; i < USERS; i++)
		ck_assert_int_eq(child_end(&children[i]), 0);
}

TEST(rights, the_same_in_executors_of_their_own)
{
	struct child children[USERS];

	make_folder();
	ck_assert_int_eq(setgroups(0, NULL), 0);
	ck_assert(service_start_configured(&service, "isolation = client\nstandbys = 0\n"));
	open_to_all();
	start_all(children);
	expect_loads(1);
	order_all(children, true);
	order_all(children, true);
	order_all(children, false);
	for (size_t i = 0; i < USERS; i++)
		ck_assert_int_eq(child_end(&children[i]), 0);
}

/* In a program that nobody serves. */
static int is_refused(int argument)
{
	(void)argument;
	become_self();
	return cuInit(0) == CUDA_SUCCESS;
}

static int is_refused_in_many_groups(int argument)
{
	gid_t groups[65];

	(void)argument;
	for (gid_t i = 0; i < 65; i++)
		groups[i] = 1000 + i;
	if (setgroups(65, groups) || setresuid(12345, 12345, 12345))
		return 90;
	return cuInit(0) == CUDA_SUCCESS;
}

/* It would be a guess which of them do without. */
TEST(rights, who_is_in_too_many_groups_is_refused)
{
	ck_assert(service_start(&service, NULL));
	open_to_all();
	ck_assert_int_eq(exit_status(spawn(is_refused_in_many_groups, 0)), 0);
	ck_assert_int_eq(service_log_count(&service, "is refused: it is in more groups than"), 1);
}

/* A service that may not do something, by setpriv(1). */
static void limit_server(const char *capability)
{
	static char real[512];
	char path[128];
	FILE *script;

	snprintf(real, sizeof(real), "%s", getenv("FRMPS_TEST_SERVER"));
	snprintf(path, sizeof(path), "%s/server", folder);
	script = fopen(path, "we");
	ck_assert_ptr_nonnull(script);
	fprintf(script, "#!/bin/sh\nexec setpriv --bounding-set -%s -- '%s' \"$@\"\n", capability, real);
	ck_assert_int_eq(fclose(script), 0);
	ck_assert_int_eq(chmod(path, 0755), 0);
	setenv("FRMPS_TEST_SERVER", path, 1);
}

/* A server with the capabilities that the unit leaves it. */
static void limit_to_unit(void)
{
	static char real[512], keep[512] = "-all";
	char path[128], *unit = read_file(getenv("FRMPS_TEST_UNIT")), *line, *name;
	FILE *script;

	line = strstr(unit, "\nCapabilityBoundingSet=CAP_");
	ck_assert_ptr_nonnull(line);
	line = strchr(line, '=') + 1;
	line[strcspn(line, "\n")] = '\0';
	while ((name = strsep(&line, " ")))
		snprintf(keep + strlen(keep), sizeof(keep) - strlen(keep), ",+%s", name + strlen("CAP_"));
	for (char *at = keep; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	free(unit);
	snprintf(real, sizeof(real), "%s", getenv("FRMPS_TEST_SERVER"));
	snprintf(path, sizeof(path), "%s/server", folder);
	script = fopen(path, "we");
	ck_assert_ptr_nonnull(script);
	fprintf(script, "#!/bin/sh\nexec setpriv --bounding-set '%s' -- '%s' \"$@\"\n", keep, real);
	ck_assert_int_eq(fclose(script), 0);
	ck_assert_int_eq(chmod(path, 0755), 0);
	setenv("FRMPS_TEST_SERVER", path, 1);
}

static int one_program_of_another_user(int argument)
{
	become_self();
	return one_program(argument);
}

TEST(rights, the_unit_leaves_the_service_what_it_needs)
{
	make_folder();
	limit_to_unit();
	ck_assert(service_start(&service, NULL));
	open_to_all();
	self = &users[0];
	ck_assert_int_eq(exit_status(spawn(one_program_of_another_user, 5)), 0);
}

/* Its module writes to the standard error of its executor. */
static int shouter(int unused)
{
	void *image = read_file(getenv("FRMPS_TEST_IDENTITY_MODULE"));
	CUfunction function;
	CUmodule module;

	(void)unused;
	become_self();
	driver_open();
	ck_cuda(cuModuleLoadData(&module, image));
	free(image);
	ck_cuda(cuModuleGetFunction(&function, module, "shout"));
	ck_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	ck_cuda(cuCtxSynchronize());
	return 0;
}

/* 6 MiB in this case, the service's log would be full of. */
TEST(rights, what_a_module_writes_is_bounded_and_has_its_users_name)
{
	struct stat status;

	make_folder();
	ck_assert(service_start(&service, NULL));
	open_to_all();
	self = &users[0];
	ck_assert_int_eq(exit_status(spawn(shouter, 0)), 0);
	ck_assert(service_log_wait(&service, "of user 12345 writes more than 600 lines a minute", 1, 20));
	ck_assert_int_eq(service_log_count(&service, "of user 12345 writes more than"), 1);
	ck_assert_int_gt(service_log_count(&service, "frmps executor of user 12345["), 500);
	/* The daemon itself has not said so. */
	ck_assert_int_eq(service_log_count(&service, "frmps: all is lost"),
		service_log_count(&service, " error: frmps: all is lost"));
	ck_assert_int_eq(stat(service.log, &status), 0);
	ck_assert_int_lt(status.st_size, 512 << 10);
	/* Nobody else has less. */
	self = &users[3];
	ck_assert_int_eq(exit_status(spawn(one_program_of_another_user, 5)), 0);
}

/* The pipe is the holder's as well. */
TEST(rights, a_new_daemon_hears_the_executors_of_the_former)
{
	make_folder();
	ck_assert(service_start(&service, NULL));
	open_to_all();
	self = &users[0];
	ck_assert_int_eq(exit_status(spawn(one_program_of_another_user, 5)), 0);
	kill_daemon();
	ck_assert_int_eq(exit_status(spawn(shouter, 0)), 0);
	ck_assert(service_log_wait(&service, "of user 12345 writes more than 600 lines a minute", 1, 20));
}

TEST(rights, a_module_does_not_see_the_services_environment)
{
	static char files[FILES_MAX][4096];
	int count;

	make_folder();
	setenv("SECRET_OF_THE_SERVICE", "1", 1);
	ck_assert(service_start(&service, NULL));
	unsetenv("SECRET_OF_THE_SERVICE");
	open_to_all();
	self = &users[0];
	ck_assert_int_eq(exit_status(spawn(shouter, 0)), 0);
	count = read_files(files);
	ck_assert_int_gt(count, 0);
	for (int i = 0; i < count; i++)
		ck_assert_msg(strstr(files[i], "SECRET") == NULL, "%s", files[i]);
}

TEST(rights, an_executor_that_cannot_be_its_user_does_not_start)
{
	make_folder();
	limit_server("setuid");
	ck_assert(service_start(&service, NULL));
	open_to_all();
	self = &users[0];
	ck_assert_int_eq(exit_status(spawn(is_refused, 0)), 0);
	ck_assert_int_ge(
		service_log_count(&service, "frmps executor: cannot run as the user of its programs"), 3);
	ck_assert_int_ge(service_log_count(
				 &service, "is refused: the executor cannot run as the user of its programs"),
		1);
	/* As itself it may. */
	ck_assert_int_eq(exit_status(spawn(one_program, 5)), 0);
}

TEST(rights, a_service_whose_executors_cannot_be_anybody_does_not_start)
{
	char path[128], said[4096];
	const char *arguments[] = {"frmps-server", "--config", "/dev/null", "--backend", service_backend(),
		"--socket", path, NULL};

	make_folder();
	limit_server("setgid");
	snprintf(path, sizeof(path), "%s/frmps.sock", folder);
	ck_assert_int_eq(run_server(arguments, said, sizeof(said)), 1);
	ck_assert_msg(
		strstr(said, "frmps executor: cannot run as the user of its programs") != NULL, "%s", said);
	ck_assert_int_eq(access(path, F_OK), -1);
}

/* A service of any other user. */
static int serve_as_self(int argument)
{
	(void)argument;
	become_self();
	if (!service_start(&service, NULL))
		return 1;
	if (exit_status(spawn(one_program, 5)))
		return 2;
	return service_stop(&service) ? 3 : 0;
}

TEST(rights, a_service_of_another_user_serves_that_user)
{
	self = &users[0];
	ck_assert_int_eq(exit_status(spawn(serve_as_self, 0)), 0);
}

/*
 * Between users
 */

static int descriptors[2];

/* Exports memory to whoever listens, and keeps it until the order. */
static int exporter(int progress, int orders)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;
	int fd;

	become_self();
	driver_attach();
	ck_cuda(cuMemCreate(&handle, 2 << 20, &properties, 0));
	ck_cuda(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	for (int i = 0; i < 3; i++)
		pass_fd(descriptors[0], &fd, true);
	report(progress);
	ordered(orders, true);
	return 0;
}

/* Return: what the import comes to */
static int import(int unused)
{
	CUmemGenericAllocationHandle handle;
	int fd;

	(void)unused;
	become_self();
	pass_fd(descriptors[1], &fd, false);
	driver_attach();
	return (int)cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST(rights, what_a_user_exports_no_other_user_imports)
{
	struct child child;
	int fd;

	make_folder();
	ck_assert(service_start(&service, NULL));
	open_to_all();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, descriptors), 0);
	self = &users[0];
	child = child_start(exporter);
	child_wait(&child, 1);
	self = &users[3];
	ck_assert_int_eq(exit_status(spawn(import, 0)), CUDA_ERROR_INVALID_VALUE);
	self = &users[0];
	ck_assert_int_eq(exit_status(spawn(import, 0)), CUDA_SUCCESS);
	pass_fd(descriptors[1], &fd, false);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	/* The descriptor alone holds the memory now. */
	status_await_no_sessions(&service);
	for (int i = 0; i < 2; i++)
		pass_fd(descriptors[0], &fd, true);
	self = &users[3];
	ck_assert_int_eq(exit_status(spawn(import, 0)), CUDA_ERROR_INVALID_VALUE);
	self = &users[0];
	ck_assert_int_eq(exit_status(spawn(import, 0)), CUDA_SUCCESS);
	close(fd);
}

static int sleeper(int progress, int orders)
{
	become_self();
	driver_open();
	report(progress);
	ordered(orders, true);
	return one_program(3);
}

static const char *const commands[] = {"pause", "suspend", "resume", "isolate", "terminate", "recovery"};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* Return: how many commands are refused, because the session is another user's */
static int command_all(int number)
{
	char session[24], text[400];
	const char *words[] = {session, "fail"};
	int refused = 0;

	become_self();
	snprintf(session, sizeof(session), "%d", number);
	for (size_t i = 0; i < COMMANDS; i++) {
		const struct wire_names arguments = {words, !strcmp(commands[i], "recovery") ? 2 : 1};
		char *answer = NULL;

		refused +=
			ask_with(service.socket, commands[i], &arguments, 60, &answer, text, sizeof(text)) &&
			strstr(text, "is another user's");
		free(answer);
	}
	return refused;
}

TEST(rights, nobody_commands_another_users_program)
{
	struct child child;

	make_folder();
	ck_assert(service_start(&service, NULL));
	open_to_all();
	self = &users[0];
	child = child_start(sleeper);
	child_wait(&child, 1);
	self = &users[3];
	ck_assert_int_eq(
		exit_status(spawn(command_all, (int)status_session(&service, child.pid))), (int)COMMANDS);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

int main(void)
{
	Suite *suite = suite_create("users");
	TCase *start = tcase_create("start"), *rights = tcase_create("rights");
	int status;

	reach_open();
	tcase_set_timeout(start, 120);
	tcase_add_checked_fixture(start, NULL, stop);
	suite_add(start, "start");
	suite_add_tcase(suite, start);
	if (geteuid() == 0) {
		tcase_set_timeout(rights, 300);
		tcase_add_checked_fixture(rights, NULL, stop);
		suite_add(rights, "rights");
		suite_add_tcase(suite, rights);
	}
	status = suite_run(suite);
	reach_close();
	return status;
}
