// Siege: what a hostile user costs another one, on as many processors as the machine has. So many
// sessions of one user do one thing as often as they can; a program of another user measures what
// it asks and what it launches meanwhile, and alone before.
//
//   siege [SESSIONS [SECONDS]]
//
// It prints a table: median and 99th percentile of a request (cuMemGetInfo) and of a launch with
// its wait, µs, and how many times that is what it was alone. Only root runs it. It takes the
// environment that meson gives to tests:
//
//   meson test -C build --benchmark siege --verbose

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/system/driver.h"
#include "tests/system/raw.h"

#define HOSTILE	      1001
#define HONEST	      1002
#define SESSIONS_MOST 200
#define SAMPLES_MOST  200000u

static struct service service;

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/*
 * Groups of processes, as systemd has them: one for the service, and one for each user, as if each
 * were a container. The service has the weight that its unit gives it.
 */

#define WEIGHT	       100 /* systemd's default */
#define DEFAULT_SHARES 1024

static char groups[300]; /* folder; empty: there are none */

/* Control groups of version 1 alone. */
static void find_groups(void)
{
	char line[300], path[200];
	FILE *own = fopen("/proc/self/cgroup", "re");

	while (own && !*groups && fgets(line, sizeof(line), own))
		if (sscanf(line, "%*d:cpu:%199s", path) == 1)
			snprintf(groups, sizeof(groups), "/sys/fs/cgroup/cpu%s", path);
	if (own)
		fclose(own);
	if (access(groups, W_OK))
		*groups = '\0';
}

static void write_number(const char *group, const char *file, int number)
{
	char path[450];
	FILE *opened;

	snprintf(path, sizeof(path), "%s/%s", group, file);
	opened = fopen(path, "we");
	if (!opened || fprintf(opened, "%d\n", number) < 0 || fclose(opened))
		fprintf(stderr, "siege: cannot write %s\n", path);
}

/* This process, and its children from now on, are of a group. */
static void join(const char *name, int weight)
{
	char path[400];

	if (!*groups)
		return;
	snprintf(path, sizeof(path), "%s/siege-%s", groups, name);
	mkdir(path, 0755);
	write_number(path, "cpu.shares", weight * DEFAULT_SHARES / WEIGHT);
	write_number(path, "cgroup.procs", (int)getpid());
}

/* CPUWeight= of the unit. */
static int unit_weight(void)
{
	const char *path = getenv("FRMPS_TEST_UNIT");
	FILE *unit = path ? fopen(path, "re") : NULL;
	char line[300];
	int weight = 0;

	while (unit && !weight && fgets(line, sizeof(line), unit))
		sscanf(line, "CPUWeight=%d", &weight);
	if (unit)
		fclose(unit);
	return weight ? weight : WEIGHT;
}

/* All others have ended. */
static void drop_groups(void)
{
	static const char *const names[] = {"service", "hostile", "honest"};
	char path[400];

	if (!*groups)
		return;
	write_number(groups, "cgroup.procs", (int)getpid());
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/siege-%s", groups, names[i]);
		rmdir(path);
	}
}

static void become(uid_t uid)
{
	join(uid == HOSTILE ? "hostile" : "honest", WEIGHT);
	/* Nobody is left when the siege ends early. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
		_exit(90);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/*
 * The hostile user
 */

static void ask(void)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	struct raw_session session;

	raw_open(&service, &session);
	while (raw_ask(&session, &query, NULL) >= 0)
		continue;
}

static void run_child(void (*act)(void))
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		act();
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void begin_and_die(void)
{
	struct raw_session session;

	raw_open(&service, &session);
	kill(getpid(), SIGKILL);
}

static void die(void)
{
	for (;;)
		run_child(begin_and_die);
}

static void crash(void)
{
	driver_open();
	launch("crash_trap", 1, 1, NULL, NULL);
	cuCtxSynchronize();
}

static void fault(void)
{
	for (;;)
		run_child(crash);
}

static void (*const ways[])(void) = {ask, die, fault};

static void begin_siege(pid_t *pids, int sessions, int way)
{
	for (int i = 0; i < sessions; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			become(HOSTILE);
			/* Each says what it got, or that it was refused. */
			if (!freopen("/dev/null", "w", stderr))
				_exit(91);
			ways[way < 0 ? i % 3 : way]();
			_exit(0);
		}
	}
}

static void end_siege(const pid_t *pids, int sessions)
{
	for (int i = 0; i < sessions; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < sessions; i++)
		waitpid(pids[i], NULL, 0);
}

/*
 * The other one
 */

struct times {
	double request, request_99, launch, launch_99;
};

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void sum_up(uint64_t *samples, size_t count, double *median, double *most)
{
	qsort(samples, count, sizeof(*samples), compare);
	*median = count ? (double)samples[count / 2] / 1000 : 0;
	*most = count ? (double)samples[count - 1 - count / 100] / 1000 : 0;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void measure(unsigned seconds, struct times *times)
{
	uint64_t *requests = calloc(SAMPLES_MOST, sizeof(*requests)), until, begin;
	uint64_t *launches = calloc(SAMPLES_MOST, sizeof(*launches));
	size_t count = 0, free_bytes, total;
	CUdeviceptr word;
	uint32_t by = 1;
	void *arguments[] = {&word, &by};

	driver_open();
	ck_cuda(cuMemAlloc_v2(&word, 4));
	ck_cuda(launch("count_up", 1, 1, NULL, arguments));
	ck_cuda(cuCtxSynchronize());
	until = now_us() + seconds * UINT64_C(1000000);
	for (; count < SAMPLES_MOST && now_us() < until; count++) {
		begin = now_ns();
		ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
		requests[count] = now_ns() - begin;
		begin = now_ns();
		ck_cuda(launch("count_up", 1, 1, NULL, arguments));
		ck_cuda(cuCtxSynchronize());
		launches[count] = now_ns() - begin;
		/* As a program that does something else as well. */
		usleep(1000);
	}
	sum_up(requests, count, &times->request, &times->request_99);
	sum_up(launches, count, &times->launch, &times->launch_99);
}

static struct times measure_as_honest(unsigned seconds)
{
	struct times times = {0};
	int ends[2], status;
	pid_t pid;

	if (pipe(ends) < 0)
		abort();
	pid = fork();
	if (pid == 0) {
		become(HONEST);
		measure(seconds, &times);
		_exit(write(ends[1], &times, sizeof(times)) != sizeof(times));
	}
	close(ends[1]);
	if (read(ends[0], &times, sizeof(times)) != sizeof(times))
		fprintf(stderr, "siege: the program of the other user failed\n");
	close(ends[0]);
	waitpid(pid, &status, 0);
	return times;
}

static double ratio(double value, double alone)
{
	return alone > 0 ? value / alone : 0;
}

static void print_row(const char *name, const struct times *times, const struct times *alone)
{
	printf("%-9s %8.1f %6.1f %8.1f %6.1f %9.1f %6.1f %8.1f %6.1f\n", name, times->request,
		ratio(times->request, alone->request), times->request_99,
		ratio(times->request_99, alone->request_99), times->launch,
		ratio(times->launch, alone->launch), times->launch_99,
		ratio(times->launch_99, alone->launch_99));
	fflush(stdout);
}

static void besiege(const char *name, int way, int sessions, unsigned seconds, const struct times *alone)
{
	pid_t pids[SESSIONS_MOST];
	struct times times;

	begin_siege(pids, sessions, way);
	times = measure_as_honest(seconds);
	end_siege(pids, sessions);
	print_row(name, &times, alone);
}

/* Other users reach the socket, and the kernels wherever the build lies. */
static void start(void)
{
	char command[512], path[128];

	find_groups();
	join("service", unit_weight());
	if (!service_start_configured(&service, "quarantine_faults = 3\n") || chmod(service.folder, 0711) < 0)
		exit(1);
	snprintf(path, sizeof(path), "%s/kernels.so", service.folder);
	snprintf(command, sizeof(command), "cp '%s' '%s' && chmod 644 '%s'", getenv("FRMPS_TEST_KERNELS"),
		path, path);
	if (system(command))
		exit(1);
	setenv("FRMPS_TEST_KERNELS", path, 1);
}

int main(int count, char **arguments)
{
	int sessions = count > 1 ? atoi(arguments[1]) : 50;
	unsigned seconds = count > 2 ? (unsigned)atoi(arguments[2]) : 10;
	struct times alone;
	int code;

	if (geteuid() != 0) {
		puts("skipped: only root has programs of several users");
		return 77;
	}
	if (sessions < 1 || sessions > SESSIONS_MOST || !seconds) {
		fprintf(stderr, "usage: siege [SESSIONS [SECONDS]]\n");
		return 64;
	}
	start();
	printf("%d sessions of one user against one of another, %ld processors; us, and times that alone\n",
		sessions, sysconf(_SC_NPROCESSORS_ONLN));
	printf("%-9s %8s %6s %8s %6s %9s %6s %8s %6s\n", "", "request", "x", "p99", "x", "launch", "x", "p99",
		"x");
	alone = measure_as_honest(seconds);
	print_row("alone", &alone, &alone);
	besiege("requests", 0, sessions, seconds, &alone);
	besiege("dying", 1, sessions, seconds, &alone);
	besiege("faults", 2, sessions, seconds, &alone);
	besiege("all", -1, sessions, seconds, &alone);
	code = service_stop(&service) ? 1 : 0;
	drop_groups();
	return code;
}
