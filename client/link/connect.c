// The way to the service. Runs on the thread that calls cuInit or opens the session, under the
// start lock of process.c. A deadline bounds everything (FRMPS_CONNECT_TIMEOUT seconds, 10 by
// default), so a service that hangs becomes an error code.
//
// Another thread may fork at any moment, and its child must find all existing descriptors. So the
// library opens and records a descriptor, or closes and clears it, within a change, and a fork
// waits for the end of a change. But a fork may take long: its handlers also wait for the program's
// locks, which the caller of cuInit may hold. So a change waits for a fork only for a limited time;
// the child of such a fork may keep a descriptor.

#include "client/link/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/link/connect_inside.h"
#include "client/link/identity.h"
#include "client/link/mps.h"
#include "client/state/descriptor.h"
#include "client/state/log.h"
#include "client/state/session.h"
#include "protocol/command.h"
#include "protocol/place.h"

#define TIMEOUT_SECONDS 10
#define WINDOW_TRIES	3
#define FORK_SECONDS	1

static pthread_mutex_t descriptors = PTHREAD_MUTEX_INITIALIZER;
static sigset_t mask;		/* guarded by `descriptors`: of the thread that forks */
static struct packet *greeting; /* guarded by `descriptors`: a Welcome with its descriptors; NULL: none */
static bool held_up;		/* by a fork; only the thread that makes changes uses this */

/* A signal's handler may fork as well. */
static void block_signals(sigset_t *ret_before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, ret_before);
}

void connect_begin_change(struct connect_change *change)
{
	struct timespec until;

	block_signals(&change->mask);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += held_up ? 0 : FORK_SECONDS;
	change->locked = pthread_mutex_timedlock(&descriptors, &until) == 0;
	held_up = !change->locked;
}

void connect_end_change(const struct connect_change *change)
{
	if (change->locked)
		pthread_mutex_unlock(&descriptors);
	pthread_sigmask(SIG_SETMASK, &change->mask, NULL);
}

void connect_hold(void)
{
	sigset_t before;

	block_signals(&before);
	pthread_mutex_lock(&descriptors);
	mask = before;
}

void connect_release(void)
{
	sigset_t before = mask;

	pthread_mutex_unlock(&descriptors);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_both(struct connection *c)
{
	close_one(&c->control_fd);
	close_one(&c->doorbell_fd);
}

void connect_abandon(void)
{
	if (greeting)
		packet_close_fds(greeting);
	for (struct session *session = sessions; session < sessions + PLACE_DEVICES; ++session) {
		if (word_acquire(&session->life) != SESSION_UNUSED)
			close_both(&session->connection);
	}
}

/* @packet: where descriptors will arrive; NULL: received descriptors are not needed any more */
static void expect_greeting(struct packet *packet)
{
	struct connect_change change;

	connect_begin_change(&change);
	if (greeting)
		packet_close_fds(greeting);
	greeting = packet;
	connect_end_change(&change);
}

int64_t connect_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t connect_timeout_ms(void)
{
	const char *text = getenv("FRMPS_CONNECT_TIMEOUT");
	char *end;
	double seconds;

	if (!text || !*text)
		return TIMEOUT_SECONDS * 1000;
	seconds = strtod(text, &end);
	if (end > text && !*end && seconds > 0 && seconds <= 3600)
		return (int64_t)(seconds * 1000) + 1;
	client_log(CLIENT_LOG_ERROR,
		"FRMPS_CONNECT_TIMEOUT=%.64s is no number of seconds above 0 and up to 3600: it is ignored, "
		"%d s count",
		text, TIMEOUT_SECONDS);
	return TIMEOUT_SECONDS * 1000;
}

/* Return: 0 or -errno */
static int open_socket(struct connection *c)
{
	struct connect_change change;
	int r;

	connect_begin_change(&change);
	c->control_fd = descriptor_above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	r = c->control_fd < 0 ? -errno : 0;
	connect_end_change(&change);
	return r;
}

static void close_socket(struct connection *c)
{
	struct connect_change change;

	connect_begin_change(&change);
	close_one(&c->control_fd);
	connect_end_change(&change);
}

/* Connects to a path. Return: 0 or -errno. */
static int dial(struct connection *c, const char *path, int64_t deadline)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int64_t left = deadline - connect_now_ms();
	struct timeval patience;
	int fd, r;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	if (left <= 0)
		return -ETIMEDOUT;
	strcpy(address.sun_path, path);
	r = open_socket(c);
	if (r < 0)
		return r;
	fd = c->control_fd;
	/* Bounds connect() itself, which waits while the listener's queue is full. */
	patience = (struct timeval){.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000};
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	do {
		r = connect(fd, (struct sockaddr *)&address, sizeof(address));
	} while (r < 0 && errno == EINTR);
	if (r < 0) {
		r = -errno;
		close_socket(c);
		return r;
	}
	patience = (struct timeval){0};
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return 0;
}

bool connect_is_place(unsigned number)
{
	char path[PLACE_BYTES];

	return place_find_device(number, path) == 0 && access(path, F_OK) == 0;
}

/* Connects to the socket of a device, and logs the reason of a failure. Return: 0 or -errno. */
static int dial_service(struct connection *c, unsigned number, int64_t deadline)
{
	char path[PLACE_BYTES];
	int r;

	if (place_find_device(number, path) == PLACE_E_UNTRUSTED) {
		client_log(CLIENT_LOG_ERROR,
			"%s is no place of the service: others than root and this user can write in the "
			"folder that CUDA_MPS_PIPE_DIRECTORY names",
			path);
		return -EACCES;
	}
	r = dial(c, path, deadline);
	if (r < 0)
		client_log(CLIENT_LOG_ERROR,
			"cannot reach the service at %s: %s (is frmps-server running? FRMPS_SOCKET or "
			"CUDA_MPS_PIPE_DIRECTORY names another place)",
			path, strerror(-r));
	return r;
}

/* Clears the bits of all windows that [start, end) touches. */
static void occupy(uint64_t words[WINDOW_WORDS], uint64_t start, uint64_t end)
{
	uint64_t limit = WINDOW_BASE + WINDOWS * WINDOW_BYTES;

	if (end <= WINDOW_BASE || start >= limit || start >= end)
		return;
	uint64_t first = start < WINDOW_BASE ? 0 : (start - WINDOW_BASE) / WINDOW_BYTES;
	uint64_t last = ((end < limit ? end : limit) - 1 - WINDOW_BASE) / WINDOW_BYTES;
	for (uint64_t i = first; i <= last; ++i)
		words[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

void connect_free_windows(const char *maps, connect_own_fn *end_of_own, uint64_t ret_words[WINDOW_WORDS])
{
	memset(ret_words, 0xff, WINDOW_WORDS * sizeof(*ret_words));
	for (const char *line = maps; line && *line;) {
		char *end;
		uint64_t from = strtoull(line, &end, 16), to = *end == '-' ? strtoull(end + 1, NULL, 16) : 0;

		/* The kernel may join adjacent mappings to a single one. */
		for (uint64_t own; end_of_own && from < to && (own = end_of_own(from)); from = own)
			continue;
		occupy(ret_words, from, to);
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
}

char *connect_read_text(const char *path)
{
	size_t room = 1 << 16, used = 0;
	char *text = malloc(room), *larger;
	ssize_t n = -1;
	int fd, cancelable;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (text && fd >= 0 && (n = read(fd, text + used, room - used - 1)) > 0) {
		used += (size_t)n;
		if (room - used > 4096)
			continue;
		larger = realloc(text, room *= 2);
		if (!larger)
			break;
		text = larger;
	}
	if (fd >= 0)
		close(fd);
	pthread_setcancelstate(cancelable, NULL);
	if (n != 0) {
		free(text);
		return NULL;
	}
	text[used] = '\0';
	return text;
}

void connect_look(connect_own_fn *end_of_own, uint64_t ret_words[WINDOW_WORDS])
{
	char *maps = connect_read_text("/proc/self/maps");

	connect_free_windows(maps, end_of_own, ret_words);
	free(maps);
}

/* The program's wish for commands in flight after an executor was lost; 0: none, or an unknown
 * word. */
static uint32_t recovery_wish(void)
{
	const char *wish = getenv("FRMPS_RECOVERY");

	if (!wish || !*wish)
		return 0;
	if (strcmp(wish, "fail") == 0)
		return 1;
	if (strcmp(wish, "replay") == 0)
		return 2;
	client_log(CLIENT_LOG_ERROR, "FRMPS_RECOVERY=%.64s is neither fail nor replay: it is ignored", wish);
	return 0;
}

CUresult connect_greet(int fd, const struct connect_wish *wish, const uint64_t refused[WINDOW_WORDS])
{
	uint64_t windows[WINDOW_WORDS];
	struct wire_message hello = {.type = WIRE_HELLO, .id = 1};
	struct identity identity;

	connect_look(NULL, windows);
	for (unsigned i = 0; i < WINDOW_WORDS; ++i)
		windows[i] &= ~refused[i];
	identity_describe(&identity);
	hello.hello = (struct wire_hello){
		.major = FRMPS_PROTOCOL_MAJOR,
		.program = identity.name,
		.free_windows = {.at = windows, .count = WINDOW_WORDS},
		.window_base = WINDOW_BASE,
		.window_bytes = WINDOW_BYTES,
		.recovery = wish->recovery,
		.identity = identity.text,
		.memory_limit = wish->memory_limit,
		.sm_percent = wish->sm_percent,
		.priority = wish->priority,
		.sm_partition = wish->sm_partition,
		.describe = wish->want,
	};
	return message_send(fd, &hello, NULL, 0) == 0 ? CUDA_SUCCESS : CUDA_ERROR_MPS_CONNECTION_FAILED;
}

static CUresult refuse(const struct wire_refuse *answer)
{
	client_log(CLIENT_LOG_ERROR, "the service refuses this program: %s", answer->text);
	return answer->code > 0 ? (CUresult)answer->code : CUDA_ERROR_MPS_CONNECTION_FAILED;
}

static CUresult report_timeout(void)
{
	client_log(CLIENT_LOG_ERROR, "the service does not answer in time (FRMPS_CONNECT_TIMEOUT)");
	return CUDA_ERROR_MPS_SERVER_NOT_READY;
}

/* Takes the answer to Hello, which is there: this does not wait. */
CUresult connect_take(
	int fd, const struct connect_wish *wish, struct control_answer *answer, bool *ret_hung_up)
{
	struct connect_change change;
	int r;

	connect_begin_change(&change);
	r = packet_receive(fd, &answer->packet);
	connect_end_change(&change);
	if (r == PACKET_E_CLOSED) {
		*ret_hung_up = true;
		return CUDA_ERROR_MPS_CONNECTION_FAILED;
	}
	if (r == PACKET_E_NO_FDS) {
		client_log(CLIENT_LOG_ERROR, "too many open files in this process for a session (ulimit -n)");
		return CUDA_ERROR_MPS_CONNECTION_FAILED;
	}
	if (r == 0)
		r = wire_decode(answer->packet.bytes, answer->packet.length, &answer->message);
	if (r == 0 && ((answer->message.type == WIRE_WELCOME && wish->want != CONNECT_DESCRIPTION) ||
			      (answer->message.type == WIRE_DESCRIPTION && wish->want != CONNECT_SESSION)))
		return CUDA_SUCCESS;
	if (r == 0 && answer->message.type == WIRE_REFUSE)
		return refuse(&answer->message.refuse);
	client_log(CLIENT_LOG_ERROR, "the service has closed the connection during the handshake");
	return CUDA_ERROR_MPS_CONNECTION_FAILED;
}

/* Waits for the answer to Hello. */
static CUresult hear(int fd, const struct connect_wish *wish, int64_t deadline, struct control_answer *answer,
	bool *ret_hung_up)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int64_t left;
	int r;

	do {
		left = deadline - connect_now_ms();
		r = left > 0 ? poll(&p, 1, (int)left) : 0;
	} while (r < 0 && errno == EINTR);
	return r > 0 ? connect_take(fd, wish, answer, ret_hung_up) : report_timeout();
}

/* Checks a Description. */
CUresult connect_judge_description(const struct wire_description *d)
{
	if (d->device.uuid.count && d->count > 0 && d->count <= PLACE_DEVICES && d->number < d->count)
		return CUDA_SUCCESS;
	client_log(CLIENT_LOG_ERROR, "the service's description of its devices is invalid");
	return CUDA_ERROR_MPS_CONNECTION_FAILED;
}

/* Checks that this library can work with a Welcome. */
static CUresult judge(const struct wire_welcome *w, const struct packet *packet)
{
	bool ok = w->window_base >= WINDOW_BASE && (w->window_base - WINDOW_BASE) % WINDOW_BYTES == 0;

	ok = ok && (w->window_base - WINDOW_BASE) / WINDOW_BYTES < WINDOWS;
	ok = ok && w->device_bytes > 0 && w->device_bytes < WINDOW_BYTES;
	ok = ok && w->host_bytes > 0 && w->host_bytes <= WINDOW_BYTES - w->device_bytes;
	ok = ok && w->device_bytes % (UINT64_C(2) << 20) == 0 && w->device.uuid.count > 0 &&
	     packet->fd_count == 3;
	if (w->major != FRMPS_PROTOCOL_MAJOR) {
		client_log(CLIENT_LOG_ERROR,
			"the service speaks protocol %u, this library %u: they are of different versions",
			w->major, FRMPS_PROTOCOL_MAJOR);
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	}
	if (!ok)
		client_log(CLIENT_LOG_ERROR, "the service's Welcome is invalid");
	return ok ? CUDA_SUCCESS : CUDA_ERROR_MPS_CONNECTION_FAILED;
}

int connect_reserve(uint64_t base, uint64_t bytes)
{
	void *at = mmap((void *)(uintptr_t)base, bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (at == MAP_FAILED)
		return -errno;
	if (at != (void *)(uintptr_t)base) { /* a kernel that does not know the flag */
		munmap(at, bytes);
		return -EEXIST;
	}
	madvise(at, bytes, MADV_DONTFORK);
	return 0;
}

static CUresult map_regions(struct connection *c, const struct wire_welcome *w, struct packet *packet)
{
	int r = shm_view_map(&c->view, &w->shape, packet->fds[0], packet->fds[1], SHM_SIDE_CLIENT);
	struct connect_change change;

	if (r != 0) {
		client_log(
			CLIENT_LOG_ERROR, "cannot map the session: %s", r < 0 ? strerror(-r) : "wrong shape");
		return r == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_MPS_CONNECTION_FAILED;
	}
	/* Each region begins with its header; a forked child must not write to its parent's
	 * ring. */
	madvise(c->view.client, w->shape.client_bytes, MADV_DONTFORK);
	madvise(c->view.server, w->shape.journal_offset, MADV_DONTFORK);
	connect_begin_change(&change);
	c->doorbell_fd = descriptor_above_standard(packet_take_fd(packet, 2));
	connect_end_change(&change);
	return c->doorbell_fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult settle(struct connection *c, struct control_answer *answer)
{
	const struct wire_welcome *w = &answer->message.welcome;
	CUresult r = map_regions(c, w, &answer->packet);

	if (r != CUDA_SUCCESS)
		return r;
	c->session = w->session;
	c->window_base = w->window_base;
	c->device_bytes = w->device_bytes;
	c->host_bytes = w->host_bytes;
	c->spin_us = w->spin_us;
	c->driver_version = w->driver_version;
	return CUDA_SUCCESS;
}

/*
 * Makes an attempt. If the window turns out to be taken, adds it to `refused` and sets *ret_again.
 * A daemon that closes the connection without an answer has died, and the next daemon does not know
 * this process: sets *ret_hung_up.
 */
static CUresult attempt(int64_t deadline, const struct connect_wish *wish, uint64_t refused[WINDOW_WORDS],
	struct control_answer *answer, struct connection *c, bool *ret_again, bool *ret_hung_up)
{
	const struct wire_welcome *w = &answer->message.welcome;
	CUresult r;
	int e = dial_service(c, wish->number, deadline);

	if (e < 0)
		return CUDA_ERROR_MPS_CONNECTION_FAILED;
	r = connect_greet(c->control_fd, wish, refused);
	/* The daemon closed the connection even before the Hello. */
	*ret_hung_up = r != CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		r = hear(c->control_fd, wish, deadline, answer, ret_hung_up);
	if (r == CUDA_SUCCESS && answer->message.type == WIRE_DESCRIPTION) {
		close_socket(c);
		return connect_judge_description(&answer->message.description);
	}
	if (r == CUDA_SUCCESS)
		r = judge(w, &answer->packet);
	if (r != CUDA_SUCCESS)
		return r;
	e = connect_reserve(w->window_base, WINDOW_BYTES);
	if (e < 0) {
		uint64_t i = (w->window_base - WINDOW_BASE) / WINDOW_BYTES;

		client_log(CLIENT_LOG_INFO, "cannot reserve the window at %#llx: %s",
			(unsigned long long)w->window_base, strerror(-e));
		refused[i / 64] |= UINT64_C(1) << (i % 64);
		*ret_again = true;
		return e == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_MPS_CONNECTION_FAILED;
	}
	r = settle(c, answer);
	if (r != CUDA_SUCCESS)
		munmap((void *)(uintptr_t)w->window_base, WINDOW_BYTES);
	return r;
}

/* Attempts until success, or until another attempt is pointless. */
static CUresult connect_for(struct connect_wish wish, struct control_answer *welcome)
{
	int64_t deadline = connect_now_ms() + connect_timeout_ms();
	uint64_t refused[WINDOW_WORDS] = {0};
	CUresult r = mps_sm_percent(&wish.sm_percent);
	bool again = true, hung_up = false;

	if (r == CUDA_SUCCESS)
		r = mps_priority(&wish.priority);
	if (r != CUDA_SUCCESS)
		return r;
	for (int i = 0, deaths = 0; (again && i < WINDOW_TRIES) || (hung_up && deaths < CONNECT_DEATHS);) {
		again = hung_up = false;
		expect_greeting(&welcome->packet);
		r = attempt(deadline, &wish, refused, welcome, &session_self()->connection, &again, &hung_up);
		i += again;
		deaths += hung_up;
		if (r == CUDA_SUCCESS)
			return r;
		connect_close();
	}
	if (hung_up)
		client_log(CLIENT_LOG_ERROR, "the service has closed the connection during the handshake");
	if (again)
		client_log(CLIENT_LOG_ERROR,
			"no %llu GiB of free addresses in this process: is there a limit (ulimit -v), or a "
			"sanitizer?",
			(unsigned long long)(WINDOW_BYTES >> 30));
	return r;
}

CUresult connect_open(
	unsigned number, uint64_t memory_limit, enum connect_want want, struct control_answer *ret_answer)
{
	const struct connect_wish wish = {.number = number,
		.want = want,
		.memory_limit = memory_limit,
		.recovery = want == CONNECT_DESCRIPTION ? 0 : recovery_wish(),
		.sm_partition = mps_sm_partition()};
	CUresult r = connect_for(wish, ret_answer);

	expect_greeting(NULL);
	return r;
}

void connect_close(void)
{
	struct connection *c = &session_self()->connection;
	struct connect_change change;

	if (c->window_base)
		munmap((void *)(uintptr_t)c->window_base, WINDOW_BYTES);
	shm_view_unmap(&c->view);
	connect_begin_change(&change);
	if (greeting)
		packet_close_fds(greeting);
	close_both(c);
	*c = CONNECTION_NULL;
	connect_end_change(&change);
}
