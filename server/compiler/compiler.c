// The compiler's loop: one thread, one blocking socket, one request at a time.
//
// 	Ready ► { LoadModule, LinkAdd, LinkComplete, LinkDrop → Reply } ► hang-up: leave
//
// The messages are the program's, as the daemon has checked them. LoadModule comes with the file of
// a text and a file for its code, LinkComplete with a file for the image.
//
// The daemon starts the compiler with the user's rights and a single descriptor, and ends the
// process (worker/compiler.c); the compiler sets its own limits before reading any text. The limits
// hold for the driver's threads, too. Exceeding a limit means a crash or an error of a single
// compilation.
//
// Reason for a process: in executors, where many threads compiled for many programs, the driver's
// compiler ended with signal 11, in its allocator (libnvidia-ptxjitcompiler 580.159.04). A program
// of eight threads that links texts, every sixth of them wrong, reproduces the crash, but only with
// all of these conditions: links are handed from thread to thread between two calls, their texts
// are overwritten after each call, images are loaded as libraries meanwhile, and
// pthread_mutex_lock() spins, like that of executors (executor/mutex.h). Any of these alone works
// as natively. So there is a race in the compiler that a native program hardly ever loses. Here a
// single thread does everything, and no mutex spins; a crash nonetheless costs nobody else
// anything.

#include "server/compiler/compiler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/compiler/links.h"
#include "server/environment.h"
#include "server/file.h"

#define LOG_BYTES 16384u
/* Memory beyond the driver's use before the first text, MiB. */
#define MEMORY_MIB_DEFAULT 8192u
/* Largest file: code, and the driver's own files. */
#define FILE_MOST (UINT64_C(1) << 30)
/* Processor time, of all threads and texts together. A text beyond the limit is compiled once more
 * in the next process. */
#define PROCESSOR_SECONDS 3600u

struct compiler {
	const struct backend_ops *ops;
	int socket;
	struct links links;
	char log[LOG_BYTES];
	struct packet packet;
	struct wire_message request;
};

/*
 * Limits
 */

static bool limit(int resource, uint64_t most)
{
	struct rlimit limits;

	if (getrlimit(resource, &limits) < 0)
		return false;
	if (limits.rlim_max != RLIM_INFINITY && limits.rlim_max < most)
		most = limits.rlim_max;
	limits.rlim_cur = limits.rlim_max = most;
	return setrlimit(resource, &limits) == 0;
}

/* Private memory that this process may write, bytes; 0: unknown. Memory that the driver reserves
 * and does not use is not counted. */
static uint64_t private_memory(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) != 1)
		pages = 0;
	fclose(file);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Where memory is short this process goes first. */
static void offer_to_be_killed(void)
{
	FILE *file = fopen("/proc/self/oom_score_adj", "we");

	if (!file)
		return;
	fputs("1000", file);
	fclose(file);
}

static bool set_limits(void)
{
	uint64_t mib = environment_number("FRMPS_COMPILE_MIB", MEMORY_MIB_DEFAULT, 1, UINT64_C(1) << 30);
	uint64_t now = private_memory();

	offer_to_be_killed();
	return now && limit(RLIMIT_DATA, now + (mib << 20)) && limit(RLIMIT_CPU, PROCESSOR_SECONDS) &&
	       limit(RLIMIT_FSIZE, FILE_MOST) && limit(RLIMIT_CORE, 0);
}

/*
 * Requests
 */

static int file_of(const struct compiler *compiler, unsigned index)
{
	return index < compiler->packet.fd_count ? compiler->packet.fds[index] : -1;
}

static int answer(struct compiler *compiler, const struct wire_reply *reply)
{
	struct wire_message message = {.type = WIRE_REPLY, .id = compiler->request.id, .reply = *reply};

	/* After the answer the daemon may check who else has a file open. */
	packet_close_fds(&compiler->packet);
	return message_send(compiler->socket, &message, NULL, 0);
}

static CUresult compile(struct compiler *compiler, void **ret_code, size_t *ret_bytes)
{
	const struct wire_load_module *wish = &compiler->request.load_module;
	uint8_t *image;
	CUresult code = file_read(file_of(compiler, 0), wish->bytes, &image);

	if (code)
		return code;
	code = compiler->ops->module_compile(image, wish->bytes, wish->room, &wish->options, compiler->log,
		LOG_BYTES, ret_code, ret_bytes);
	free(image);
	return code;
}

/* Values: bytes of the code. */
static int handle_text(struct compiler *compiler)
{
	void *code = NULL;
	size_t bytes = 0;
	uint64_t value;
	struct wire_reply reply = {.text = compiler->log};

	compiler->log[0] = '\0';
	reply.code = compile(compiler, &code, &bytes);
	if (!reply.code)
		reply.code = file_write(file_of(compiler, 1), code, bytes, 0);
	free(code);
	value = bytes;
	reply.values = (struct wire_u64s){&value, reply.code ? 0 : 1};
	return answer(compiler, &reply);
}

/* Values: of LinkComplete, bytes of the image. Names: log of errors, log of remarks. */
static int handle_link(struct compiler *compiler)
{
	const char *logs[2] = {"", ""};
	uint64_t bytes = 0;
	struct wire_reply reply = {.names = {logs, 2}};

	reply.code = links_handle(
		&compiler->links, &compiler->request, file_of(compiler, 0), &bytes, &logs[0], &logs[1]);
	reply.values = (struct wire_u64s){&bytes, bytes ? 1 : 0};
	return answer(compiler, &reply);
}

static int handle_request(struct compiler *compiler)
{
	switch (compiler->request.type) {
	case WIRE_LOAD_MODULE:
		return handle_text(compiler);
	case WIRE_LINK_ADD:
	case WIRE_LINK_COMPLETE:
	case WIRE_LINK_DROP:
		return handle_link(compiler);
	default:
		return -EPROTO;
	}
}

/* 0: go on; PACKET_E_CLOSED: leave; else a failure. */
static int serve_one(struct compiler *compiler)
{
	int result = packet_receive(compiler->socket, &compiler->packet);

	if (result)
		return result;
	if (wire_decode(compiler->packet.bytes, compiler->packet.length, &compiler->request))
		result = -EPROTO;
	else
		result = handle_request(compiler);
	packet_close_fds(&compiler->packet);
	return result;
}

static int start(struct compiler *compiler, unsigned arch)
{
	struct wire_message message = {.type = WIRE_READY};
	CUresult code = compiler->ops->open_compiler(arch);

	if (!code)
		code = compiler->ops->thread_enter();
	if (!code && !set_limits())
		code = CUDA_ERROR_UNKNOWN;
	if (code) {
		message.type = WIRE_LOST;
		message.trouble.code = code;
		message.trouble.text = code == CUDA_ERROR_UNKNOWN ? "it cannot limit itself"
								  : "the driver's compiler is not there";
	}
	return message_send(compiler->socket, &message, NULL, 0) || code ? -ENODEV : 0;
}

int compiler_main(const struct backend_ops *ops, unsigned arch, int control_fd)
{
	struct compiler *compiler = calloc(1, sizeof(*compiler));
	int result;

	if (!compiler)
		return 1;
	prctl(PR_SET_NAME, "frmps-compiler");
	compiler->ops = ops;
	compiler->socket = control_fd;
	links_init(&compiler->links, ops);
	result = start(compiler, arch);
	while (!result)
		result = serve_one(compiler);
	/* Nothing here needs an orderly end, which might crash the driver. */
	_exit(result == PACKET_E_CLOSED ? 0 : 1);
}
