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
#include <sys/queue.h>
#include <sys/resource.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/environment.h"
#include "server/file.h"

#define LOG_BYTES  16384u
#define LINKS_MOST 32u
/* Memory beyond the driver's use before the first text, MiB. */
#define MEMORY_MIB_DEFAULT 8192u
/* Largest file: code, images, and the driver's own files. */
#define FILE_MOST (UINT64_C(1) << 30)
/* Processor time, of all threads and texts together. A text beyond the limit is compiled once more
 * in the next process. */
#define PROCESSOR_SECONDS 3600u

struct link {
	TAILQ_ENTRY(link) link;
	uint32_t number;    /* the program's */
	uint32_t positions; /* inputs that were taken */
	struct backend_link *backend;
};

struct compiler {
	const struct backend_ops *ops;
	int socket;
	TAILQ_HEAD(, link) links; /* least recently used first */
	uint32_t link_count;
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

/*
 * The program's links, each with its inputs so far. A cache: room for LINKS_MOST links, and for as
 * much memory as this process gets; the least recently used link is dropped. The program has its
 * inputs, and begins again at an error about a missing link (CUDA_ERROR_ILLEGAL_STATE).
 */

static void drop_link(struct compiler *compiler, struct link *link)
{
	TAILQ_REMOVE(&compiler->links, link, link);
	compiler->link_count--;
	compiler->ops->link_destroy(link->backend);
	free(link);
}

static struct link *find_link(struct compiler *compiler, uint32_t number)
{
	struct link *link;

	TAILQ_FOREACH (link, &compiler->links, link)
		if (link->number == number)
			break;
	return link;
}

static CUresult begin_link(struct compiler *compiler, const struct wire_link *wish, struct link **ret_link)
{
	struct link *link = calloc(1, sizeof(*link));
	CUresult code =
		link ? compiler->ops->link_create(&wish->options, &link->backend) : CUDA_ERROR_OUT_OF_MEMORY;

	if (code) {
		free(link);
		return code;
	}
	link->number = wish->link;
	TAILQ_INSERT_TAIL(&compiler->links, link, link);
	if (++compiler->link_count > LINKS_MOST)
		drop_link(compiler, TAILQ_FIRST(&compiler->links));
	*ret_link = link;
	return CUDA_SUCCESS;
}

/* Finds the link by the program's number; position 0 makes a new link. */
static CUresult take_link(struct compiler *compiler, const struct wire_link *wish, struct link **ret_link)
{
	struct link *link = find_link(compiler, wish->link);

	if (!wish->position) {
		if (link)
			drop_link(compiler, link);
		return begin_link(compiler, wish, ret_link);
	}
	if (!link || link->positions != wish->position)
		return CUDA_ERROR_ILLEGAL_STATE;
	TAILQ_REMOVE(&compiler->links, link, link);
	TAILQ_INSERT_TAIL(&compiler->links, link, link);
	*ret_link = link;
	return CUDA_SUCCESS;
}

static CUresult add_input(struct compiler *compiler, struct link *link)
{
	const struct wire_link *wish = &compiler->request.link;
	struct backend_link_input input = {
		.type = wish->type, .bytes = wish->bytes, .name = wish->name, .options = &wish->own};
	uint8_t *bytes;
	CUresult code = file_read(file_of(compiler, 0), wish->bytes, &bytes);

	if (code)
		return code;
	input.at = bytes;
	code = compiler->ops->link_add(link->backend, &input);
	free(bytes);
	/* A refused input counts for nothing, as with the driver. */
	link->positions += !code;
	return code;
}

static CUresult complete(struct compiler *compiler, struct link *link, uint64_t *ret_bytes)
{
	const void *image = NULL;
	size_t bytes = 0;
	CUresult code = compiler->ops->link_complete(link->backend, &image, &bytes);

	if (!code)
		code = bytes > FILE_MOST ? CUDA_ERROR_OUT_OF_MEMORY
					 : file_write(file_of(compiler, 0), image, bytes, 0);
	if (!code)
		*ret_bytes = bytes;
	return code;
}

/* Drops older links. Return: true if a link was dropped */
static bool make_room(struct compiler *compiler, const struct link *link)
{
	struct link *oldest = TAILQ_FIRST(&compiler->links);

	if (oldest == link)
		return false;
	drop_link(compiler, oldest);
	return true;
}

/* @ret_bytes: of the image; left alone where there is none. @logs: of errors and of remarks; left
 * alone without a link */
static CUresult do_link(struct compiler *compiler, uint64_t *ret_bytes, const char *logs[2])
{
	const struct wire_link *wish = &compiler->request.link;
	struct link *link = NULL;
	CUresult code;

	if (compiler->request.type == WIRE_LINK_DROP) {
		link = find_link(compiler, wish->link);
		if (link)
			drop_link(compiler, link);
		return CUDA_SUCCESS;
	}
	code = take_link(compiler, wish, &link);
	if (code)
		return code;
	do
		code = compiler->request.type == WIRE_LINK_ADD ? add_input(compiler, link)
							       : complete(compiler, link, ret_bytes);
	while (code == CUDA_ERROR_OUT_OF_MEMORY && make_room(compiler, link));
	compiler->ops->link_logs(link->backend, &logs[0], &logs[1]);
	return code;
}

/* Values: of LinkComplete, bytes of the image. Names: log of errors, log of remarks. */
static int handle_link(struct compiler *compiler)
{
	const char *logs[2] = {"", ""};
	uint64_t bytes = 0;
	struct wire_reply reply = {.names = {logs, 2}};

	reply.code = do_link(compiler, &bytes, logs);
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
	int result = message_receive(compiler->socket, &compiler->packet, &compiler->request);

	if (result)
		return result;
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
	TAILQ_INIT(&compiler->links);
	result = start(compiler, arch);
	while (!result)
		result = serve_one(compiler);
	/* Nothing here needs an orderly end, which might crash the driver. */
	_exit(result == PACKET_E_CLOSED ? 0 : 1);
}
