// Makes sessions: from a Hello, or again from the record of an earlier life of the daemon. Also
// handles the program's messages and the program's end. See session.h.

#include "server/daemon/life.h"
#include "server/session/holdings.h"
#include "server/session/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/watch.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/daemon/handshake.h"
#include "server/session/grant.h"
#include "server/session/message.h"
#include "server/session/owner.h"
#include "server/session/partition.h"
#include "server/session/records.h"
#include "server/daemon/requests.h"
#include "server/session/userlog.h"
#include "server/session/window.h"

/*
 * The program's end
 */

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct session *session = context;

	if (session->adopted) {
		session->adopted = false;
		/* The daemon died between answering a message and taking that message off the
		 * socket. If a request was under way, that request is first, with any number. */
		if (message->type == WIRE_HELLO ||
			(message->id == session->answered && !session->again.asked))
			return;
	}
	if (!message_allowed(message->type, FROM_CLIENT))
		session_reject(session, "sent a message that is not its to send");
	else if (session->state != SESSION_SERVED)
		session_reject(session, "sent a request before it was welcome");
	else
		request_begin(session, message, packet);
}

static void on_closed(void *context, const char *reason)
{
	struct session *session = context;

	log_debug("session %llu: its connection is over: %s", (unsigned long long)session->number, reason);
	session_end(session, (uint32_t)session->daemon->config->orphan_seconds * 1000);
}

static void on_process_gone(void *context)
{
	struct session *session = context;

	session->process = watch_free(session->process);
	session_end(session, (uint32_t)session->daemon->config->orphan_seconds * 1000);
}

/* Return: as store_deposit() */
static int watch_process(struct session *session)
{
	int fd = session->pid > 0 ? (int)syscall(SYS_pidfd_open, session->pid, 0) : -1, r;

	/* A process in another pid namespace is not visible here: only its socket shows its end. */
	if (fd < 0)
		return 0;
	r = store_deposit(session->daemon->store, fd, &session->process_key);
	if (r)
		close(fd);
	else
		session->process = watch_new(session->daemon->loop, fd, on_process_gone, session);
	return r;
}

/* Deposits the descriptors that another life of the daemon needs. Return: as store_deposit() */
static int deposit_all(struct session *session, struct connection *connection)
{
	struct store *store = session->daemon->store;
	int r = shared_fd_deposit(session->client_fd, store);

	r = r ? r : shared_fd_deposit(session->server_fd, store);
	r = r ? r : shared_fd_deposit(session->doorbell_fd, store);
	r = r ? r : store_deposit(store, connection_socket(connection), &session->connection_key);
	r = r ? r : watch_process(session);
	if (r)
		store_forget(store, session->connection_key);
	return r;
}

/*
 * New sessions
 */

static struct session *allocate(struct domain *domain, const struct session_peer *peer, uint64_t number)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->daemon = domain->daemon;
	session->domain = domain;
	session->refs = 1;
	session->number = number;
	session->uid = peer->uid;
	session->owner = peer->owner;
	session->pid = peer->pid;
	session->subject = peer->subject;
	session->window = WINDOW_NONE;
	session->filled = SESSION_FILLED;
	session->view = SHM_VIEW_NULL;
	holdings_init(&session->holdings);
	session->holdings.store = domain->daemon->store;
	session->holdings.session = number;
	session->holdings.window_set = &domain->windows;
	session->holdings.device = &domain->daemon->device;
	TAILQ_INSERT_TAIL(&domain->daemon->sessions, session, link);
	TAILQ_INSERT_TAIL(&domain->sessions, session, domain_link);
	domain->daemon->session_count++;
	domain_watch_idle(domain);
	return session;
}

/* Takes the three descriptors over and maps our view. Return: 0, SHM_E_* or -errno. */
static int take_regions(struct session *session, int client_fd, int server_fd, int doorbell_fd)
{
	struct wire_shape shape;

	shm_shape_init(&shape, SHM_RING_BYTES, SHM_ARENA_BYTES, SHM_BLOCKS);
	session->client_fd = shared_fd_new(client_fd);
	session->server_fd = shared_fd_new(server_fd);
	session->doorbell_fd = shared_fd_new(doorbell_fd);
	if (!session->client_fd || !session->server_fd || !session->doorbell_fd ||
		!session_hand_out(session, session->client_fd) ||
		!session_hand_out(session, session->server_fd))
		return SHM_E_NOSPACE;
	return shm_view_map(
		&session->view, &shape, session->client_fd->fd, session->server_fd->fd, SHM_SIDE_SERVER);
}

/* Shared memory: regions, the daemon's view of them, doorbell. Return: 0, SHM_E_* or -errno. */
static int make_regions(struct session *session)
{
	struct wire_shape shape;
	int client_fd, server_fd, r;

	shm_shape_init(&shape, SHM_RING_BYTES, SHM_ARENA_BYTES, SHM_BLOCKS);
	r = shm_region_new(&shape, &client_fd, &server_fd);
	if (r)
		return r;
	return take_regions(session, client_fd, server_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static int refuse_new(
	struct session *session, int32_t code, const char *text, int32_t *ret_code, const char **ret_text)
{
	*ret_code = code;
	*ret_text = text;
	session_unref(session);
	return SESSION_E_REFUSED;
}

/* Return: false if the program names a partition that does not exist */
static bool take_partition(struct session *session, const struct wire_hello *hello)
{
	const struct partition *partition = partition_find(session->daemon, hello->sm_partition);

	session->partition = partition ? partition->number : 0;
	return partition || !*hello->sm_partition;
}

static void take_hello(struct session *session, const struct wire_hello *hello)
{
	handshake_copy_name(session->program, sizeof(session->program), hello->program);
	handshake_identity(session->identity, hello);
	session->memory_wish = grant_memory_wish(session->daemon, session->domain, hello);
	session->sm_wish = grant_sm_wish(session->daemon, session->domain, hello);
	session->class_wish = grant_class_wish(session->daemon, hello);
	session_set_terms(session);
	session->recovery = hello->recovery ? hello->recovery - 1 : (uint32_t)session->terms.recovery;
}

/* No two devices of the service give out the same number. */
uint64_t session_take_number(struct daemon *daemon)
{
	uint64_t latest = daemon->next_session;

	daemon->next_session =
		latest ? latest + daemon_devices(daemon) : (uint64_t)daemon->heritage->number + 1;
	return daemon->next_session;
}

int session_new(struct domain *domain, struct connection *connection, const struct session_peer *peer,
	const struct wire_hello *hello, int32_t *ret_code, const char **ret_text)
{
	struct session *session = allocate(domain, peer, session_take_number(domain->daemon));
	int r;

	if (!session) {
		*ret_code = CUDA_ERROR_OUT_OF_MEMORY;
		*ret_text = "the service is out of memory";
		return SESSION_E_REFUSED;
	}
	take_hello(session, hello);
	if (!take_partition(session, hello))
		return refuse_new(session, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
			"there is no SM partition of the name that CUDA_MPS_SM_PARTITION has (lspart lists "
			"them)",
			ret_code, ret_text);
	session->window = window_take(&domain->windows, &hello->free_windows);
	if (session->window == WINDOW_NONE)
		return refuse_new(session, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
			"no window of the address space is free both in the program and in the service",
			ret_code, ret_text);
	r = make_regions(session);
	r = r ? r : deposit_all(session, connection);
	if (r) {
		userlog_event(session->daemon, session->uid, USERLOG_memory, LOG_LEVEL_ERROR,
			"cannot make the shared memory of a session: %s",
			r < 0 ? strerror(-r) : "no memory or no file descriptors left");
		return refuse_new(session, CUDA_ERROR_OUT_OF_MEMORY,
			"the service cannot get shared memory for one more client (memory limit of the "
			"service, or its limit of open files)",
			ret_code, ret_text);
	}
	session_tell_share(session);
	session->connection = connection;
	connection_set_owner(connection, on_message, on_closed, session);
	session_changed(session);
	session_open(session);
	return 0;
}

/*
 * The same session in another life of the daemon
 */

/* Return: true if the numbers are possible for a session */
static bool is_sound(const struct session *session)
{
	return session->state <= SESSION_ELSEWHERE && session->mirroring <= SESSION_LEFT_OUT &&
	       session->memory <= SESSION_MEMORY_RETURNS && window_is_field(session->window) &&
	       window_is_possible(&session->domain->windows, session->window, WINDOW_BYTES);
}

static void take_head(struct session *session, const struct session_record *record)
{
	memcpy(session, record->head, sizeof(record->head));
	record_tidy_flag(&session->opened);
	record_tidy_flag(&session->pause_is_ours);
	record_tidy_flag(&session->checkpointed);
	record_tidy_flag(&session->drained);
	record_tidy_flag(&session->is_detached);
	session->program[sizeof(session->program) - 1] = '\0';
	session->identity[sizeof(session->identity) - 1] = '\0';
	session->subject.executable[sizeof(session->subject.executable) - 1] = '\0';
	session->subject.cgroup[sizeof(session->subject.cgroup) - 1] = '\0';
	session->recovery_set = true;
	session->adopted = true;
}

/* Adopts connection and process. Return: false if the connection is lost */
static bool adopt_peer(struct session *session)
{
	struct daemon *daemon = session->daemon;
	int socket = store_take(daemon->store, session->connection_key);
	int process = store_take(daemon->store, session->process_key);

	/* The key of a lost descriptor may be given to another from now on. */
	if (process >= 0)
		session->process = watch_new(daemon->loop, process, on_process_gone, session);
	else
		session->process_key = 0;
	if (socket < 0) {
		session->connection_key = 0;
		return false;
	}
	/* The next life may have memory, and gets the holder's copy of the socket: this one is only
	 * closed, as are those between processes of the service. */
	session->connection = connection_new(
		daemon->loop, CONNECTION_OURS, socket, SESSION_QUEUE_MAX, on_message, on_closed, session);
	log_bug_on(!session->connection || (process >= 0 && !session->process));
	connection_leave_outside(session->connection);
	/* The program may have got Welcome without a record of that: its requests wait until
	 * Welcome is sent again. */
	if (session->state == SESSION_OPENING)
		connection_pause(session->connection);
	return true;
}

static void take_key(struct shared_fd *shared, struct store *store, uint32_t key)
{
	if (!shared)
		return;
	shared->store = store;
	shared->key = key;
}

static bool adopt_regions(struct session *session, const struct kept_session *kept)
{
	struct store *store = session->daemon->store;
	int client_fd = store_take(store, kept->client_fd), server_fd = store_take(store, kept->server_fd);
	int doorbell_fd = store_take(store, kept->doorbell);
	int r = take_regions(session, client_fd, server_fd, doorbell_fd);

	/* The next life may have memory. */
	log_bug_on(
		client_fd >= 0 && server_fd >= 0 && doorbell_fd >= 0 && (r == SHM_E_NOSPACE || r == -ENOMEM));
	take_key(session->client_fd, store, kept->client_fd);
	take_key(session->server_fd, store, kept->server_fd);
	take_key(session->doorbell_fd, store, kept->doorbell);
	return !r;
}

/* Executors still know the session and close it like any other. The program sees its connection
 * closed. */
void session_give_up(struct session *session, const char *why)
{
	log_error("session %llu (process %d, %s) cannot be taken over: %s",
		(unsigned long long)session->number, (int)session->pid, session->program, why);
	session->given_up |= session->state != SESSION_CLOSING;
	session->state = SESSION_CLOSING;
}

static void give_up(struct session *session, bool has_regions)
{
	session_give_up(session, "its descriptors are not there");
	if (!has_regions) {
		/* No program sees these replacement regions. */
		session->client_fd = shared_fd_unref(session->client_fd);
		session->server_fd = shared_fd_unref(session->server_fd);
		session->doorbell_fd = shared_fd_unref(session->doorbell_fd);
		log_bug_on(make_regions(session) != 0);
	}
}

/* The daemons of both devices find the same outcome, whenever they look. */
static void settle_transfer(struct session *session)
{
	struct transfers *transfers = session->daemon->heritage->transfers;
	bool comes = session->state == SESSION_ELSEWHERE, stays;

	if (!session->transfer.number)
		return;
	stays = !transfers || transfer_close(transfers, &session->transfer);
	session->transfer = (struct transfer){0};
	if (comes && !stays)
		session->state = SESSION_SERVED;
	else if (session->state == SESSION_SERVED && !stays)
		session->state = SESSION_ELSEWHERE;
	session->is_detached |= session->state == SESSION_ELSEWHERE;
}

struct session *session_adopt(struct domain *domain, uint64_t number, const struct session_record *record)
{
	const struct session_peer nobody = {0};
	struct session *session = allocate(domain, &nobody, number);
	bool sound, has_regions, has_peer;

	log_bug_on(!session);
	take_head(session, record);
	settle_transfer(session);
	session->owner = owner_of(session->uid);
	sound = is_sound(session);
	if (!sound) {
		session->state = SESSION_OPENING;
		session->mirroring = SESSION_MIRRORED;
		session->memory = SESSION_MEMORY_HERE;
		session->window = WINDOW_NONE;
	}
	/* All memory is still on the device. */
	session->was_leaving = session->memory == SESSION_MEMORY_LEAVES;
	if (session->was_leaving)
		session->memory = SESSION_MEMORY_HERE;
	session->drained &= session->memory != SESSION_MEMORY_HERE;
	session->holdings.away = session->memory != SESSION_MEMORY_HERE;
	window_hold(&session->domain->windows, session->window, WINDOW_BYTES);
	session_set_terms(session);
	has_regions = adopt_regions(session, &record->kept);
	has_peer = session->state == SESSION_CLOSING || session->state == SESSION_ELSEWHERE ||
		   adopt_peer(session);
	if (!has_regions || !has_peer)
		give_up(session, has_regions);
	else if (!sound)
		session_give_up(session, "its record cannot be read");
	session_tell_share(session);
	return session;
}

bool session_take_over(struct session *session)
{
	const struct holding *entry;
	bool is_whole;

	session->state = SESSION_SERVED;
	session->transfer = (struct transfer){0};
	is_whole = session_hand_out(session, session->client_fd) &&
		   session_hand_out(session, session->server_fd);
	TAILQ_FOREACH (entry, &session->holdings.entries, link)
		is_whole &= session_hand_out(session, session_file_of(entry));
	/* The next life may have memory, and finds that the session is its own. */
	log_bug_on(!is_whole);
	if (!adopt_peer(session))
		session_give_up(session, "its connection is not there");
	return !session->given_up;
}
