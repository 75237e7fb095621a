// See program.h. The tests' own process never opens the driver: each child does it for itself.

#include "tests/system/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/system/driver.h"
#include "tests/system/status.h"

struct service common_service;

void common_service_start(void)
{
	if (!is_native())
		ck_assert(service_start(&common_service, NULL));
}

void common_service_stop(void)
{
	if (!is_native())
		ck_assert_int_eq(service_stop(&common_service), 0);
}

pid_t spawn(int (*function)(int), int argument)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(function(argument));
	return pid;
}

int exit_status(pid_t pid)
{
	int status = 0;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

struct child child_start(child_function *function)
{
	int progress[2], orders[2];
	struct child child;

	/* Later children must not hold the ends of earlier ones open. */
	ck_assert_int_eq(pipe2(progress, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(orders, O_CLOEXEC), 0);
	child = (struct child){.pid = fork(), .progress = progress[0], .orders = orders[1]};
	if (child.pid == 0) {
		close(progress[0]);
		close(orders[1]);
		_exit(function(progress[1], orders[0]));
	}
	close(progress[1]);
	close(orders[0]);
	return child;
}

void child_wait(const struct child *child, int bytes)
{
	char byte;

	while (bytes-- > 0)
		ck_assert_int_eq(read(child->progress, &byte, 1), 1);
}

void child_drain(const struct child *child)
{
	struct pollfd p = {.fd = child->progress, .events = POLLIN};
	char bytes[4096];

	while (poll(&p, 1, 0) == 1 && read(child->progress, bytes, sizeof(bytes)) > 0)
		;
}

bool child_progresses(const struct child *child)
{
	struct pollfd p = {.fd = child->progress, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

bool child_stands_still(const struct child *child)
{
	int reports;

	ck_assert_int_eq(ioctl(child->progress, FIONREAD, &reports), 0);
	return reports <= 1;
}

bool child_runs(const struct child *child)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

void child_order(const struct child *child)
{
	/* It may just have come to its end, and child_end() says to which. */
	signal(SIGPIPE, SIG_IGN);
	ck_assert(write(child->orders, "o", 1) == 1 || errno == EPIPE);
}

void see_it_work(const struct child *child)
{
	child_order(child);
	child_wait(child, 1);
}

int child_end(struct child *child)
{
	char byte;
	int status;

	/* Until its end: a full pipe would keep it from ending. */
	while (read(child->progress, &byte, 1) == 1)
		;
	status = exit_status(child->pid);
	close(child->progress);
	close(child->orders);
	*child = (struct child){0};
	return status;
}

void report(int progress)
{
	if (write(progress, "p", 1) != 1)
		_exit(99);
}

bool ordered(int orders, bool wait)
{
	struct pollfd p = {.fd = orders, .events = POLLIN};
	char byte;
	int r;

	/* A process that CRIU has restored comes out of the call. */
	do {
		r = poll(&p, 1, wait ? -1 : 0);
	} while (r < 0 && errno == EINTR);
	if (r <= 0)
		return false;
	/* The end of the pipe counts as well, so that nobody outlives a failed test. */
	return read(orders, &byte, 1) >= 0;
}

void pass_fd(int socket, int *fd, bool sends)
{
	char byte = 0;
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
			     .cmsg_level = SOL_SOCKET,
			     .cmsg_type = SCM_RIGHTS}};
	struct msghdr message = {.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.room,
		.msg_controllen = sizeof(control.room)};

	if (sends) {
		memcpy(CMSG_DATA(&control.head), fd, sizeof(*fd));
		ck_assert_int_eq(sendmsg(socket, &message, 0), 1);
	} else {
		ck_assert_int_eq(recvmsg(socket, &message, 0), 1);
		memcpy(fd, CMSG_DATA(&control.head), sizeof(*fd));
	}
}

void pass_time(int ms)
{
	struct itimerspec when = {.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	ck_assert_int_eq(timerfd_settime(fd, 0, &when, NULL), 0);
	while (poll(&p, 1, -1) < 0)
		ck_assert_int_eq(errno, EINTR);
	close(fd);
}

int one_program(int number)
{
	CUdeviceptr p;
	uint32_t word = 0;

	driver_open();
	p = device_words(4, (uint32_t)number);
	ck_cuda(cuMemcpyDtoH_v2(&word, p + 4, 4));
	return word == (uint32_t)number ? 0 : 2;
}

void wait_closed(const struct service *service)
{
	ck_assert_int_eq(exit_status(spawn(one_program, 9)), 0);
	status_await_no_sessions(service);
}

static CUresult read_variables(CUfunction reader, const CUdeviceptr variables[2], CUdeviceptr out,
	uint32_t by_kernel[8], uint32_t by_copy[8])
{
	void *arguments[] = {&out};
	CUresult error = cuLaunchKernel(reader, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);

	if (!error)
		error = cuMemcpyDtoH_v2(by_kernel, out, 32);
	for (int i = 0; i < 2 && !error; i++)
		error = cuMemcpyDtoH_v2(by_copy + i * 4, variables[i], 16);
	return error;
}

/* @words: of both variables. @writes: otherwise they hold them already. */
static int remember(int progress, int orders, const uint32_t words[8], bool writes)
{
	uint32_t by_kernel[8], by_copy[8];
	CUdeviceptr variables[2], out;
	CUfunction reader;

	driver_open();
	reader = kernel("read_words");
	ck_cuda(cuMemAlloc_v2(&out, 32));
	ck_cuda(cuModuleGetGlobal_v2(&variables[0], NULL, kernels(), "global_words"));
	ck_cuda(cuModuleGetGlobal_v2(&variables[1], NULL, kernels(), "constant_words"));
	for (int i = 0; i < 2 && writes; i++)
		ck_cuda(cuMemcpyHtoD_v2(variables[i], words + i * 4, 16));
	/* What has not begun is done by the next executor, and nothing is lost. */
	if (writes)
		ck_cuda(cuCtxSynchronize());
	report(progress);
	ordered(orders, true);
	if (read_variables(reader, variables, out, by_kernel, by_copy))
		return 3;
	return memcmp(by_kernel, words, 32) || memcmp(by_copy, words, 32) ? 2 : 0;
}

int rememberer(int progress, int orders)
{
	const uint32_t words[8] = {101, 102, 103, 104, 105, 106, 107, 108};

	return remember(progress, orders, words, true);
}

int looker(int progress, int orders)
{
	const uint32_t words[8] = {11, 22, 33, 44, 5, 6, 7, 8};

	return remember(progress, orders, words, false);
}

static CUresult tally(CUfunction up, uint32_t by, bool in_graph)
{
	void *arguments[] = {&by};
	CUDA_KERNEL_NODE_PARAMS params = {.func = up,
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = arguments};
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;

	if (!in_graph)
		return cuLaunchKernel(up, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return cuGraphLaunch(exec, NULL);
}

static CUresult read_tally(CUdeviceptr out, uint32_t *ret_tally)
{
	void *arguments[] = {&out};
	CUresult error = launch("read_tally", 1, 1, NULL, arguments);

	return error ? error : cuMemcpyDtoH_v2(ret_tally, out, 4);
}

static int keep_tally(int progress, int orders, bool in_graph, uint32_t before)
{
	CUdeviceptr out;
	CUfunction up;
	uint32_t seen = 0, one = 1;
	void *arguments[] = {&out, &one};
	CUresult error;

	setenv("FRMPS_RECOVERY", "fail", 1);
	driver_open();
	up = kernel("tally_up");
	out = device_words(1, 0);
	/* Something has run. */
	ck_cuda(launch("count_up", 1, 1, NULL, arguments));
	for (uint32_t i = 0; i < before; i++)
		ck_cuda(tally(up, 1, in_graph));
	ck_cuda(cuCtxSynchronize());
	report(progress);
	ordered(orders, true);
	error = cuCtxSynchronize();
	if (!error)
		error = tally(up, 10, false);
	if (!error)
		error = read_tally(out, &seen);
	if (error)
		return 3;
	return seen == 1000 + before + 10 ? 0 : 2;
}

int tallier(int progress, int orders)
{
	return keep_tally(progress, orders, false, 7);
}

int graph_tallier(int progress, int orders)
{
	return keep_tally(progress, orders, true, 3);
}

int moved_tallier(int progress, int orders)
{
	if (getenv("FRMPS_TEST_MOVED_KERNELS"))
		setenv("FRMPS_TEST_KERNELS", getenv("FRMPS_TEST_MOVED_KERNELS"), 1);
	return keep_tally(progress, orders, false, 7);
}

int late_tallier(int progress, int orders)
{
	return keep_tally(progress, orders, false, 0);
}

int survivor(int progress, int orders)
{
	uint64_t count = 4099;
	CUdeviceptr in, out;
	uint32_t *result;
	CUstream stream;

	setenv("FRMPS_RECOVERY", "replay", 1);
	driver_open();
	in = device_words(count, 3);
	out = device_words(count, 0);
	ck_cuda(cuMemHostAlloc((void **)&result, count * 4, 0));
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t round = 0; !ordered(orders, false); round++) {
		void *arguments[] = {&out, &in, &round, &count};

		ck_cuda(launch("mix", 16, 64, stream, arguments));
		ck_cuda(cuMemcpyDtoHAsync_v2(result, out, count * 4, stream));
		ck_cuda(cuStreamSynchronize(stream));
		for (uint32_t i = 0; i < count; i++)
			if (result[i] != mixed(i * 3, round, i))
				return 2;
		report(progress);
	}
	return 0;
}

static int tell_free_memory(int fd)
{
	size_t free_bytes, total;

	driver_attach();
	ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
	return write(fd, &free_bytes, sizeof(free_bytes)) != sizeof(free_bytes);
}

uint64_t free_memory(void)
{
	size_t bytes = 0;
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(exit_status(spawn(tell_free_memory, ends[1])), 0);
	ck_assert_int_eq(read(ends[0], &bytes, sizeof(bytes)), sizeof(bytes));
	close(ends[0]);
	close(ends[1]);
	return bytes;
}
