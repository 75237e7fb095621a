// The death of a daemon harms nobody. How:
//
//   holder (main process, this file) ── forks ──► daemon, life 1, 2, 3, …
//     │  a copy of every descriptor that matters      │  forks children with CLONE_PARENT:
//     │  a memfd with the daemon's records            │  keeper and executors are the holder's children
//     └── parent of all: reaps them, reports ends ───►│
//
// Running programs and executors do not need the daemon: they exchange work in shared memory. They
// are connected to the daemon by sockets, and copies of the daemon's ends live on in the holder, so
// nobody sees a hang-up and messages wait. The holder forks a new daemon, which so inherits all
// descriptors; the records (store.h, records.h) give the meaning of each; adopt.c rebuilds
// sessions, domains and workers from them. The rest follows from four rules:
//
//   1  The record comes first. A turn of the daemon's loop changes, records, and then sends
//      (loop/turn_end.h): no other process knows of a state that is not in the records. A single
//      store makes the records of a turn count, so a reader finds the state at the end of a turn.
//   2  A message stays on its socket until its consequences are recorded and sent. So a program's
//      request stays on the program's socket until the daemon has answered, and a worker's answer
//      until the daemon has acted on it. A new daemon reads again the messages that the dead daemon
//      was handling; handlers find the steps that are done in the records.
//   3  A request to keeper or executor is recorded with its number, perhaps before it is sent. A
//   new
//      daemon repeats the request with the same number; the receiver drops numbers that it has
//      seen. Either the records show the answer's consequences, or the answer is on the socket, or
//      is yet to come: the request is carried out exactly once. An answer to a program has no
//      number: the record says that the program waits until the answer is sent.
//   4  The program may get an answer twice (rule 2); the client drops an answer that it does not
//      wait for (client/link/).
//
// Messages to standbys are not recorded, because they can be sent again. A standby without
// unanswered messages is complete and is adopted; any other is replaced. Not recorded and lost:
// connections before their hello (the program connects again), operators' connections, the commands
// in flight at losses of executors without a culprit.
//
// Compilers (worker/compiler.h) do not outlive the daemon: their requests are begun anew.
//
// A promotion under way goes on: an executor that was being terminated is killed once more, the
// holder reports its end, and Activate is repeated (rule 3).
//
// The daemon writes its orders to the holder on the board (holder.h): a burst cannot overflow the
// board, which outlives the daemon. Descriptors alone come as messages. Messages on the socket
// outlive the daemon too, and the holder has a free file for each: there is one descriptor for a
// key, and the daemon uses the lowest keys, no more than the holder may keep. The daemon waits for
// a holder that does not read, but not for ever: then the deposit fails, and its owner gets an
// error.
//
// The holder has no state but lists of numbers and runs no code of the service, so few things can
// crash this process. If the holder dies, the daemon ends as well (PR_SET_PDEATHSIG), with both the
// last copies of the sockets, and everybody sees the hang-up. Signals for the service go to the
// holder, which passes them on as messages.
//
// A daemon that exits ends the service with its code. After a daemon that a signal ends, the holder
// starts another at once, or after growing delays while lives end before everything is adopted. The
// service ends after FAILURES_MAX of such lives in a row, if the first life was never up, or after
// CRASHES crashes within CRASH_SECONDS. Being killed from outside is no crash.

#include "server/holder/holder.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/grow.h"
#include "server/log.h"
#include "server/loop/timer.h"

#define FAILURES_MAX   5u
#define CRASHES	       8u
#define CRASH_SECONDS  60
#define DELAY_FIRST_MS 100
/* Between two tries to start a daemon. */
#define ROOM_MS 1000

/* The holder's own open files: signals, bell, records, both ends of the socket, log. */
#define OWN_FDS 32u
/* Closed in a row: the last descriptor of device memory frees the memory, and ends of children are
 * not to wait for many. */
#define CLOSE_BATCH 64u

struct holder {
	struct legacy legacy; /* as for the next life; `socket` is the child's end while the child is
			       * forked */
	uint32_t end_room;
	uint32_t ends_sent; /* of legacy.ends: how many the running daemon knows */
	uint32_t settled;   /* ends that have left legacy.ends */
	unsigned stops_sent;
	uint32_t *marks;   /* by key: the mark at the deposit of its descriptor */
	bool looking;	   /* a look at the board is under way */
	uint32_t looked;   /* the next key to look at */
	uint32_t syncs;	   /* asked for before the look began */
	uint32_t synced;   /* the same of the latest look that is over */
	uint32_t answered; /* of those */
	int signals;	   /* signalfd */
	int socket;	   /* to the daemon; -1: hung up */
	pid_t daemon;
	int status; /* the daemon's, after its end */
	bool ended;
	bool lacks_room; /* the next life could not begin, and this was logged */
	unsigned failures;
	time_t crashes[CRASHES];
	unsigned crash_count;
};

void holder_signals(sigset_t *set)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};

	sigemptyset(set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(set, numbers[i]);
}

/* Every program costs about ten descriptors, every piece of its memory another. */
static void raise_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* How many descriptors fit in beside the holder's own. */
static uint32_t count_room(void)
{
	struct rlimit limit;
	rlim_t all = getrlimit(RLIMIT_NOFILE, &limit) < 0 ? 1024 : limit.rlim_cur;

	if (all > HOLDER_KEYS)
		all = HOLDER_KEYS;
	return all > 2 * OWN_FDS ? (uint32_t)all - OWN_FDS : OWN_FDS;
}

/*
 * The daemon's things
 */

static bool is_wanted(const struct holder *holder, uint32_t key, uint32_t mark)
{
	/* Partner: store.c, change_mark(). */
	return word_acquire(&holder->legacy.board->marks[key]) == mark;
}

static void close_key(struct holder *holder, uint32_t key)
{
	close(holder->legacy.fds[key]);
	holder->legacy.fds[key] = -1;
}

/* Closes some of the forgotten descriptors, from the key that the look has reached. Return: true at
 * the end of the keys */
static bool close_forgotten(struct holder *holder, unsigned most)
{
	const struct legacy *legacy = &holder->legacy;

	for (; holder->looked < legacy->fd_count; holder->looked++) {
		uint32_t key = holder->looked;

		if (legacy->fds[key] < 0 || is_wanted(holder, key, holder->marks[key]))
			continue;
		if (!most--)
			return false;
		close_key(holder, key);
	}
	return true;
}

static void deposit(struct holder *holder, const struct holder_message *message, int fd)
{
	struct legacy *legacy = &holder->legacy;
	uint32_t key = message->key;

	for (; legacy->fd_count <= key; legacy->fd_count++)
		legacy->fds[legacy->fd_count] = -1;
	/* The daemon forgot that descriptor, and has given its key to this descriptor. */
	if (legacy->fds[key] >= 0)
		close_key(holder, key);
	legacy->fds[key] = fd;
	holder->marks[key] = message->mark;
}

/* Takes the descriptor over. */
static void obey(struct holder *holder, const struct holder_message *message, int fd)
{
	if (fd < 0)
		log_error("a descriptor is lost: somebody has lowered the limit of open files, or the kernel "
			  "is out of memory");
	else if (message->say == HOLDER_DEPOSIT && message->key <= holder->legacy.fds_most &&
		 is_wanted(holder, message->key, message->mark))
		deposit(holder, message, fd);
	else
		close(fd); /* forgotten meanwhile */
}

static int first_fd(struct msghdr *message)
{
	struct cmsghdr *control = CMSG_FIRSTHDR(message);
	int fd = -1;

	if (control && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(control), sizeof(fd));
	return fd;
}

/* Reads all messages of the daemon, also of a dead one. */
static void listen_to(struct holder *holder)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct holder_message said;
	struct iovec part = {.iov_base = &said, .iov_len = sizeof(said)};
	ssize_t length;

	for (;;) {
		struct msghdr message = {.msg_iov = &part,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control)};

		length = recvmsg(holder->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		/* A daemon that dies with unread messages resets the connection: the socket reports
		 * that once, before the daemon's messages. */
		if (length < 0 && (errno == EINTR || errno == ECONNRESET))
			continue;
		if (length != (ssize_t)sizeof(said))
			break;
		obey(holder, &said, first_fd(&message));
	}
	if (length >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
		close(holder->socket);
		holder->socket = -1;
	}
}

static bool say(struct holder *holder, const struct holder_message *message)
{
	return send(holder->socket, message, sizeof(*message), MSG_DONTWAIT | MSG_NOSIGNAL) ==
	       (ssize_t)sizeof(*message);
}

/* Sends the daemon all news, as far as its socket takes them. */
static void send_news(struct holder *holder)
{
	while (holder->socket >= 0 && holder->ends_sent < holder->legacy.end_count) {
		const struct holder_end *end = &holder->legacy.ends[holder->ends_sent];
		struct holder_message message = {.say = HOLDER_ENDED, .pid = end->pid, .status = end->status};

		if (!say(holder, &message))
			return;
		holder->ends_sent++;
	}
	while (holder->socket >= 0 && holder->stops_sent < holder->legacy.stops) {
		struct holder_message message = {.say = HOLDER_STOP};

		if (!say(holder, &message))
			return;
		holder->stops_sent++;
	}
	if (holder->socket >= 0 && holder->answered != holder->synced) {
		struct holder_message message = {
			.say = HOLDER_SYNCED, .count = holder->synced - holder->answered};

		if (say(holder, &message))
			holder->answered = holder->synced;
	}
}

/*
 * The board
 */

static void drop_settled(struct holder *holder)
{
	struct legacy *legacy = &holder->legacy;
	uint32_t count = word_acquire(&legacy->board->settled) - holder->settled;

	if (!count || count > legacy->end_count)
		return;
	memmove(legacy->ends, legacy->ends + count, (legacy->end_count - count) * sizeof(*legacy->ends));
	legacy->end_count -= count;
	holder->ends_sent -= count;
	holder->settled += count;
}

static void begin_look(struct holder *holder)
{
	eventfd_t rings;

	/* Anything that is written from here on rings again. */
	(void)eventfd_read(holder->legacy.bell, &rings);
	drop_settled(holder);
	holder->looking = true;
	holder->looked = 0;
	holder->syncs = word_acquire(&holder->legacy.board->syncs);
	/* The forgotten descriptor may still be on its way. */
	if (holder->socket >= 0)
		listen_to(holder);
}

/* Carries out the orders on the board. Descriptors are closed some at a time: then the look is
 * still under way. */
static void look(struct holder *holder, unsigned most)
{
	if (!holder->looking)
		begin_look(holder);
	if (!close_forgotten(holder, most))
		return;
	holder->looking = false;
	holder->synced = holder->syncs;
}

static bool is_up(const struct holder *holder)
{
	return word_acquire(&holder->legacy.board->up) == holder->legacy.lives + 1;
}

/* The daemon is dead: its messages and its orders come before anything else. */
static void hear_last(struct holder *holder)
{
	holder->looking = false;
	look(holder, UINT32_MAX);
	if (holder->socket >= 0)
		close(holder->socket);
	holder->socket = -1;
}

/*
 * Events
 */

static void note_end(struct holder *holder, pid_t pid, int status)
{
	struct legacy *legacy = &holder->legacy;

	log_bug_on(!grow(&legacy->ends, legacy->end_count, &holder->end_room, sizeof(*legacy->ends)));
	legacy->ends[legacy->end_count++] = (struct holder_end){pid, status};
}

/* As from waitpid(). */
static int status_of(const siginfo_t *info)
{
	if (info->si_code == CLD_EXITED)
		return W_EXITCODE(info->si_status & 0xff, 0);
	return W_EXITCODE(0, info->si_status) | (info->si_code == CLD_DUMPED ? WCOREFLAG : 0);
}

/* A child that can be waited for has no thread, no memory and no descriptor any more. The daemon
 * gets the report before the holder reaps the process: reaping takes long if somebody has looked at
 * its threads in /proc. */
static void reap(struct holder *holder)
{
	siginfo_t info = {0};

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0) {
		if (info.si_pid == holder->daemon) {
			holder->ended = true;
			holder->status = status_of(&info);
		} else {
			note_end(holder, info.si_pid, status_of(&info));
			send_news(holder);
		}
		waitpid(info.si_pid, NULL, 0);
		info.si_pid = 0;
	}
}

static void take_signals(struct holder *holder)
{
	struct signalfd_siginfo info;

	while (read(holder->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
			holder->legacy.stops++;
	reap(holder);
}

static bool is_behind(const struct holder *holder)
{
	return holder->ends_sent < holder->legacy.end_count || holder->stops_sent < holder->legacy.stops ||
	       holder->answered != holder->synced;
}

/* Serves the daemon until its end, or for a time while there is none. */
static void attend(struct holder *holder, int timeout_ms)
{
	do {
		struct pollfd wait[3] = {{.fd = holder->signals, .events = POLLIN},
			{.fd = holder->socket, .events = (short)(POLLIN | (is_behind(holder) ? POLLOUT : 0))},
			{.fd = holder->legacy.bell, .events = POLLIN}};

		if (poll(wait, 3, holder->looking ? 0 : timeout_ms) < 0 && errno != EINTR)
			log_bug_on(true);
		if (holder->socket >= 0 && wait[1].revents)
			listen_to(holder);
		if (wait[0].revents)
			take_signals(holder);
		if (wait[2].revents || holder->looking)
			look(holder, CLOSE_BATCH);
		send_news(holder);
	} while (timeout_ms < 0 && !holder->ended);
}

/*
 * Lives
 */

/* In the child: drops everything that belongs to the holder alone. */
static void become_daemon(struct holder *holder, pid_t parent)
{
	sigset_t signals;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_FAILURE);
	/* The holder answers signals for the service, also those to the whole group. */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	holder_signals(&signals);
	sigprocmask(SIG_UNBLOCK, &signals, NULL);
	close(holder->signals);
	close(holder->socket);
	prctl(PR_SET_NAME, "frmps-daemon");
}

/* Return: 0 in the child, -1 if there is none. */
static pid_t give_life(struct holder *holder)
{
	pid_t self = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	holder->socket = pair[0];
	holder->legacy.socket = pair[1];
	holder->ends_sent = holder->legacy.end_count;
	holder->stops_sent = holder->legacy.stops;
	holder->ended = false;
	/* The daemon that asked for them is dead. */
	holder->answered = holder->synced = word_acquire(&holder->legacy.board->syncs);
	holder->daemon = fork();
	if (holder->daemon == 0) {
		become_daemon(holder, self);
		return 0;
	}
	close(pair[1]);
	if (holder->daemon < 0) {
		close(pair[0]);
		holder->socket = -1;
	}
	return holder->daemon;
}

/* No life could begin. For the first life that is the end; later, programs work on until there is
 * room for another.
 * Return: true to try again */
static bool await_room(struct holder *holder, int error)
{
	if (!holder->legacy.lives || holder->legacy.stops) {
		log_error("the daemon cannot be started: %s", strerror(error));
		return false;
	}
	if (!holder->lacks_room)
		log_error("the daemon cannot be started again: %s (a limit of processes, open files or "
			  "memory); programs go on, new ones wait, and the holder tries again each second",
			strerror(error));
	holder->lacks_room = true;
	attend(holder, ROOM_MS);
	return true;
}

static bool crashes_too_often(struct holder *holder)
{
	/* Nobody sets this clock. */
	time_t now = (time_t)(timer_now_us() / 1000000),
	       *oldest = &holder->crashes[holder->crash_count % CRASHES];
	bool full = holder->crash_count >= CRASHES;
	time_t before = *oldest;

	*oldest = now;
	holder->crash_count++;
	return full && now - before < CRASH_SECONDS;
}

/* After the end of a life by a signal. Return: whether there is to be another. */
static bool goes_on(struct holder *holder)
{
	int number = WTERMSIG(holder->status);

	holder->failures = is_up(holder) ? 0 : holder->failures + 1;
	holder->legacy.latest_signal = number;
	holder->legacy.lives++;
	log_error("the daemon was ended by signal %d (%s)", number, strsignal(number));
	if (word_acquire(&holder->legacy.board->up) && holder->failures < FAILURES_MAX &&
		(number == SIGKILL || !crashes_too_often(holder)))
		return true;
	log_error("the daemon is not started again: the service ends");
	return false;
}

static int serve_lives(
	struct holder *holder, int (*run)(void *context, const struct legacy *legacy), void *context)
{
	for (;;) {
		pid_t pid = give_life(holder);

		if (pid == 0)
			return run(context, &holder->legacy);
		if (pid < 0) {
			if (!await_room(holder, errno))
				return EXIT_FAILURE;
			continue;
		}
		holder->lacks_room = false;
		attend(holder, -1);
		hear_last(holder);
		if (WIFEXITED(holder->status))
			return WEXITSTATUS(holder->status);
		if (!goes_on(holder))
			return EXIT_FAILURE;
		if (holder->failures)
			attend(holder, DELAY_FIRST_MS << holder->failures);
	}
}

struct holder_board *holder_board_new(void)
{
	void *board = mmap(NULL, sizeof(struct holder_board), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return board == MAP_FAILED ? NULL : board;
}

static bool prepare(struct holder *holder, const sigset_t *signals)
{
	struct legacy *legacy = &holder->legacy;

	holder->signals = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
	legacy->memory = memfd_create("frmps-records", MFD_CLOEXEC);
	legacy->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	legacy->board = holder_board_new();
	legacy->fds_most = count_room();
	/* Memory for all is there from the beginning: no deposit can fail for lack of memory. */
	legacy->fds = malloc((legacy->fds_most + 1) * sizeof(*legacy->fds));
	holder->marks = malloc((legacy->fds_most + 1) * sizeof(*holder->marks));
	return holder->signals >= 0 && legacy->memory >= 0 && legacy->bell >= 0 && legacy->board &&
	       legacy->fds && holder->marks;
}

int holder_run(int (*run)(void *context, const struct legacy *legacy), void *context)
{
	struct holder holder = {.socket = -1};
	sigset_t signals;
	int code;

	raise_limits();
	/* Compilers are the daemon's own children, and end with the daemon: somebody has to wait
	 * for them. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	holder_signals(&signals);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* A program may ask for more than a file may have (RLIMIT_FSIZE): the request fails. */
	signal(SIGXFSZ, SIG_IGN);
	if (!prepare(&holder, &signals)) {
		log_error("cannot start: %m");
		return EXIT_FAILURE;
	}
	code = serve_lives(&holder, run, context);
	free(holder.legacy.fds);
	free(holder.legacy.ends);
	free(holder.marks);
	return code;
}
