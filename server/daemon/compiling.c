// See compiling.h.

#include "server/daemon/compiling.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/environment.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/resource/check.h"
#include "server/session/daemon.h"
#include "server/session/handout.h"
#include "server/session/owner.h"
#include "server/daemon/requests.h"
#include "server/session/session.h"
#include "server/session/userlog.h"
#include "server/worker/compiler.h"

/* Compilers of a user. */
#define COMPILERS_MOST 32u
/* How long a compilation may take. */
#define SECONDS_DEFAULT 600u
#define IDLE_MS		60000u
/* Compilations of a user at a time, unless FRMPS_COMPILATIONS sets the number: at least two, so
 * that a long compilation does not delay the next. */
#define LEAST 2u
#define MOST  8u

static void advance(struct daemon *daemon);

/*
 * Compilers
 */

static struct compiler *find(const struct daemon *daemon, uid_t uid, uint64_t session)
{
	struct compiler *compiler;

	TAILQ_FOREACH (compiler, &daemon->crew.compilers, link)
		if (!compiler->ended && compiler->uid == uid && compiler->session == session)
			break;
	return compiler;
}

static struct compiler *find_spare(const struct daemon *daemon, uid_t uid)
{
	return find(daemon, uid, 0);
}

static bool is_idle(const struct compiler *compiler)
{
	return compiler->session && !compiler->ended && !compiler->reply;
}

/* At the bound, ends the compiler that has been idle for longest. Return: false if there is no
 * room */
static bool make_room(const struct daemon *daemon, uid_t owner)
{
	struct compiler *compiler, *oldest = NULL;
	unsigned count = 0;

	TAILQ_FOREACH (compiler, &daemon->crew.compilers, link) {
		if (owner_of(compiler->uid) != owner || compiler->ended || !compiler->session)
			continue;
		count++;
		if (is_idle(compiler) && (!oldest || compiler->used_us < oldest->used_us))
			oldest = compiler;
	}
	if (count < COMPILERS_MOST)
		return true;
	if (oldest)
		compiler_end(oldest);
	return oldest;
}

/* If a compiler cannot be started, the next request that needs a compiler tries again. */
static struct compiler *start_one(struct daemon *daemon, uid_t uid)
{
	struct compiler *compiler;
	int r = compiler_start(&daemon->crew, uid, daemon_capability(daemon), &compiler);

	if (r < 0)
		userlog_event(daemon, uid, USERLOG_code, LOG_LEVEL_ERROR, "no compiler can be started: %s",
			strerror(-r));
	return r < 0 ? NULL : compiler;
}

static void prepare_spare(struct daemon *daemon, uid_t uid)
{
	if (daemon->phase != DAEMON_LEAVES && !find_spare(daemon, uid))
		start_one(daemon, uid);
}

/* NULL: there can be none. */
static struct compiler *take_compiler(struct session *session)
{
	struct daemon *daemon = session->daemon;
	struct compiler *compiler = find(daemon, session->uid, session->number);

	if (compiler)
		return compiler;
	compiler = find_spare(daemon, session->uid);
	if (!compiler)
		compiler = start_one(daemon, session->uid);
	if (!compiler)
		return NULL;
	compiler->session = session->number;
	prepare_spare(daemon, session->uid);
	return compiler;
}

static void on_idle(void *context)
{
	struct daemon *daemon = context;
	uint64_t now_us = timer_now_us();
	struct compiler *compiler;
	bool again = false;

	TAILQ_FOREACH (compiler, &daemon->crew.compilers, link) {
		if (is_idle(compiler) && now_us - compiler->used_us >= IDLE_MS * 1000ull)
			compiler_end(compiler);
		again |= compiler->session && !compiler->ended;
	}
	if (again)
		timer_start(daemon->compiling.idle, IDLE_MS);
}

/*
 * Answers
 */

static void refuse(struct request *request, CUresult code, const char *text)
{
	bool is_module = request->message.type == WIRE_LOAD_MODULE;
	const char *names[2] = {text, ""};
	const struct wire_reply reply = {
		.code = (int32_t)code, .text = is_module ? text : "", .names = {names, is_module ? 0 : 2}};

	request_finish(request, &reply);
}

static CUresult make_target(struct request *request)
{
	int fd = memfd_create("frmps-code", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	/* A process that may write to the file cannot open it once more. */
	if (fd >= 0)
		fchmod(fd, 0600);
	request->target = shared_fd_new(fd);
	return request->target && handout_add(&request->session->daemon->handouts, request->session->owner,
					  request->target) == 0
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Seals the code: the user's process has written the code, and nobody changes it any more. A
 * process that has the file open for writing could keep the daemon waiting for its inode. Return:
 * bytes of the code; 0: unusable */
static uint64_t seal(const struct request *request)
{
	struct stat status;
	int fd = request->target->fd;

	if (handout_is_open(request->target) ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0 ||
		fstat(fd, &status) < 0 || status.st_size <= 0 || (uint64_t)status.st_size > CHECK_IMAGE_MAX)
		return 0;
	return (uint64_t)status.st_size;
}

static void take_code(struct request *request, const struct wire_reply *reply)
{
	struct shared_fd *code = request->target;
	uint64_t bytes = reply->code ? 0 : seal(request);

	request->target = NULL;
	if (request->message.type == WIRE_LOAD_MODULE && bytes > request->message.load_module.room)
		bytes = 0;
	if (bytes && shared_fd_deposit(code, request->session->daemon->store) == 0) {
		request_compiled(request, &(struct compiled){code, bytes, strdup(reply->text)});
		return;
	}
	shared_fd_unref(code);
	refuse(request, reply->code ? (CUresult)reply->code : CUDA_ERROR_OUT_OF_MEMORY, reply->text);
}

static void pass_on(struct request *request, const struct wire_reply *reply)
{
	const char *names[2] = {"", ""};
	struct wire_reply answer = {.code = reply->code,
		.values = {reply->values.at, reply->values.count ? 1 : 0},
		.names = {names, 2}};

	for (uint32_t i = 0; i < 2 && i < reply->names.count; i++)
		names[i] = reply->names.at[i];
	request_finish(request, &answer);
}

/* The name that a program repeats after a compiler has crashed at this compilation. */
static struct session_compilation name_of(const struct request *request)
{
	const struct wire_message *message = &request->message;

	if (message->type == WIRE_LOAD_MODULE)
		return (struct session_compilation){WIRE_LOAD_MODULE, message->load_module.module, 0};
	return (struct session_compilation){message->type, message->link.link, message->link.position};
}

static bool has_crashed(const struct request *request)
{
	struct session_compilation now = name_of(request);
	const struct session_compilation *before = &request->session->crashed;

	return before->type == now.type && before->number == now.number && before->position == now.position;
}

/* The program begins a link again, and then comes to the same place. */
static void take_crash(struct request *request, const char *why)
{
	struct session *session = request->session;
	bool again = !has_crashed(request);
	char text[400];

	session->daemon->counters.compilers_lost++;
	userlog_event(session->daemon, session->uid, USERLOG_code, LOG_LEVEL_WARNING,
		"session %llu (process %d, %s): a compiler is lost at its text: %s%s",
		(unsigned long long)session->number, (int)session->pid, session->program, why,
		again ? "; the text is compiled once more" : ", for the second time");
	if (again) {
		session->crashed = name_of(request);
		compiling_begin(request);
		return;
	}
	session->crashed = (struct session_compilation){0};
	snprintf(text, sizeof(text), "The compiler crashed at this text, in a fresh process too: %s.\n", why);
	refuse(request, CUDA_ERROR_INVALID_PTX, text);
}

static void on_answer(void *context, const struct wire_reply *reply, const char *why)
{
	struct request *request = context;
	struct daemon *daemon = request->session->daemon;

	request->place = REQUEST_HERE;
	if (reply && reply->code != CUDA_ERROR_ILLEGAL_STATE && has_crashed(request))
		request->session->crashed = (struct session_compilation){0};
	if (!timer_running(daemon->compiling.idle))
		timer_start(daemon->compiling.idle, IDLE_MS);
	if (!reply)
		take_crash(request, why);
	else if (request->message.type == WIRE_LOAD_MODULE)
		take_code(request, reply);
	else
		pass_on(request, reply);
	advance(daemon);
}

/*
 * Requests
 */

/* The user owns the compiler's process: the process gets open files of its own, so that the kernel
 * can tell when they are closed (handout.h). Return: false without descriptors */
static bool send(struct request *request, struct compiler *compiler)
{
	struct wire_message message = request->message;
	struct shared_fd *files[2] = {request->fd, request->target}, *fds[2] = {NULL};
	unsigned wanted = 0, count = 0;

	for (unsigned i = 0; i < 2; i++) {
		if (!files[i])
			continue;
		wanted++;
		fds[count] = shared_fd_new(handout_open(files[i]));
		count += fds[count] != NULL;
	}
	if (count == wanted) {
		request->place = REQUEST_AT_COMPILER;
		request->compiler = compiler;
		compiler_request(compiler, &message, fds, count, on_answer, request);
	}
	for (unsigned i = 0; i < count; i++)
		shared_fd_unref(fds[i]);
	return count == wanted;
}

static bool may_begin(const struct daemon *daemon, const struct session *session)
{
	const struct compiler *compiler;
	unsigned busy = 0;

	TAILQ_FOREACH (compiler, &daemon->crew.compilers, link)
		busy += owner_of(compiler->uid) == session->owner && compiler->reply;
	return busy < daemon->compiling.at_a_time &&
	       (find(daemon, session->uid, session->number) || make_room(daemon, session->owner));
}

static void begin(struct request *request)
{
	struct compiler *compiler = NULL;
	CUresult code = CUDA_SUCCESS;

	if (request->message.type == WIRE_LOAD_MODULE)
		code = make_target(request);
	if (!code)
		compiler = take_compiler(request->session);
	if (!compiler)
		refuse(request, CUDA_ERROR_OUT_OF_MEMORY, "no compiler can be started");
	else if (!send(request, compiler))
		refuse(request, CUDA_ERROR_OUT_OF_MEMORY, "no descriptors are left for a compiler");
}

static struct request *next(const struct daemon *daemon)
{
	struct request *request;

	TAILQ_FOREACH (request, &daemon->compiling.waiting, compile_link)
		if (may_begin(daemon, request->session))
			break;
	return request;
}

/* A refusal may let the next request begin. */
static void advance(struct daemon *daemon)
{
	struct request *request;

	while (daemon->phase != DAEMON_LEAVES && (request = next(daemon))) {
		TAILQ_REMOVE(&daemon->compiling.waiting, request, compile_link);
		request->place = REQUEST_HERE;
		begin(request);
	}
}

void compiling_begin(struct request *request)
{
	struct session *session = request->session;
	struct daemon *daemon = session->daemon;

	/* Nothing to forget. */
	if (request->message.type == WIRE_LINK_DROP && !find(daemon, session->uid, session->number)) {
		request_finish(request, &(struct wire_reply){0});
		return;
	}
	request->target = shared_fd_unref(request->target);
	request->place = REQUEST_QUEUES;
	TAILQ_INSERT_TAIL(&daemon->compiling.waiting, request, compile_link);
	advance(daemon);
}

void compiling_forget(struct request *request)
{
	if (request->place == REQUEST_QUEUES)
		TAILQ_REMOVE(&request->session->daemon->compiling.waiting, request, compile_link);
	if (request->place == REQUEST_AT_COMPILER)
		compiler_end(request->compiler);
	request->target = shared_fd_unref(request->target);
}

/*
 * Sessions
 */

void compiling_await(struct session *session)
{
	prepare_spare(session->daemon, session->uid);
}

static bool has_sessions(const struct daemon *daemon, uid_t uid)
{
	const struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (session->uid == uid && session->state != SESSION_CLOSING)
			return true;
	return false;
}

void compiling_leave(struct session *session)
{
	struct daemon *daemon = session->daemon;
	struct compiler *own = find(daemon, session->uid, session->number);
	struct compiler *spare = find_spare(daemon, session->uid);

	if (own)
		compiler_end(own);
	if (spare && !has_sessions(daemon, session->uid))
		compiler_end(spare);
	/* Other requests may have waited for a place. */
	advance(daemon);
}

static unsigned default_at_a_time(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN) / 2;

	return processors < (long)LEAST ? LEAST : processors > (long)MOST ? MOST : (unsigned)processors;
}

void compiling_init(struct daemon *daemon)
{
	TAILQ_INIT(&daemon->crew.compilers);
	daemon->crew.compile_ms =
		environment_number("FRMPS_COMPILE_SECONDS", SECONDS_DEFAULT, 1, UINT32_MAX) * 1000;
	TAILQ_INIT(&daemon->compiling.waiting);
	daemon->compiling.at_a_time =
		(unsigned)environment_number("FRMPS_COMPILATIONS", default_at_a_time(), 1, COMPILERS_MOST);
	daemon->compiling.idle = timer_new(daemon->loop, on_idle, daemon);
}

void compiling_deinit(struct daemon *daemon)
{
	compiler_end_all(&daemon->crew);
	daemon->compiling.idle = timer_free(daemon->compiling.idle);
}
