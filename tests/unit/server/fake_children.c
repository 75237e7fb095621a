// See fake_children.h.

#include "tests/unit/server/fake_children.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "protocol/command.h"
#include "server/adopt/adopt.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/daemon/children.h"
#include "server/service.h"
#include "server/session/chunk.h"
#include "server/session/domain.h"
#include "server/session/holdings.h"
#include "server/session/owner.h"
#include "server/door/visitor.h"
#include "server/session/window.h"
#include "server/worker/supervise.h"

/* Descriptors that a daemon may have with the holder. */
#define FAKE_KEYS_MAX 256
/* Pids of children: of no process that there is. */
#define FIRST_PID 1000000

#define NS_PER_MS 1000000u
#define NS_PER_S  1000000000u

/* Both of the machine's clock and of ours when they were last read. */
static struct {
	pthread_mutex_t lock;
	uint64_t machine_ns, ns;
	bool stands_still; /* ours goes on by pass() alone */
} times = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The spawner has no argument of its own. */
static struct fake *current;
bool fake_with_records;
void (*fake_reads_clock)(void);
const char *fake_partition = "";
unsigned fake_describe;

static void pass(uint64_t ns)
{
	pthread_mutex_lock(&times.lock);
	times.ns += ns;
	pthread_mutex_unlock(&times.lock);
}

void fake_stop_clock(bool stops)
{
	pthread_mutex_lock(&times.lock);
	times.stands_still = stops;
	pthread_mutex_unlock(&times.lock);
}

/* The clock of this process, in the place of the C library's: the daemon, libuv and the tests read
 * it all the time. From one reading to the next no more than a millisecond passes, so that a
 * machine which stands still takes nobody's patience. */
int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ret_now);
	uint64_t machine_ns = (uint64_t)ret_now->tv_sec * NS_PER_S + (uint64_t)ret_now->tv_nsec, since;

	if (r || (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE))
		return r;
	if (fake_reads_clock)
		fake_reads_clock();
	pthread_mutex_lock(&times.lock);
	since = machine_ns > times.machine_ns ? machine_ns - times.machine_ns : 0;
	times.machine_ns += since;
	if (times.stands_still && times.ns)
		since = 0;
	times.ns += !times.ns ? machine_ns : since < NS_PER_MS ? since : NS_PER_MS;
	*ret_now = (struct timespec){(time_t)(times.ns / NS_PER_S), (long)(times.ns % NS_PER_S)};
	pthread_mutex_unlock(&times.lock);
	return 0;
}

static int start(struct worker *worker, const struct heritage_fds *fds)
{
	struct fake_child *child = &current->children[current->child_count];

	if (current->refuse_start) {
		heritage_close(fds);
		return -EAGAIN;
	}
	ck_assert_uint_lt(current->child_count, FAKE_CHILDREN_MAX);
	*child = (struct fake_child){.worker = worker, .role = worker->role, .socket = fds->control};
	if (fds->output >= 0)
		close(fds->output);
	if (fds->words >= 0) {
		child->words =
			mmap(NULL, sizeof(*child->words), PROT_READ | PROT_WRITE, MAP_SHARED, fds->words, 0);
		ck_assert_ptr_ne(child->words, MAP_FAILED);
		/* The daemon reads it: an executor cannot take it away. */
		ck_assert_int_lt(ftruncate(fds->words, 0), 0);
		close(fds->words);
	}
	worker->pid = FIRST_PID + (int)current->child_count++;
	worker->process = child;
	fcntl(fds->control, F_SETFL, O_NONBLOCK);
	return 0;
}

/* That of an adopted one has another process. */
static struct fake_child *child_of(const struct worker *worker)
{
	return &current->children[worker->pid - FIRST_PID];
}

static void kill_fake(struct worker *worker)
{
	struct fake_child *child = child_of(worker);

	if (!worker->process)
		return;
	/* One that an earlier life started may be killed anew: to be sure. */
	ck_assert(!child->killed || worker->process != child);
	child->killed = true;
}

static bool look(const struct worker *worker, struct vitals *ret_vitals)
{
	const struct fake_child *child = child_of(worker);

	*ret_vitals = child->vitals;
	return child->seen;
}

static int start_compiler(const struct compiler *compiler, int control_fd, int *ret_pidfd)
{
	struct fake_compiler *place = current->compilers;

	while (place->compiler)
		ck_assert(++place < current->compilers + FAKE_COMPILERS_MAX);
	*place = (struct fake_compiler){
		.compiler = compiler, .socket = control_fd, .end = eventfd(0, EFD_CLOEXEC)};
	*ret_pidfd = fcntl(place->end, F_DUPFD_CLOEXEC, 0);
	fcntl(control_fd, F_SETFL, O_NONBLOCK);
	return FIRST_PID - 1;
}

struct fake_compiler *fake_compiler_of(struct fake *fake, uint64_t session)
{
	struct fake_compiler *one = fake->compilers;

	for (; one < fake->compilers + FAKE_COMPILERS_MAX; one++)
		if (one->compiler && !one->compiler->ended && one->compiler->session == session)
			return one;
	return NULL;
}

unsigned fake_count_compilers(const struct fake *fake)
{
	unsigned count = 0;

	for (unsigned i = 0; i < FAKE_COMPILERS_MAX; i++)
		count += fake->compilers[i].compiler && !fake->compilers[i].compiler->ended;
	return count;
}

static void end_compiler(struct fake_compiler *compiler)
{
	ck_assert_int_eq(eventfd_write(compiler->end, 1), 0);
	close(compiler->end);
	close(compiler->socket);
	compiler->compiler = NULL;
}

void fake_crash(struct fake *fake, struct fake_compiler *compiler)
{
	end_compiler(compiler);
	fake_turn(fake);
}

/* The kernel ends those that were killed; with the daemon, all. */
static void end_compilers(struct fake *fake, bool all)
{
	for (unsigned i = 0; i < FAKE_COMPILERS_MAX; i++)
		if (fake->compilers[i].compiler && (all || fake->compilers[i].compiler->ended))
			end_compiler(&fake->compilers[i]);
}

static const struct spawner spawner = {
	.start = start, .kill = kill_fake, .start_compiler = start_compiler, .look = look};

struct domain *fake_domain(const struct fake *fake)
{
	return TAILQ_FIRST(&fake->daemon.domains);
}

struct session *fake_session(const struct fake *fake, unsigned index)
{
	struct session *session = TAILQ_FIRST(&fake_domain(fake)->sessions);

	while (index--)
		session = TAILQ_NEXT(session, domain_link);
	return session;
}

void fake_prepare(void)
{
	uv_loop_t loop;

	uv_loop_init(&loop);
	uv_loop_close(&loop);
}

/* Return: whether there was something. */
static bool hear_daemon(struct fake *fake)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct holder_message said;
	struct iovec part = {.iov_base = &said, .iov_len = sizeof(said)};
	struct msghdr message = {.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	int *fds = fake->legacy.fds;

	if (recvmsg(fake->holder, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(said))
		return false;
	ck_assert_uint_eq(said.say, HOLDER_DEPOSIT);
	ck_assert_uint_lt(said.key, FAKE_KEYS_MAX);
	if (fds[said.key] >= 0)
		close(fds[said.key]);
	memcpy(&fds[said.key], CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return true;
}

static void close_forgotten(struct fake *fake)
{
	for (uint32_t key = 0; key < FAKE_KEYS_MAX; key++) {
		if (fake->legacy.fds[key] < 0 || word_acquire(&fake->legacy.board->marks[key]) % 2)
			continue;
		close(fake->legacy.fds[key]);
		fake->legacy.fds[key] = -1;
	}
}

/* As holder.c does. */
static void look_at_board(struct fake *fake)
{
	while (hear_daemon(fake))
		;
	close_forgotten(fake);
	for (; fake->synced != word_acquire(&fake->legacy.board->syncs); fake->synced++)
		reclaim_synced(&fake->daemon, 1);
}

/* Looks at all there is: whether the entry's session shares the entry's device memory. */
static bool is_shared(const struct holding *entry)
{
	const struct chunk *chunk = entry->chunk;
	const struct holding *owner;
	bool is_owner = false, others = false;

	if (!chunk || chunk->kind == CHUNK_BORROWED)
		return chunk;
	TAILQ_FOREACH (owner, &chunk->owners, owners_link) {
		is_owner |= owner == entry;
		others |= owner->holdings != entry->holdings;
	}
	return is_owner && (others || chunk->offer || chunk->lent != CHUNK_NOT_LENT);
}

/* The counts are what a look at all holdings finds. */
static void check_shared_counts(const struct fake *fake)
{
	const struct session *session;
	const struct holding *entry;

	TAILQ_FOREACH (session, &fake->daemon.sessions, link) {
		uint32_t count = 0;

		TAILQ_FOREACH (entry, &session->holdings.entries, link)
			count += is_shared(entry);
		ck_assert_uint_eq(session->holdings.shared_count, count);
	}
}

void fake_turn(struct fake *fake)
{
	/* Everything here is local: a few rounds carry every consequence through. */
	for (int i = 0; i < 8; i++) {
		uv_run(&fake->loop, UV_RUN_NOWAIT);
		if (fake_with_records)
			look_at_board(fake);
		end_compilers(fake, false);
	}
	check_shared_counts(fake);
}

bool fake_skip(struct fake *fake)
{
	int timeout = uv_backend_timeout(&fake->loop);
	uint64_t ms = timeout > 0 ? (uint64_t)timeout : 0;

	/* Nothing is due, or something is to be done first. */
	if (!ms)
		return true;
	pass(ms * NS_PER_MS);
	fake->skipped_ms += ms;
	ck_assert_msg(fake->skipped_ms < FAKE_SKIP_MAX_MS, "what is waited for does not come in time");
	return true;
}

static void make_holder(struct fake *fake)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	fake->holder = pair[0];
	fake->legacy = (struct legacy){.socket = pair[1],
		.memory = memfd_create("records", MFD_CLOEXEC),
		.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
		.board = holder_board_new(),
		.fds_most = FAKE_KEYS_MAX - 1,
		.fds = malloc(FAKE_KEYS_MAX * sizeof(int)),
		/* There is no listener that could be missing. */
		.stops = 1};
	ck_assert_int_ge(fake->legacy.memory, 0);
	ck_assert_int_ge(fake->legacy.bell, 0);
	ck_assert_ptr_nonnull(fake->legacy.board);
	ck_assert_ptr_nonnull(fake->legacy.fds);
	for (int i = 0; i < FAKE_KEYS_MAX; i++)
		fake->legacy.fds[i] = -1;
}

static struct store *open_store(const struct fake *fake)
{
	struct legacy legacy = fake->legacy;
	int fds[FAKE_KEYS_MAX];
	struct store *store;

	/* Each life has copies of its own. */
	for (uint32_t key = 0; key < legacy.fd_count; key++)
		fds[key] = legacy.fds[key] < 0 ? -1 : fcntl(legacy.fds[key], F_DUPFD_CLOEXEC, 0);
	legacy.fds = fds;
	store = store_open(&legacy);
	ck_assert_ptr_nonnull(store);
	return store;
}

static void begin_life(struct fake *fake)
{
	uv_loop_init(&fake->loop);
	daemon_init(&fake->daemon, &fake->loop, &fake->config, &fake->heritage, &spawner,
		fake_with_records ? open_store(fake) : NULL);
}

static void find_workers(struct fake *fake)
{
	struct domain *domain;
	struct worker *worker;

	for (unsigned i = 0; i < fake->child_count; i++)
		fake->children[i].worker = NULL;
	if (fake->daemon.keeper)
		child_of(fake->daemon.keeper)->worker = fake->daemon.keeper;
	TAILQ_FOREACH (domain, &fake->daemon.domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			child_of(worker)->worker = worker;
}

/* What processes that were killed have not freed. Kept where a leak check finds it: the compiler
 * may not take it for something that nobody reads. */
struct dead {
	struct dead *former;
	struct fake fake;
};
static struct dead *volatile latest_dead;

static void bury(const struct fake *fake)
{
	struct dead *dead = malloc(sizeof(*dead));

	ck_assert_ptr_nonnull(dead);
	*dead = (struct dead){.former = latest_dead, .fake = *fake};
	latest_dead = dead;
}

int fake_come_back(struct fake *fake)
{
	int r;

	fake_turn(fake);
	bury(fake);
	end_compilers(fake, true);
	for (unsigned i = 0; i < fake->child_count; i++)
		fake->children[i].killed = false;
	for (fake->legacy.fd_count = FAKE_KEYS_MAX; fake->legacy.fds[fake->legacy.fd_count - 1] < 0;)
		fake->legacy.fd_count--;
	fake->legacy.lives++;
	begin_life(fake);
	r = adopt(&fake->daemon, &fake->legacy);
	find_workers(fake);
	fake_turn(fake);
	return r;
}

struct fake *fake_new(unsigned standbys)
{
	struct fake *fake = calloc(1, sizeof(*fake));

	log_init(getenv("FRMPS_TEST_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR, "test");
	signal(SIGPIPE, SIG_IGN);
	current = fake;
	config_init(&fake->config);
	fake->config.standbys = standbys;
	fake->config.guard = CONFIG_GUARD_OFF;
	fake->heritage.backend = "fake";
	memcpy(fake->heritage.uuid, (const uint8_t[]){1, 2, 3}, 3);
	if (fake_with_records)
		make_holder(fake);
	begin_life(fake);
	ck_assert_int_eq(daemon_start(&fake->daemon), 0);
	/* The keeper and one executor. The next starts when that one is ready. */
	ck_assert_uint_eq(fake->child_count, 2);
	return fake;
}

static void free_holder(struct fake *fake)
{
	store_close(fake->daemon.store);
	for (int i = 0; i < FAKE_KEYS_MAX; i++)
		if (fake->legacy.fds[i] >= 0)
			close(fake->legacy.fds[i]);
	free(fake->legacy.fds);
	munmap(fake->legacy.board, sizeof(*fake->legacy.board));
	close(fake->legacy.bell);
	close(fake->legacy.memory);
	close(fake->legacy.socket);
	close(fake->holder);
}

void fake_free(struct fake *fake)
{
	/* Twice: at once. */
	daemon_stop(&fake->daemon);
	daemon_stop(&fake->daemon);
	for (unsigned i = 0; i < fake->child_count; i++)
		if (fake->children[i].worker)
			fake_reap(fake, &fake->children[i], 0);
	fake_turn(fake);
	ck_assert(TAILQ_EMPTY(&fake->daemon.sessions));
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	ck_assert_uint_eq(fake->daemon.reclaim.under_way, 0);
	end_compilers(fake, true);
	daemon_deinit(&fake->daemon);
	uv_run(&fake->loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&fake->loop), 0);
	if (fake_with_records)
		free_holder(fake);
	free(fake);
}

static bool is_readable(int socket)
{
	struct pollfd wait = {.fd = socket, .events = POLLIN};

	return poll(&wait, 1, 0) > 0;
}

static bool is_telling(const struct fake *fake)
{
	const struct domain *domain;
	bool is = false;

	TAILQ_FOREACH (domain, &fake->daemon.domains, link)
		is |= domain->telling && timer_running(domain->telling);
	return is;
}

void fake_tell(struct fake *fake)
{
	fake_turn(fake);
	FAKE_SKIP_WHILE(fake, is_telling(fake));
	fake_turn(fake);
}

const struct wire_message *fake_expect(struct fake *fake, int socket, enum wire_type type)
{
	int r;

	fake_turn(fake);
	FAKE_SKIP_WHILE(fake, !is_readable(socket) && is_telling(fake));
	if (type == WIRE_ADMIN_REPLY)
		FAKE_RUN_WHILE(fake, !is_readable(socket));
	packet_close_fds(&fake->packet);
	r = packet_receive(socket, &fake->packet);
	ck_assert_msg(r == 0, "no %s came (%d)", wire_type_name(type), r);
	ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
	ck_assert_msg(fake->message.type == type, "%s came, not %s", wire_type_name(fake->message.type),
		wire_type_name(type));
	return &fake->message;
}

void fake_expect_nothing(struct fake *fake, int socket)
{
	fake_turn(fake);
	packet_close_fds(&fake->packet);
	ck_assert_int_eq(packet_receive(socket, &fake->packet), PACKET_E_AGAIN);
}

void fake_expect_hangup(struct fake *fake, int socket)
{
	fake_turn(fake);
	packet_close_fds(&fake->packet);
	ck_assert_int_eq(packet_receive(socket, &fake->packet), PACKET_E_CLOSED);
}

void fake_send(
	struct fake *fake, int socket, const struct wire_message *message, const int *fds, unsigned fd_count)
{
	ck_assert_int_eq(message_send(socket, message, fds, fd_count), 0);
	fake_turn(fake);
}

void fake_reply(
	struct fake *fake, int socket, uint64_t id, int32_t code, const uint64_t *values, uint32_t count)
{
	struct wire_message reply = {.type = WIRE_REPLY, .id = id};

	reply.reply.code = code;
	reply.reply.values = (struct wire_u64s){values, count};
	fake_send(fake, socket, &reply, NULL, 0);
}

void fake_serve(struct fake *fake, struct fake_child *child, enum wire_type type)
{
	const struct wire_message *request = fake_expect(fake, child->socket, type);

	fake_reply(fake, child->socket, request->id, 0, NULL, 0);
}

void fake_ready(struct fake *fake, struct fake_child *child)
{
	struct wire_message ready = {.type = WIRE_READY};

	ready.ready.device.uuid = (struct wire_bytes){fake->heritage.uuid, sizeof(fake->heritage.uuid)};
	ready.ready.device.name = "fake device";
	ready.ready.device.total_bytes = UINT64_C(1) << 36;
	ready.ready.driver_version = 13000;
	fake_send(fake, child->socket, &ready, NULL, 0);
}

void fake_warm_with(struct fake *fake, struct fake_child *child, unsigned sessions)
{
	fake_ready(fake, child);
	for (unsigned i = 0; i < sessions; i++)
		fake_serve(fake, child, WIRE_OPEN_SESSION);
	fake_serve(fake, child, WIRE_PING);
}

void fake_warm(struct fake *fake, struct fake_child *child)
{
	fake_warm_with(fake, child, 0);
}

/* The message for it is in fake->message. */
static void play_answer(struct fake *fake, struct fake_play *play, unsigned index)
{
	uint64_t id = fake->message.id;

	if (id && id <= play->latest[index])
		return;
	play->latest[index] = id ? id : play->latest[index];
	play->answer(index);
}

bool fake_play_one(struct fake *fake, struct fake_play *play)
{
	fake_turn(fake);
	for (unsigned i = 0; i < fake->child_count; i++) {
		struct fake_child *child = &fake->children[i];

		if (child->worker && child->killed) {
			play->mapped[i] = 0;
			fake_reap(fake, child, SIGKILL);
			return true;
		}
		if (child->worker && !play->started[i]) {
			play->started[i] = true;
			play->start(child);
			return true;
		}
		packet_close_fds(&fake->packet);
		if (!child->worker || packet_receive(child->socket, &fake->packet))
			continue;
		ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
		play_answer(fake, play, i);
		return true;
	}
	return false;
}

void fake_play_all(struct fake *fake, struct fake_play *play)
{
	while (fake_play_one(fake, play))
		;
}

void fake_give_chunk(struct fake_child *keeper, uint64_t id, uint64_t handle)
{
	struct wire_message chunk = {.type = WIRE_REPLY, .id = id};
	int fd = fake_memfd(4096, 0);

	chunk.reply.values = (struct wire_u64s){&handle, 1};
	ck_assert_int_eq(message_send(keeper->socket, &chunk, &fd, 1), 0);
	close(fd);
}

void fake_make_chunk(struct fake *fake, struct fake_child *keeper, uint64_t handle)
{
	fake_give_chunk(keeper, fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK)->id, handle);
}

void fake_boot(struct fake *fake)
{
	fake_ready(fake, &fake->children[0]);
	fake_warm(fake, &fake->children[1]);
	fake_serve(fake, &fake->children[1], WIRE_ACTIVATE);
	for (unsigned i = 2; i < fake->child_count; i++)
		fake_warm(fake, &fake->children[i]);
	ck_assert_int_ne(fake->daemon.phase, DAEMON_STARTS);
}

void fake_reap(struct fake *fake, struct fake_child *child, int signal_number)
{
	struct worker *worker = child->worker;

	close(child->socket);
	if (child->words)
		munmap(child->words, sizeof(*child->words));
	child->worker = NULL;
	if (worker->process && worker->process != child) {
		children_reaped(&fake->daemon.crew, worker->pid, signal_number);
	} else {
		worker->process = NULL;
		children_ended(worker, 0, signal_number);
	}
	fake_turn(fake);
}

void fake_hello(struct fake *fake, struct fake_client *client)
{
	fake_hello_as(fake, client, getuid());
}

void fake_hello_as(struct fake *fake, struct fake_client *client, uid_t uid)
{
	static const uint64_t all[7] = {~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0),
		~UINT64_C(0), ~UINT64_C(0)};
	struct wire_message hello = {.type = WIRE_HELLO, .id = 1};
	struct visitor *visitor;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	visitor = TAILQ_LAST(&fake->daemon.visitors, visitor_list);
	visitor->peer.uid = visitor->identity.uid = uid;
	visitor->peer.owner = owner_of(uid);
	*client = (struct fake_client){.socket = pair[1], .next_id = 100};
	hello.hello = (struct wire_hello){.major = FRMPS_PROTOCOL_MAJOR,
		.program = "fake",
		.free_windows = {all, 7},
		.window_base = WINDOW_GRID_BASE,
		.window_bytes = WINDOW_BYTES,
		.sm_partition = fake_partition,
		.describe = fake_describe};
	fake_send(fake, client->socket, &hello, NULL, 0);
}

void fake_take_over(struct session *session, uint32_t generation)
{
	word_release(&session->view.server->generation, generation);
	word_release(&session->view.server->state, SHM_SESSION_RUNNING);
}

/* Activate is in fake->message. */
static void answer_activate(struct fake *fake, struct fake_child *executor)
{
	const struct wire_activate *activate = &fake->message.activate;
	uint64_t values[WINDOW_COUNT] = {0};

	for (uint32_t i = 0; i < activate->sessions.count; i++)
		fake_take_over(
			daemon_find_session(&fake->daemon, activate->sessions.at[i]), activate->generation);
	fake_reply(fake, executor->socket, fake->message.id, 0, values, activate->sessions.count);
}

void fake_take_all_over(struct fake *fake, struct fake_child *executor)
{
	fake_expect(fake, executor->socket, WIRE_ACTIVATE);
	answer_activate(fake, executor);
}

void fake_play_answer(struct fake *fake, struct fake_child *child)
{
	const uint64_t memory[2] = {UINT64_C(1) << 35, UINT64_C(1) << 36}, done = 1;

	switch (fake->message.type) {
	case WIRE_QUERY_MEMORY:
		fake_reply(fake, child->socket, fake->message.id, 0, memory, 2);
		break;
	case WIRE_CREATE_CHUNK:
		fake_give_chunk(child, fake->message.id, ++fake->handles);
		fake_turn(fake);
		break;
	case WIRE_ACTIVATE:
		answer_activate(fake, child);
		break;
	case WIRE_CLOSE_SESSION:
	case WIRE_DETACH_SESSION:
		fake_reply(fake, child->socket, fake->message.id, 0, &done, 1);
		break;
	case WIRE_SHUTDOWN:
		break;
	default:
		fake_reply(fake, child->socket, fake->message.id, 0, NULL, 0);
		break;
	}
}

struct fake_child *fake_child_of(struct fake *fake, const struct worker *worker)
{
	for (unsigned i = 0; i < fake->child_count; i++)
		if (worker && fake->children[i].worker == worker)
			return &fake->children[i];
	return NULL;
}

struct fake_child *fake_find_executor(struct fake *fake, bool active)
{
	for (unsigned i = 0; i < fake->child_count; i++) {
		struct worker *worker = fake->children[i].worker;

		if (worker && worker->domain && (worker == worker->domain->active) == active)
			return &fake->children[i];
	}
	return NULL;
}

void fake_welcome(struct fake *fake, struct fake_client *client)
{
	const struct wire_message *welcome = fake_expect(fake, client->socket, WIRE_WELCOME);

	ck_assert_uint_eq(fake->packet.fd_count, 3);
	client->window_base = welcome->welcome.window_base;
	/* As a server sees it, so that a test can write what an executor would. */
	ck_assert_int_eq(shm_view_map(&client->view, &welcome->welcome.shape, fake->packet.fds[0],
				 fake->packet.fds[1], SHM_SIDE_CLIENT),
		0);
}

void fake_open(struct fake *fake, struct fake_child *active)
{
	fake_serve(fake, active, WIRE_OPEN_SESSION);
	fake_expect(fake, active->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], 0);
	ck_assert_uint_eq(fake->message.activate.generation, active->worker->generation);
	fake_reply(fake, active->socket, fake->message.id, 0, NULL, 0);
}

void fake_join(
	struct fake *fake, struct fake_client *client, struct fake_child *active, struct fake_child *standby)
{
	fake_hello(fake, client);
	fake_open(fake, active);
	fake_welcome(fake, client);
	if (standby)
		fake_serve(fake, standby, WIRE_OPEN_SESSION);
}

void fake_leave(struct fake *fake, struct fake_client *client)
{
	close(client->socket);
	shm_view_unmap(&client->view);
	fake_turn(fake);
}

/* Fills a file of the daemon with the bytes of another one, seals it the same, and names it. */
static void send_file(struct fake *fake, struct fake_client *client, struct wire_message *message, int fd)
{
	struct wire_message ask = {.type = WIRE_MAKE_FILE, .id = client->next_id++};
	const struct wire_message *answer;
	struct stat status;
	uint64_t file;
	void *bytes;
	int own;

	fake_send(fake, client->socket, &ask, NULL, 0);
	answer = fake_expect(fake, client->socket, WIRE_REPLY);
	file = answer->reply.values.at[0];
	own = packet_take_fd(&fake->packet, 0);
	ck_assert_int_eq(fstat(fd, &status), 0);
	bytes = calloc(1, (size_t)status.st_size);
	ck_assert_int_eq(pread(fd, bytes, (size_t)status.st_size, 0), status.st_size);
	ck_assert_int_eq(write(own, bytes, (size_t)status.st_size), status.st_size);
	ck_assert_int_eq(ftruncate(own, status.st_size), 0);
	ck_assert_int_eq(fcntl(own, F_ADD_SEALS, fcntl(fd, F_GET_SEALS)), 0);
	free(bytes);
	close(own);
	if (message->type == WIRE_LOAD_MODULE)
		message->load_module.file = file;
	else if (message->type == WIRE_MAKE_GRAPH)
		message->graph.file = file;
	else
		message->link.file = file;
}

uint64_t fake_request(struct fake *fake, struct fake_client *client, struct wire_message *message, int fd)
{
	if (fd >= 0)
		send_file(fake, client, message, fd);
	message->id = client->next_id++;
	fake_send(fake, client->socket, message, NULL, 0);
	return message->id;
}

void fake_issue(struct shm_view *view, uint64_t issued)
{
	word_release(&view->server->streams, 4);
	word_release(&view->states[3].issued, issued);
	word_release(&view->states[3].marked, issued);
}

int fake_memfd(uint64_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}
