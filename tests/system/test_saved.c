// Programs that are saved in files, end, and come back: frmpsctl checkpoint and restore, with CRIU.
// Every byte is there, whatever happens to the service meanwhile. Skipped where CRIU cannot save a
// process, or without root.
//
// FRMPS_TEST_SAVED_ROUNDS (3) is how often a program that works is saved and restored;
// FRMPS_TEST_SAVED_KILLS (6) how often something of the service is killed meanwhile.

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/criu/nvidia.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/belongings.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define CONFIG "quarantine_faults = 0\n"
#define TEXT   2000
#define KILLED (1000 + SIGKILL) /* of exit_status() */

static struct service service;

static void start(void)
{
	/* Restored processes are children of nobody who is still there. */
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	ck_assert(service_start_configured(&service, CONFIG));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

static int rounds(const char *name, int usual)
{
	const char *text = getenv(name);

	return text ? atoi(text) : usual;
}

/*
 * Programs: in a folder of their own, which also has what is saved
 */

static char folder[] = "/tmp/frmps-saved-XXXXXX";
static char device[100]; /* in /dev, of a test; empty: none */

static void enter_folder(void)
{
	strcpy(folder + sizeof(folder) - 7, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
}

static void leave_folder(void)
{
	char command[100];

	unlink(device);
	ck_assert_int_eq(chdir("/"), 0);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	ck_assert_int_eq(system(command), 0);
}

static int open_pipe(const char *name)
{
	int fd;

	unlink(name);
	ck_assert_int_eq(mkfifo(name, 0600), 0);
	fd = open(name, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

/* What it has of this process would have to be there when it comes back. */
static void become(const char *kind)
{
	int nothing = open("/dev/null", O_RDWR), out = open("out", O_WRONLY | O_CREAT | O_APPEND, 0600);

	setsid();
	dup2(nothing, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
		close(fd);
	setenv("FRMPS_TEST_SAVED", kind, 1);
	setenv("CK_FORK", "no", 1);
	execl(getenv("FRMPS_TEST_SAVED_PROGRAM"), "saved_program", (char *)NULL);
	_exit(127);
}

/* Until it has reported. */
static struct child begin(const char *kind)
{
	struct child child = {.progress = open_pipe("progress"), .orders = open_pipe("orders")};

	child.pid = fork();
	if (!child.pid)
		become(kind);
	child_wait(&child, 1);
	return child;
}

/* Its pipes stay for one that comes back. */
static void lose(const struct child *child)
{
	kill(child->pid, SIGKILL);
	ck_assert_int_eq(exit_status(child->pid), KILLED);
}

static void end(const struct child *child)
{
	lose(child);
	close(child->progress);
	close(child->orders);
}

static bool is_there(pid_t pid)
{
	return !kill(pid, 0);
}

/* A program that was restored is a child of ours, and a failure ends it. */
static void expect_gone(pid_t pid)
{
	ck_assert(!is_there(pid) || exit_status(pid) == KILLED);
}

/*
 * Orders
 */

static char said[TEXT];

/* Runs frmpsctl. Return: whether that worked; `said` is what it printed */
__attribute__((format(printf, 1, 2))) static bool order(const char *format, ...)
{
	char words[300], command[800];
	size_t length;
	va_list values;
	FILE *out;

	va_start(values, format);
	vsnprintf(words, sizeof(words), format, values);
	va_end(values);
	snprintf(command, sizeof(command), "exec %s %s 2>&1", getenv("FRMPS_TEST_CTL"), words);
	out = popen(command, "r");
	ck_assert_ptr_nonnull(out);
	length = fread(said, 1, sizeof(said) - 1, out);
	said[length] = '\0';
	return pclose(out) == 0;
}

/* Executors may be busy with something else, and programs be in the middle of a request. */
static void save(const struct child *child, const char *name, const char *option)
{
	bool done = false;

	while (!done) {
		done = order("checkpoint %lld %s %s", status_session(&service, child->pid), name, option);
		ck_assert_msg(
			done || strstr(said, "try again") || strstr(said, "being replaced"), "%s", said);
		ck_assert(done || access(name, F_OK));
	}
}

/* Saves and ends it. */
static void put_away(const struct child *child, const char *name)
{
	save(child, name, "--end");
	ck_assert_int_eq(exit_status(child->pid), KILLED);
	status_await_no_sessions(&service);
}

static void bring_back(const char *name)
{
	ck_assert_msg(order("restore %s", name), "%s", said);
}

static void expect_refused(const char *name, const char *why, pid_t pid)
{
	ck_assert(!order("restore %s", name));
	ck_assert_msg(strstr(said, why), "%s", said);
	expect_gone(pid);
	status_await_no_sessions(&service);
}

/*
 * Tests
 */

TEST(saved, a_saved_program_goes_on)
{
	struct child child = begin("keeper");

	see_it_work(&child);
	save(&child, "first", "");
	see_it_work(&child);
	ck_assert(!order("checkpoint %lld first", status_session(&service, child.pid)));
	ck_assert_msg(strstr(said, "exists already"), "%s", said);
	save(&child, "second", "");
	see_it_work(&child);
	ck_assert_int_eq(status_counter(&service, "sessions_saved"), 2);
	end(&child);
}

/* So much memory of the device has room for no copy of it there, or for a part. */
TEST_LOOP(saved, without_room_on_the_device, 0, 2)
{
	struct child child;

	ck_assert_int_eq(service_stop(&service), 0);
	setenv("FRMPS_HOST_MEMORY", _i ? "760M" : "600M", 1);
	ck_assert(service_start_configured(&service, CONFIG));
	child = begin("keeper");
	see_it_work(&child);
	put_away(&child, "first");
	bring_back("first");
	see_it_work(&child);
	end(&child);
}

/* Takes nearly all that is free, again and again. */
static int taker(int progress, int orders)
{
	const size_t granule = UINT64_C(2) << 20;
	size_t free_bytes, total;
	CUdeviceptr at;

	driver_open();
	while (!ordered(orders, false)) {
		ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
		if (cuMemAlloc_v2(&at, (free_bytes - 32 * granule) & ~(granule - 1)))
			return 2;
		ck_cuda(cuMemFree_v2(at));
		report(progress);
	}
	return 0;
}

/* The copy is none of what others may have. */
TEST(saved, who_needs_the_memory_of_a_copy_gets_it)
{
	const int times = rounds("FRMPS_TEST_SAVED_ROUNDS", 3);
	struct child child, other;
	char name[20];

	ck_assert_int_eq(service_stop(&service), 0);
	setenv("FRMPS_HOST_MEMORY", "1G", 1);
	ck_assert(service_start_configured(&service, CONFIG));
	child = begin("keeper");
	other = belongings_begin(taker, 0);
	for (int i = 0; i < times; i++) {
		see_it_work(&child);
		snprintf(name, sizeof(name), "saved%d", i);
		save(&child, name, "");
		child_drain(&other);
		child_wait(&other, 2);
	}
	see_it_work(&child);
	child_order(&other);
	ck_assert_int_eq(child_end(&other), 0);
	end(&child);
}

/* As it was when it was saved, and not as it ended. */
TEST(saved, an_ended_program_comes_back)
{
	struct child child = begin("keeper");

	see_it_work(&child);
	put_away(&child, "first");
	bring_back("first");
	see_it_work(&child);
	see_it_work(&child);
	put_away(&child, "second");
	bring_back("first");
	see_it_work(&child);
	ck_assert_int_eq(status_counter(&service, "sessions_restored"), 2);
	ck_assert_int_eq(status_counter(&service, "sessions_rejected"), 0);
	ck_assert(!order("restore second"));
	ck_assert_msg(strstr(said, "there is a process"), "%s", said);
	see_it_work(&child);
	lose(&child);
	bring_back("second");
	see_it_work(&child);
	end(&child);
}

TEST(saved, who_works_all_the_time_comes_back)
{
	const int times = rounds("FRMPS_TEST_SAVED_ROUNDS", 3);
	struct child child = begin("busy");
	char name[20];

	for (int i = 0; i < times; i++) {
		snprintf(name, sizeof(name), "saved%d", i);
		child_wait(&child, 1);
		put_away(&child, name);
		child_drain(&child);
		bring_back(name);
		child_wait(&child, 2);
	}
	end(&child);
}

/* As NVML has one. CRIU itself refuses such a device; FUSE's stands for the driver's. */
TEST(saved, a_file_of_the_driver_is_opened_again)
{
	struct child child;
	struct stat fuse;

	snprintf(device, sizeof(device), CRIU_NVIDIA_FILES "-frmps-test-%d", (int)getpid());
	ck_assert_int_eq(stat("/dev/fuse", &fuse), 0);
	ck_assert_int_eq(mknod(device, S_IFCHR | 0600, fuse.st_rdev), 0);
	setenv("FRMPS_TEST_SAVED_FILE", device, 1);
	child = begin("holder");
	see_it_work(&child);
	put_away(&child, "first");
	bring_back("first");
	see_it_work(&child);
	end(&child);
}

/* The only child of a process. */
static pid_t child_of(pid_t pid)
{
	char path[60];
	int child = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%d", &child), 1);
	fclose(file);
	return child;
}

TEST(saved, programs_that_share_come_back_together)
{
	struct child child = begin("family");
	const pid_t second = child_of(child.pid);

	see_it_work(&child);
	put_away(&child, "first");
	ck_assert_int_eq(exit_status(second), KILLED);
	bring_back("first");
	see_it_work(&child);
	see_it_work(&child);
	ck_assert_int_eq(status_counter(&service, "sessions_restored"), 2);
	/* The second one ends without it. */
	end(&child);
	ck_assert_int_eq(exit_status(second), 0);
	status_await_no_sessions(&service);
}

/* Its number and its addresses are others' by then. */
TEST(saved, in_another_service_beside_others)
{
	struct child child = begin("keeper"), other;

	see_it_work(&child);
	put_away(&child, "first");
	ck_assert_int_eq(service_stop(&service), 0);
	ck_assert(service_start_configured(&service, CONFIG));
	other = belongings_begin(belongings_keeper, 2);
	bring_back("first");
	see_it_work(&child);
	see_it_work(&other);
	see_it_work(&child);
	end(&child);
	see_it_work(&other);
	ck_assert_int_eq(child_end(&other), 0);
	status_await_no_memory(&service);
}

/* Of the latest order to save, with --json. */
static long long said_bytes(const char *name)
{
	json_t *root = json_loads(said, 0, NULL);
	long long bytes;

	ck_assert_msg(json_is_integer(json_object_get(root, name)), "%s", said);
	bytes = (long long)json_integer_value(json_object_get(root, name));
	json_decref(root);
	return bytes;
}

/* A few pages: a counter's, and what the service has of its own. */
#define CHANGED_BYTES (INT64_C(8) << 20)

/* The program writes a word between two checkpoints. */
TEST(saved, what_has_not_changed_is_shared)
{
	struct child child = begin("keeper");
	long long all;

	see_it_work(&child);
	save(&child, "first", "--json");
	all = said_bytes("stored_bytes");
	ck_assert_int_gt(all, 12 * CHANGED_BYTES);
	ck_assert_int_eq(said_bytes("shared_bytes"), 0);
	see_it_work(&child);
	save(&child, "second", "--since first --json");
	ck_assert_int_gt(said_bytes("stored_bytes"), 0);
	ck_assert_int_lt(said_bytes("stored_bytes"), CHANGED_BYTES);
	ck_assert_int_gt(said_bytes("shared_bytes"), all - CHANGED_BYTES);
	see_it_work(&child);
	save(&child, "third", "--since second --end");
	ck_assert_int_eq(exit_status(child.pid), KILLED);
	status_await_no_sessions(&service);
	ck_assert_msg(strstr(said, " stored, ") && strstr(said, " shared with second\n"), "%s", said);
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = {"first", "second", "third"};
		char command[40];

		bring_back(names[i]);
		see_it_work(&child);
		see_it_work(&child);
		lose(&child);
		status_await_no_sessions(&service);
		snprintf(command, sizeof(command), "rm -rf %s", names[i]);
		ck_assert_int_eq(system(command), 0);
	}
	close(child.progress);
	close(child.orders);
}

/* Nothing is saved, and the program goes on. */
TEST(saved, what_is_no_checkpoint_is_named)
{
	struct child child = begin("keeper");

	ck_assert_int_eq(mkdir("empty", 0700), 0);
	ck_assert(!order("checkpoint %lld first --since empty", status_session(&service, child.pid)));
	ck_assert_msg(!strncmp(said, "frmpsctl: empty has no saved program", 36), "%s", said);
	ck_assert_int_eq(access("first.part", F_OK), -1);
	ck_assert(!order("checkpoint %lld first --since none", status_session(&service, child.pid)));
	ck_assert_msg(strstr(said, "none cannot be read: No such file"), "%s", said);
	see_it_work(&child);
	end(&child);
}

/* Flips a byte in the middle. */
static void damage(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat status;
	uint8_t byte;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &status), 0);
	ck_assert_int_eq(pread(fd, &byte, 1, status.st_size / 2), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, status.st_size / 2), 1);
	close(fd);
}

static void cut(const char *path)
{
	struct stat status;

	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(truncate(path, status.st_size / 2), 0);
}

/* More than the service's own files, and enough of the pieces. */
#define SPOILED 4

/* Does that to files of ours in a folder in turn. */
static void spoil_some(const char *where, void (*spoil)(const char *path), pid_t pid)
{
	const struct dirent *entry;
	struct stat status;
	int left = SPOILED;
	char path[600];
	DIR *all;

	snprintf(path, sizeof(path), "first/%s", where);
	all = opendir(path);
	ck_assert_ptr_nonnull(all);
	while (left && (entry = readdir(all))) {
		snprintf(path, sizeof(path), "first/%s/%s", where, entry->d_name);
		if (stat(path, &status) || !S_ISREG(status.st_mode) || !status.st_size)
			continue;
		left--;
		ck_assert_int_eq(system("cp -a --sparse=never first copy"), 0);
		snprintf(path, sizeof(path), "copy/%s/%s", where, entry->d_name);
		spoil(path);
		expect_refused("copy", "copy ", pid);
		ck_assert_int_eq(system("rm -r copy"), 0);
	}
	closedir(all);
}

TEST(saved, a_damaged_folder_is_refused)
{
	struct child child = begin("keeper");

	see_it_work(&child);
	put_away(&child, "first");
	spoil_some(".", damage, child.pid);
	spoil_some(".", cut, child.pid);
	spoil_some("memory", damage, child.pid);
	spoil_some("memory", cut, child.pid);
	expect_refused("nothing", "No such file", child.pid);
	status_await_no_memory(&service);
	bring_back("first");
	see_it_work(&child);
	end(&child);
}

TEST(saved, what_the_service_cannot_save_is_named)
{
	struct child child = begin("array");

	ck_assert(!order("checkpoint %lld first", status_session(&service, child.pid)));
	ck_assert_msg(strstr(said, "array"), "%s", said);
	ck_assert(access("first", F_OK) && access("first.part", F_OK));
	ck_assert(is_there(child.pid));
	ck_assert(!order("checkpoint 4711 first"));
	ck_assert_msg(strstr(said, "no such session"), "%s", said);
	end(&child);
}

/*
 * A piece of device memory that cannot be read yet
 */

/* A tool that restores `first`, and the file that it waits for: who opens a file with a lease waits
 * until that is given back. */
struct waiting {
	pid_t tool;
	int file;
};

static int hold_last_piece(void)
{
	char last[NAME_MAX + 1] = "";
	const struct dirent *entry;
	unsigned long long place, most = 0;
	unsigned number;
	DIR *all = opendir("first/memory");
	int fd;

	ck_assert_ptr_nonnull(all);
	while ((entry = readdir(all)))
		if (sscanf(entry->d_name, "%u.%llx", &number, &place) == 2 && place >= most) {
			most = place;
			strcpy(last, entry->d_name);
		}
	fd = openat(dirfd(all), last, O_RDONLY | O_CLOEXEC);
	closedir(all);
	ck_assert_int_ge(fd, 0);
	/* Whoever waits for it is notified. */
	signal(SIGIO, SIG_IGN);
	ck_assert_int_eq(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
	return fd;
}

/* Until the program is there, and the service has it. */
static struct waiting begin_restoring(const struct child *child)
{
	struct waiting waiting = {.file = hold_last_piece()};

	waiting.tool = fork();
	if (!waiting.tool) {
		dup2(open("restored", O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
		execl(getenv("FRMPS_TEST_CTL"), "frmpsctl", "restore", "first", (char *)NULL);
		_exit(127);
	}
	while (!status_is_in(&service, child->pid, "restoring"))
		ck_assert_int_eq(waitpid(waiting.tool, NULL, WNOHANG), 0);
	ck_assert(is_there(child->pid));
	return waiting;
}

static void let_read(struct waiting *waiting)
{
	close(waiting->file);
}

/* Its memory is on the way to the device meanwhile. */
TEST(saved, a_restored_program_waits_for_its_last_byte)
{
	struct child child = begin("keeper");
	struct waiting waiting;

	see_it_work(&child);
	put_away(&child, "first");
	waiting = begin_restoring(&child);
	ck_assert(!order("checkpoint %lld second", status_session(&service, child.pid)));
	ck_assert_msg(strstr(said, "being restored"), "%s", said);
	ck_assert_int_eq(status_counter(&service, "sessions_restored"), 0);
	let_read(&waiting);
	ck_assert_int_eq(exit_status(waiting.tool), 0);
	ck_assert_int_eq(status_counter(&service, "sessions_restored"), 1);
	see_it_work(&child);
	see_it_work(&child);
	end(&child);
}

enum { INTERRUPTED, DAEMON, PROGRAM, TOOL, VICTIMS };

/* @why: what the tool says; it says nothing where it has died itself */
static void kill_one(int victim, const struct child *child, const struct waiting *waiting, const char **why)
{
	static const char *const said_of[VICTIMS] = {
		[DAEMON] = "does not answer", [PROGRAM] = "has ended before"};
	const pid_t pids[VICTIMS] = {waiting->tool, status_daemon(&service), child->pid, waiting->tool};

	*why = said_of[victim];
	kill(pids[victim], victim == INTERRUPTED ? SIGTERM : SIGKILL);
	if (victim != TOOL)
		return;
	/* Nobody else ends the stopped program. */
	status_await_no_sessions(&service);
	kill(child->pid, SIGKILL);
}

/* Nothing is left of it, and it can be restored again. */
TEST_LOOP(saved, who_dies_before_the_last_byte_costs_the_restore, 0, VICTIMS)
{
	struct child child = begin("keeper");
	struct waiting waiting;
	char command[100];
	const char *why;

	see_it_work(&child);
	put_away(&child, "first");
	waiting = begin_restoring(&child);
	kill_one(_i, &child, &waiting, &why);
	ck_assert_int_eq(exit_status(child.pid), KILLED);
	let_read(&waiting);
	ck_assert_int_ne(exit_status(waiting.tool), 0);
	snprintf(command, sizeof(command), "grep -q '%s' restored", why ? why : "");
	ck_assert_int_eq(why ? system(command) : 0, 0);
	status_await_no_sessions(&service);
	status_await_executors(&service);
	bring_back("first");
	see_it_work(&child);
	end(&child);
}

/*
 * Kills
 */

/* A criu, first in PATH, that kills the daemon once processes are saved, and waits for its end. */
static void make_criu_kill(pid_t daemon)
{
	char path[4000];
	FILE *script = fopen("criu", "we");

	ck_assert_ptr_nonnull(script);
	fprintf(script,
		"#!/bin/sh\nPATH=${PATH#*:}\ncriu \"$@\" || exit 1\nkill -9 %d\n"
		"while kill -0 %d 2>/dev/null; do :; done\n",
		(int)daemon, (int)daemon);
	ck_assert_int_eq(fchmod(fileno(script), 0700), 0);
	fclose(script);
	snprintf(path, sizeof(path), "%s:%s", folder, getenv("PATH"));
	setenv("PATH", path, 1);
}

/* Its ring is of another moment than the service's records. */
TEST_LOOP(saved, a_program_that_went_on_meanwhile_is_not_saved, 0, 2)
{
	struct child child = begin("keeper");

	see_it_work(&child);
	make_criu_kill(status_daemon(&service));
	ck_assert(!order("checkpoint %lld first %s", status_session(&service, child.pid), _i ? "--end" : ""));
	ck_assert(access("first", F_OK) && access("first.part", F_OK));
	see_it_work(&child);
	end(&child);
}

/* Something of the service, or nothing. */
static void kill_something(unsigned *seed)
{
	pid_t pids[16];
	int count = service_children(&service, pids, 16), which = rand_r(seed) % (count + 1);

	pass_time(rand_r(seed) % 300);
	if (which < count)
		kill(pids[which], SIGKILL);
}

/* Return: whether the order was carried out */
static bool order_among_kills(unsigned *seed, const char *words)
{
	pid_t killer = fork();

	if (!killer) {
		kill_something(seed);
		_exit(0);
	}
	rand_r(seed);
	bool done = order("%s", words);

	ck_assert_int_eq(exit_status(killer), 0);
	return done;
}

/* It is saved or not, and goes on in any case; it is there again, or not at all. */
TEST(saved, kills_lose_nothing)
{
	const int times = rounds("FRMPS_TEST_SAVED_KILLS", 6);
	struct child child = begin("keeper");
	char words[100];
	unsigned seed = 1;

	for (int i = 0; i < times; i++) {
		snprintf(words, sizeof(words), "checkpoint %lld first", status_session(&service, child.pid));
		order_among_kills(&seed, words);
		ck_assert_int_eq(system("rm -rf first"), 0);
		see_it_work(&child);
		status_await_executors(&service);
		put_away(&child, "first");
		if (!order_among_kills(&seed, "restore first")) {
			expect_gone(child.pid);
			status_await_no_sessions(&service);
			status_await_executors(&service);
			bring_back("first");
		}
		see_it_work(&child);
		status_await_executors(&service);
		ck_assert_int_eq(system("rm -rf first"), 0);
	}
	end(&child);
}

/*
 * CRIU
 */

/* Return: whether CRIU saves and restores a process here */
static bool has_criu(void)
{
	return system("folder=$(mktemp -d) && cd $folder && trap 'rm -r $folder' EXIT\n"
		      "setsid sleep 1000 </dev/null >/dev/null 2>&1 &\n"
		      "pid=$!\n"
		      "until grep -q sleep /proc/$pid/comm; do :; done\n"
		      "criu dump --tree $pid --images-dir $folder --shell-job >/dev/null 2>&1 || {\n"
		      "	kill -9 $pid\n"
		      "	exit 1\n"
		      "}\n"
		      "wait $pid\n"
		      "criu restore -d --images-dir $folder --shell-job >/dev/null 2>&1 && kill -9 $pid") ==
	       0;
}

int main(void)
{
	Suite *suite = suite_create("saved");
	TCase *saved = suite_case(suite, "saved");

	if (geteuid() || !has_criu()) {
		fputs("skipped: that needs root, and a criu that can save a process on this kernel\n",
			stderr);
		return 77;
	}
	tcase_add_checked_fixture(saved, start, stop);
	tcase_add_checked_fixture(saved, enter_folder, leave_folder);
	suite_add(saved, "saved");
	return suite_run(suite);
}
