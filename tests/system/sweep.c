// Every call that can fail fails once. A program does a bit of everything, while the n-th malloc(),
// mmap(), memfd_create(), sendmsg(), fork() or pthread_create() of one process of the service, or
// of the program's library, or its n-th call for a descriptor, fails: for n = 1, 2, … until none is
// left. Each time the program computes what is right or gets an error; the program never hangs and
// never crashes; another program goes on and is exact; no executor that serves is replaced; and
// afterwards the service has as many descriptors, threads and sessions as before.
//
// A daemon is also killed in the place of its n-th sendmsg(), where a turn is recorded and not yet
// sent, and in the place of its n-th recv() that takes a message off, where the turn is sent and
// its messages are still there. Then the program must compute what is right.
//
// 	sweep [--full] [--target NAME] [--call CALL] [--at N]
//
// Without --full, about POINTS points of each kind. Prints a table, and where each call was that
// led to anything else.

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/tools/ask.h"
#include "tests/lib/failing.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/family.h"
#include "tests/system/program.h"

#define POINTS	   8
#define PATIENCE_S 20
/* A start that is neither well nor over after so long hangs (service_start()). */
#define START_S 60
/* In a row, some milliseconds apart. */
#define LOOKS 40
/* Threads that a backend and libuv have now and then. More of them with each point are found. */
#define THREADS_MORE 4

/* Ends of the program. */
enum end { RIGHT = 0, WRONG = 2, TOLD = 3 };

static struct service service;
static struct failing_page *page;
static void *image, *source;
static struct child witness;
static struct family family; /* at rest, unless all are to move */
static bool is_full, has_findings;

/* What a service at rest has. */
static struct footprint {
	int fds, threads, sessions;
	long long bytes;
} usual;

/*
 * The program
 */

static const char *told_by;

/* Ends the program at the first error. */
#define TRY(call)                                                                                            \
	do {                                                                                                 \
		if ((call) != CUDA_SUCCESS) {                                                                \
			told_by = #call;                                                                     \
			return TOLD;                                                                         \
		}                                                                                            \
	} while (0)

#define COUNT 4099u

static bool is_right(const uint32_t *result, uint32_t factor, uint32_t round)
{
	for (uint32_t i = 0; i < COUNT; i++)
		if (result[i] != mixed(i * factor, round, i))
			return false;
	return true;
}

static enum end use_module(const void *from)
{
	uint32_t by = 3, seen = 0;
	CUfunction function;
	CUdeviceptr word;
	CUmodule module;
	void *arguments[] = {&word, &by};

	TRY(cuModuleLoadData(&module, from));
	TRY(cuModuleGetFunction(&function, module, "count_up"));
	TRY(cuMemAlloc_v2(&word, 4));
	TRY(cuMemsetD32_v2(word, 4, 1));
	TRY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
	TRY(cuMemcpyDtoH_v2(&seen, word, 4));
	TRY(cuMemFree_v2(word));
	TRY(cuModuleUnload(module));
	return seen == 7 ? RIGHT : WRONG;
}

static enum end use_graph(CUstream stream, CUfunction mix, CUdeviceptr in, CUdeviceptr out)
{
	static uint32_t result[COUNT];
	uint32_t round = 5;
	uint64_t count = COUNT;
	void *arguments[] = {&out, &in, &round, &count};
	CUgraph graph;
	CUgraphExec made;

	TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	TRY(cuLaunchKernel(mix, 16, 1, 1, 64, 1, 1, 0, stream, arguments, NULL));
	TRY(cuMemcpyDtoHAsync_v2(result, out, sizeof(result), stream));
	TRY(cuStreamEndCapture(stream, &graph));
	TRY(cuGraphInstantiateWithFlags(&made, graph, 0));
	TRY(cuGraphLaunch(made, stream));
	TRY(cuStreamSynchronize(stream));
	TRY(cuGraphExecDestroy(made));
	TRY(cuGraphDestroy(graph));
	return is_right(result, 3, 5) ? RIGHT : WRONG;
}

static enum end use_memory(CUstream stream, CUfunction mix)
{
	static uint32_t words[COUNT], result[COUNT];
	uint32_t *pinned, round = 4;
	uint64_t count = COUNT;
	CUdeviceptr in, out, pooled;
	void *arguments[] = {&out, &in, &round, &count};
	CUevent event;
	enum end end;

	for (uint32_t i = 0; i < COUNT; i++)
		words[i] = i * 3;
	TRY(cuMemAlloc_v2(&in, sizeof(words)));
	TRY(cuMemAlloc_v2(&out, 40 << 20));
	TRY(cuMemHostAlloc((void **)&pinned, sizeof(words), 0));
	TRY(cuMemHostRegister_v2(words, sizeof(words), 0));
	TRY(cuEventCreate(&event, 0));
	TRY(cuMemcpyHtoD_v2(in, words, sizeof(words)));
	TRY(cuLaunchKernel(mix, 16, 1, 1, 64, 1, 1, 0, stream, arguments, NULL));
	TRY(cuMemcpyDtoHAsync_v2(pinned, out, sizeof(words), stream));
	TRY(cuEventRecord(event, stream));
	TRY(cuEventSynchronize(event));
	if (!is_right(pinned, 3, 4))
		return WRONG;
	TRY(cuMemcpyDtoH_v2(result, out, sizeof(result)));
	if (!is_right(result, 3, 4))
		return WRONG;
	TRY(cuMemAllocAsync(&pooled, 1 << 20, stream));
	TRY(cuMemcpyDtoDAsync_v2(pooled, in, sizeof(words), stream));
	memset(result, 0, sizeof(result));
	TRY(cuMemcpyDtoHAsync_v2(result, pooled, sizeof(result), stream));
	TRY(cuMemFreeAsync(pooled, stream));
	TRY(cuStreamSynchronize(stream));
	if (memcmp(result, words, sizeof(result)))
		return WRONG;
	end = use_graph(stream, mix, in, out);
	if (end)
		return end;
	TRY(cuEventDestroy_v2(event));
	TRY(cuMemHostUnregister(words));
	TRY(cuMemFreeHost(pinned));
	TRY(cuMemFree_v2(out));
	TRY(cuMemFree_v2(in));
	return RIGHT;
}

static enum end use_all(void)
{
	CUcontext context;
	CUfunction mix;
	CUmodule module;
	CUstream stream;
	CUdevice device;
	enum end end;

	TRY(cuInit(0));
	TRY(cuDeviceGet(&device, 0));
	TRY(cuDevicePrimaryCtxRetain(&context, device));
	TRY(cuCtxSetCurrent(context));
	TRY(cuModuleLoadData(&module, image));
	TRY(cuModuleGetFunction(&mix, module, "mix"));
	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	end = use_memory(stream, mix);
	if (!end)
		end = use_module(source);
	if (!end)
		end = use_module(image);
	if (end)
		return end;
	TRY(cuStreamDestroy_v2(stream));
	TRY(cuModuleUnload(module));
	TRY(cuDevicePrimaryCtxRelease_v2(device));
	return RIGHT;
}

/* Another program: it never stops, and has all that it needs. */
static int witness_all(int progress, int orders)
{
	static uint32_t words[COUNT];
	uint64_t count = COUNT;
	uint32_t *pinned, round = 0;
	CUdeviceptr in, out;
	CUstream stream;
	CUfunction mix;
	void *arguments[] = {&out, &in, &round, &count};

	driver_open();
	mix = kernel("mix");
	for (uint32_t i = 0; i < COUNT; i++)
		words[i] = i * 3;
	TRY(cuMemAlloc_v2(&in, sizeof(words)));
	TRY(cuMemAlloc_v2(&out, sizeof(words)));
	TRY(cuMemHostAlloc((void **)&pinned, sizeof(words), 0));
	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	TRY(cuMemcpyHtoD_v2(in, words, sizeof(words)));
	for (; !ordered(orders, false); round++) {
		TRY(cuLaunchKernel(mix, 16, 1, 1, 64, 1, 1, 0, stream, arguments, NULL));
		TRY(cuMemcpyDtoHAsync_v2(pinned, out, sizeof(words), stream));
		TRY(cuStreamSynchronize(stream));
		if (!is_right(pinned, 3, round))
			return WRONG;
		report(progress);
		/* What it makes an executor do is not what is looked at. */
		pass_time(2);
	}
	return RIGHT;
}

/* With what exit() runs: the library ends its session there. */
static int run_program(int unused)
{
	enum end end;

	(void)unused;
	failing_be_program();
	end = use_all();
	if (end == TOLD)
		snprintf(page->told, sizeof(page->told), "%s", told_by);
	exit(end);
}

/* Return: as exit_status(); -1: it hangs */
static int end_of(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0, 0, 0, 0, 0);
	struct pollfd wait = {.fd = pidfd, .events = POLLIN};
	bool ended = poll(&wait, 1, PATIENCE_S * 1000) == 1;
	int status;

	close(pidfd);
	if (!ended)
		kill(pid, SIGKILL);
	status = exit_status(pid);
	return ended ? status : -1;
}

/*
 * The service
 */

struct view {
	pid_t daemon, keeper, active, standby;
	long long witness, relative; /* sessions: its, and that of one of the family */
	struct footprint footprint;
	bool rests; /* everything that a service at rest has is there, and nothing else */
};

static pid_t pid_in(const json_t *object)
{
	return (pid_t)json_integer_value(json_object_get(object, "pid"));
}

static bool is_text(const json_t *object, const char *name, const char *text)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value && !strcmp(value, text);
}

static void look_at_domain(const json_t *domain, struct view *view)
{
	const json_t *executors = json_object_get(domain, "executors"), *one;
	size_t i;

	json_array_foreach (executors, i, one) {
		if (is_text(one, "state", "active"))
			view->active = pid_in(one);
		if (is_text(one, "state", "warm") && !json_integer_value(json_object_get(one, "behind")))
			view->standby = pid_in(one);
	}
	view->rests = view->active && view->standby && json_array_size(executors) == 2;
	json_array_foreach (json_object_get(domain, "clients"), i, one) {
		if (pid_in(one) == witness.pid)
			view->witness = json_integer_value(json_object_get(one, "session"));
		if (pid_in(one) == family.members[0].pid)
			view->relative = json_integer_value(json_object_get(one, "session"));
		view->footprint.bytes += json_integer_value(json_object_get(one, "memory_bytes")) +
					 json_integer_value(json_object_get(one, "host_bytes"));
	}
	view->footprint.sessions += (int)json_array_size(json_object_get(domain, "clients"));
}

/* Return: false if the daemon does not answer */
static bool look(struct view *view)
{
	char reason[256], *document = NULL;
	json_t *status, *domains;

	*view = (struct view){0};
	if (ask(service.socket, "status", &document, reason, sizeof(reason)))
		return false;
	status = json_loads(document, 0, NULL);
	free(document);
	domains = json_object_get(status, "domains");
	view->daemon = pid_in(status);
	view->keeper = pid_in(json_object_get(status, "keeper"));
	if (json_array_size(domains) == 1)
		look_at_domain(json_array_get(domains, 0), view);
	view->rests &= is_text(json_object_get(status, "keeper"), "state", "serving");
	json_decref(status);
	service_footprint(&service, &view->footprint.fds, &view->footprint.threads);
	return true;
}

static bool is_same(const struct footprint *left, const struct footprint *right)
{
	return left->fds <= right->fds && left->threads <= right->threads + THREADS_MORE &&
	       left->sessions == right->sessions && left->bytes == right->bytes;
}

static bool rests(struct view *view)
{
	return look(view) && view->rests && view->footprint.sessions == 1 + FAMILY;
}

/* Asks until the service rests as usual. Return: false if it does not come to rest in time */
static bool await_rest(struct view *view)
{
	time_t end = time(NULL) + PATIENCE_S;
	bool is_usual;

	while (!(is_usual = rests(view) && is_same(&view->footprint, &usual)) && time(NULL) < end)
		pass_time(2);
	return is_usual;
}

/* The most of many looks in a row: standbys hear of some things later, and the latest question may
 * still be open. Return: as await_rest() */
static bool learn_usual(void)
{
	time_t end = time(NULL) + PATIENCE_S;
	struct view view;
	int looks = 0;

	while (looks < LOOKS && time(NULL) < end) {
		if (!rests(&view))
			looks = 0;
		else if (!looks++ || view.footprint.fds > usual.fds)
			usual = view.footprint;
		pass_time(2);
	}
	return looks == LOOKS;
}

/* Return: whether it makes progress */
static bool goes_on(const struct child *child, int rounds)
{
	struct pollfd wait = {.fd = child->progress, .events = POLLIN};
	char byte;

	while (rounds--)
		if (poll(&wait, 1, PATIENCE_S * 1000) != 1 || read(child->progress, &byte, 1) != 1)
			return false;
	return true;
}

/* Return: whether the other program goes on */
static bool witness_goes_on(int rounds)
{
	child_drain(&witness);
	return goes_on(&witness, rounds);
}

/* Return: whether those go on that share */
static bool family_goes_on(void)
{
	for (int i = 0; i < FAMILY; i++) {
		child_order(&family.members[i]);
		if (!goes_on(&family.members[i], 1))
			return false;
	}
	return true;
}

/* Return: as end_of() of one that has ended already */
static int end_family(void)
{
	int end = RIGHT;

	for (int i = 0; i < FAMILY; i++) {
		struct child *child = &family.members[i];
		bool runs = child_runs(child);
		int status;

		if (runs)
			kill(child->pid, SIGKILL);
		status = child_end(child);
		end = runs || end ? end : status;
	}
	return end;
}

/* Return: false if the service does not work without failures either */
static bool start(void)
{
	if (!service_start_configured(&service, "quarantine_faults = 0\nrecovery = replay\n"))
		return false;
	family_words = UINT64_C(1) << 18;
	family = family_begin(INT_MAX);
	witness = child_start(witness_all);
	if (!witness_goes_on(2) || end_of(spawn(run_program, 0)) != RIGHT)
		return false;
	/* Compilers are kept for a while: the next program has one. */
	return end_of(spawn(run_program, 0)) == RIGHT && learn_usual();
}

/* Return: the witness's end, as end_of() */
static int stop(void)
{
	int end, family_end;

	child_order(&witness);
	/* It may wait for a reader. */
	fcntl(witness.progress, F_SETPIPE_SZ, 1 << 20);
	end = end_of(witness.pid);
	close(witness.progress);
	close(witness.orders);
	family_end = end_family();
	end = end ? end : family_end;
	/* Its crashes are looked at one by one. */
	service.crashes = 1000;
	if (service_stop(&service) && !end)
		end = 100;
	return end;
}

/*
 * A point
 */

/* What happens besides. */
enum trouble {
	NO_TROUBLE,
	DAEMON_IS_KILLED,
	EXECUTOR_IS_KILLED,
	WITNESS_IS_SUSPENDED, /* while it works, and resumed; the family, too */
	DEVICE_IS_DRAINED,    /* while it works, and refilled: all workers are other ones then */
	SERVICE_STARTS,
};

struct target {
	const char *name;
	enum failing_role role;
	bool is_standby;
	enum trouble trouble;
};

static const struct target targets[] = {{"program", FAILING_PROGRAM, false, NO_TROUBLE},
	{"daemon", FAILING_DAEMON, false, NO_TROUBLE}, {"executor", FAILING_EXECUTOR, false, NO_TROUBLE},
	{"standby", FAILING_EXECUTOR, true, NO_TROUBLE}, {"keeper", FAILING_KEEPER, false, NO_TROUBLE},
	{"compiler", FAILING_COMPILER, false, NO_TROUBLE}, {"holder", FAILING_HOLDER, false, NO_TROUBLE},
	/* The next daemon adopts everything. */
	{"adopting-daemon", FAILING_DAEMON, false, DAEMON_IS_KILLED},
	{"adopting-holder", FAILING_HOLDER, false, DAEMON_IS_KILLED},
	/* The standby takes over. */
	{"promoting-daemon", FAILING_DAEMON, false, EXECUTOR_IS_KILLED},
	{"promoted-executor", FAILING_EXECUTOR, true, EXECUTOR_IS_KILLED},
	{"promoted-program", FAILING_PROGRAM, true, EXECUTOR_IS_KILLED},
	{"suspending-daemon", FAILING_DAEMON, false, WITNESS_IS_SUSPENDED},
	{"suspending-executor", FAILING_EXECUTOR, false, WITNESS_IS_SUSPENDED},
	{"suspending-keeper", FAILING_KEEPER, false, WITNESS_IS_SUSPENDED},
	{"draining-daemon", FAILING_DAEMON, false, DEVICE_IS_DRAINED},
	{"draining-executor", FAILING_EXECUTOR, false, DEVICE_IS_DRAINED},
	{"draining-keeper", FAILING_KEEPER, false, DEVICE_IS_DRAINED},
	{"starting-holder", FAILING_HOLDER, false, SERVICE_STARTS},
	{"starting-daemon", FAILING_DAEMON, false, SERVICE_STARTS},
	{"starting-keeper", FAILING_KEEPER, false, SERVICE_STARTS},
	{"starting-executor", FAILING_EXECUTOR, false, SERVICE_STARTS}};

static bool is_death(enum failing_call call)
{
	return call == FAILING_UNSENT || call == FAILING_UNTAKEN;
}

/* What has become of the points of one kind. */
struct tally {
	unsigned points, right, told, told_beside, replaced, findings;
};

static void find(const struct target *target, enum failing_call call, long number, struct tally *tally,
	const char *what, int value)
{
	printf("FOUND  %s, %s %ld: %s (%d)%s%s\n%s", target->name, failing_call_name(call), number, what,
		value, page->told[0] ? "; the program was told by " : "", page->told, page->where);
	fflush(stdout);
	tally->findings++;
	has_findings = true;
}

static void say_footprint(const struct footprint *now)
{
	printf("now %d descriptors, %d threads, %d sessions, %lld bytes; usually %d, %d, %d, %lld\n",
		now->fds, now->threads, now->sessions, now->bytes, usual.fds, usual.threads, usual.sessions,
		usual.bytes);
}

/* Return: whether the service has done it */
static bool command(const char *verb, long long session, const char *how)
{
	char number[24], reason[256];
	const char *words[] = {number, how};
	const struct wire_names arguments = {words, how ? 2 : 1};

	snprintf(number, sizeof(number), "%lld", session);
	return !ask_with(service.socket, verb, &arguments, PATIENCE_S, NULL, reason, sizeof(reason));
}

static void suspend(const struct view *view)
{
	const long long sessions[] = {view->witness, view->relative};

	for (int i = 0; i < 2; i++)
		command("suspend", sessions[i], "now");
	/* Another daemon may have to be there first. */
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 3 && !command("resume", sessions[i], NULL); j++)
			pass_time(20);
}

static bool order(const char *verb)
{
	char reason[256];

	return !ask_with(
		service.socket, verb, &(struct wire_names){0}, PATIENCE_S, NULL, reason, sizeof(reason));
}

static void drain(void)
{
	order("drain");
	/* The first try may be what fails. */
	for (int i = 0; i < 50 && !order("refill"); i++)
		pass_time(20);
}

static void make_trouble(const struct target *target, const struct view *view)
{
	if (target->trouble == DAEMON_IS_KILLED)
		kill(view->daemon, SIGKILL);
	if (target->trouble == EXECUTOR_IS_KILLED)
		kill(view->active, SIGKILL);
	if (target->trouble == WITNESS_IS_SUSPENDED)
		suspend(view);
	if (target->trouble == DEVICE_IS_DRAINED)
		drain();
}

/* Those that share move, too. */
static bool moves_all(const struct target *target)
{
	return target->trouble == WITNESS_IS_SUSPENDED || target->trouble == DEVICE_IS_DRAINED;
}

static pid_t process_of(const struct target *target, const struct view *view)
{
	switch (target->role) {
	case FAILING_EXECUTOR:
		return target->is_standby ? view->standby : view->active;
	case FAILING_KEEPER:
		return view->keeper;
	default:
		return 0;
	}
}

/* Return: false if nothing has failed: there are no more points */
static bool try_point(const struct target *target, enum failing_call call, long number, struct tally *tally,
	bool *ret_spoilt)
{
	struct view before, after;
	bool failed;
	int end;

	*ret_spoilt = false;
	if (!await_rest(&before)) {
		say_footprint(&before.footprint);
		find(target, call, number, tally, "the service is not at rest before", 0);
		*ret_spoilt = true;
		return true;
	}
	failing_arm(page, target->role, process_of(target, &before), call, number);
	make_trouble(target, &before);
	end = end_of(spawn(run_program, 0));
	failed = failing_disarm(page);
	if (failed)
		tally->points++;
	tally->right += failed && end == RIGHT;
	tally->told += failed && end == TOLD;
	if (end != RIGHT && (end != TOLD || is_death(call) || (!failed && !target->trouble)))
		find(target, call, number, tally,
			end == WRONG ? "wrong data"
			: end < 0    ? "the program hangs"
				     : "the program ends by a signal, or with an error for no reason",
			end);
	if (target->trouble == WITNESS_IS_SUSPENDED) {
		command("resume", before.witness, NULL);
		command("resume", before.relative, NULL);
	}
	if (!witness_goes_on(2) || (moves_all(target) && !family_goes_on())) {
		*ret_spoilt = true;
		return failed;
	}
	if (!await_rest(&after)) {
		say_footprint(&after.footprint);
		find(target, call, number, tally, "something is left, or does not come back", 0);
		*ret_spoilt = true;
		return failed;
	}
	if (target->trouble != EXECUTOR_IS_KILLED && target->trouble != DEVICE_IS_DRAINED &&
		after.active != before.active)
		find(target, call, number, tally, "an executor that serves is replaced", 0);
	if (target->trouble) {
		tally->replaced += after.daemon != before.daemon;
		return failed;
	}
	if (after.daemon != before.daemon || after.active != before.active ||
		after.standby != before.standby || after.keeper != before.keeper) {
		tally->replaced++;
		if (is_full)
			printf("       %s, %s %ld: %s%s%s%s replaced\n%s", target->name,
				failing_call_name(call), number,
				after.daemon != before.daemon ? "daemon " : "",
				after.active != before.active ? "executor " : "",
				after.standby != before.standby ? "standby " : "",
				after.keeper != before.keeper ? "keeper " : "", page->where);
	}
	return failed;
}

/*
 * Sweeps
 */

/* Eight crashes of a daemon within a minute are the end of the service. */
#define CRASHES 5

static struct options {
	const char *target, *call;
	long at; /* 0: all */
} options;

/* A service that starts, or says why it does not. Return: as try_point() */
static bool try_start(const struct target *target, enum failing_call call, long number, struct tally *tally,
	bool *ret_spoilt)
{
	time_t begin = time(NULL);
	struct view view;
	bool failed, starts;

	*ret_spoilt = false;
	failing_arm(page, target->role, 0, call, number);
	starts = service_start_configured(&service, "");
	failed = failing_disarm(page);
	tally->points += failed;
	tally->right += failed && starts;
	tally->told += failed && !starts;
	if (!starts && (!failed || time(NULL) - begin >= START_S))
		find(target, call, number, tally, "the service does not start", 0);
	if (!starts)
		return failed;
	if (end_of(spawn(run_program, 0)) != RIGHT)
		find(target, call, number, tally, "the service starts, and does not work", 0);
	for (time_t end = time(NULL) + PATIENCE_S; !look(&view) || !view.rests;)
		if (time(NULL) > end) {
			say_footprint(&view.footprint);
			find(target, call, number, tally, "something does not come", 0);
			break;
		}
	service.crashes = 1000;
	if (service_stop(&service))
		find(target, call, number, tally, "the service does not end", 0);
	return failed;
}

/* Calls of a kind that the program makes necessary. */
static long count_calls(const struct target *target, enum failing_call call)
{
	const long many = 1L << 40;
	struct view view;
	struct tally tally = {0};
	bool spoilt;

	if (target->trouble == SERVICE_STARTS) {
		try_start(target, call, many, &tally, &spoilt);
		return many - (long)page->left;
	}
	if (!await_rest(&view))
		return 0;
	failing_arm(page, target->role, process_of(target, &view), call, many);
	make_trouble(target, &view);
	end_of(spawn(run_program, 0));
	failing_disarm(page);
	return many - (long)page->left;
}

static bool service_runs;
static unsigned replaced; /* since its start */

/* After points that have changed the service, and before the target is another service. An executor
 * may be without memory for the other program as well, and return an error. */
static void end_service(const struct target *target, enum failing_call call, long number, struct tally *tally)
{
	int end = service_runs ? stop() : RIGHT;

	service_runs = false;
	if (end == TOLD && target->role == FAILING_EXECUTOR)
		tally->told_beside++;
	else if (end)
		find(target, call, number, tally, "another program does not go on", end);
}

static void need_service(void)
{
	if (service_runs)
		return;
	if (!start())
		ck_abort_msg("the service does not start");
	service_runs = true;
	replaced = 0;
}

static void sweep(const struct target *target, enum failing_call call)
{
	bool starts = target->trouble == SERVICE_STARTS, spoilt, more = true;
	struct tally tally = {0};
	long calls, step;

	if (starts)
		end_service(target, call, 0, &tally);
	else
		need_service();
	calls = count_calls(target, call);
	step = is_full || calls <= POINTS ? 1 : (calls + POINTS - 1) / POINTS;
	/* Some come now and then, by timers: a program may make a few more. */
	for (long number = options.at ? options.at : 1; more && (is_full || number <= calls);
		number += step) {
		unsigned before = tally.replaced;

		if (!starts)
			need_service();
		more = (starts ? try_start : try_point)(target, call, number, &tally, &spoilt) && !options.at;
		replaced += tally.replaced - before;
		if (!starts && (spoilt || replaced >= CRASHES))
			end_service(target, call, number, &tally);
	}
	printf("%-19s %-7s %5u %5u %5u %6u %8u %6u\n", target->name, failing_call_name(call), tally.points,
		tally.right, tally.told, tally.told_beside, tally.replaced, tally.findings);
	fflush(stdout);
}

/* Daemons die at any point, and nobody notices; a first daemon that dies is the end of the
 * service. */
static bool is_possible(const struct target *target, enum failing_call call)
{
	return !is_death(call) || (target->role == FAILING_DAEMON && target->trouble != SERVICE_STARTS);
}

static bool is_wanted(const char *wanted, const char *name)
{
	return !wanted || !strcmp(wanted, name);
}

static void take_options(int count, char **arguments)
{
	static const struct option known[] = {{"full", no_argument, NULL, 'f'},
		{"target", required_argument, NULL, 't'}, {"call", required_argument, NULL, 'c'},
		{"at", required_argument, NULL, 'a'}, {0}};
	int option;

	while ((option = getopt_long(count, arguments, "", known, NULL)) >= 0) {
		if (option == 'f')
			is_full = true;
		else if (option == 't')
			options.target = optarg;
		else if (option == 'c')
			options.call = optarg;
		else if (option == 'a')
			options.at = atol(optarg);
		else
			exit(64);
	}
}

TEST(sweep, every_call_fails_once)
{
	char path[] = "/tmp/frmps-sweep-XXXXXX";

	close(mkstemp(path));
	page = failing_make(path);
	setenv("FRMPS_TEST_SERVER", getenv("FRMPS_TEST_FAILING_SERVER"), 1);
	image = read_file(getenv("FRMPS_TEST_KERNELS"));
	source = kernels_source("");
	ck_assert(page && source);
	printf("%-19s %-7s points right error beside replaced found\n", "fails in", "call");
	for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++)
		for (int call = 0; call < FAILING_CALLS; call++)
			if (is_possible(&targets[i], (enum failing_call)call) &&
				is_wanted(options.target, targets[i].name) &&
				is_wanted(options.call, failing_call_name((enum failing_call)call)))
				sweep(&targets[i], (enum failing_call)call);
	ck_assert_int_eq(service_runs ? stop() : RIGHT, RIGHT);
	unlink(path);
	ck_assert(!has_findings);
}

int main(int count, char **arguments)
{
	Suite *suite = suite_create("sweep");
	TCase *tests = tcase_create("sweep");

	setvbuf(stdout, NULL, _IOLBF, 0);
	take_options(count, arguments);
	tcase_set_timeout(tests, 0);
	suite_add(tests, "sweep");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
