// See handout.h. A write lease is granted only where nobody else has the file open for reading or
// writing. The kernel counts open files that were made by open(2), not the memfd's first open file,
// which daemon and executors share. Without rights on the file (shm/region.c, daemon/requests.c) a
// program of another user cannot open the file once more.

#include "server/session/handout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"

/* Files checked at a time, and the pause between checks: a file costs some microseconds. A long
 * round of all files goes on quickly, and at once after a check that freed a file. */
#define LOOKS_OF_USER 16u
#define LOOKS	      64u
#define LOOK_MS	      1000u
#define LONG_LOOK_MS  50u
#define FREED_LOOK_MS 1u

struct handout {
	TAILQ_ENTRY(handout) link;
	struct handouts *handouts;
	struct shared_fd *file;
	uid_t owner;
	uint64_t bytes;
};

/* The files that programs of a user keep open; exists while there are any. */
struct account {
	TAILQ_ENTRY(account) link;
	uid_t owner;
	uint64_t bytes, count;
	TAILQ_HEAD(, handout) kept;
};

/* The kernel's answer about open files. */
enum state {
	STATE_FREE,
	STATE_OPEN,
	STATE_UNKNOWN, /* the kernel does not know */
};

static int open_again(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static enum state look(int fd)
{
	int own = open_again(fd, O_RDONLY);
	enum state state;

	if (own < 0)
		return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? STATE_OPEN : STATE_UNKNOWN;
	if (fcntl(own, F_SETLEASE, F_WRLCK) == 0)
		state = STATE_FREE;
	else
		state = errno == EAGAIN ? STATE_OPEN : STATE_UNKNOWN;
	/* Closing ends the lease, too. */
	close(own);
	return state;
}

/* Return: true if nobody has the file open */
static bool end(struct handout *handout)
{
	struct shared_fd *file = handout->file;
	enum state state = look(file->fd);

	if (state == STATE_OPEN)
		return false;
	if (state == STATE_FREE)
		fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)handout->bytes);
	free(handout);
	shared_fd_unref(file);
	return true;
}

static struct account *find_account(const struct handouts *handouts, uid_t owner)
{
	struct account *account;

	TAILQ_FOREACH (account, &handouts->accounts, link)
		if (account->owner == owner)
			return account;
	return NULL;
}

static struct account *get_account(struct handouts *handouts, uid_t owner)
{
	struct account *account = find_account(handouts, owner);

	if (account)
		return account;
	account = calloc(1, sizeof(*account));
	log_bug_on(!account); /* otherwise the user's open files would not count */
	account->owner = owner;
	TAILQ_INIT(&account->kept);
	TAILQ_INSERT_TAIL(&handouts->accounts, account, link);
	return account;
}

/* Checks the next files in turn. Frees the account when no file is left. Return: number of files
 * that were freed */
static unsigned look_at_some(struct handouts *handouts, struct account *account)
{
	uint64_t looks = account->count < LOOKS_OF_USER ? account->count : LOOKS_OF_USER;
	unsigned freed = 0;

	while (looks--) {
		struct handout *handout = TAILQ_FIRST(&account->kept);
		uint64_t bytes = handout->bytes;

		TAILQ_REMOVE(&account->kept, handout, link);
		if (!end(handout)) {
			TAILQ_INSERT_TAIL(&account->kept, handout, link);
			continue;
		}
		account->bytes -= bytes;
		account->count--;
		handouts->count--;
		freed++;
	}
	if (!account->count) {
		TAILQ_REMOVE(&handouts->accounts, account, link);
		free(account);
	}
	return freed;
}

/* Users take turns: a user with many open files does not delay the files of other users. */
static void on_timer(void *context)
{
	struct handouts *handouts = context;
	unsigned freed = 0;

	for (unsigned looks = 0; looks < LOOKS && handouts->count; looks += LOOKS_OF_USER) {
		struct account *account = TAILQ_FIRST(&handouts->accounts);

		TAILQ_REMOVE(&handouts->accounts, account, link);
		TAILQ_INSERT_TAIL(&handouts->accounts, account, link);
		freed += look_at_some(handouts, account);
	}
	if (!handouts->count)
		timer_stop(handouts->timer);
	else if (freed)
		timer_start(handouts->timer, FREED_LOOK_MS);
	else
		timer_start(handouts->timer, handouts->count > LOOKS ? LONG_LOOK_MS : LOOK_MS);
}

/* The service needs the file no more; the handout has the last reference. */
static void on_last(struct shared_fd *file)
{
	struct handout *handout = file->handout;
	struct handouts *handouts = handout->handouts;
	struct account *account;
	struct stat status;

	handout->bytes = fstat(file->fd, &status) == 0 ? (uint64_t)status.st_size : 0;
	if (end(handout))
		return;
	account = get_account(handouts, handout->owner);
	TAILQ_INSERT_TAIL(&account->kept, handout, link);
	account->bytes += handout->bytes;
	account->count++;
	handouts->count++;
	if (!timer_running(handouts->timer))
		timer_start(handouts->timer, LOOK_MS);
}

int handout_add(struct handouts *handouts, uid_t owner, struct shared_fd *file)
{
	struct handout *handout;

	if (!file || file->handout || file->is_programs)
		return 0;
	handout = calloc(1, sizeof(*handout));
	if (!handout)
		return -ENOMEM;
	handout->handouts = handouts;
	handout->file = file;
	handout->owner = owner;
	file->handout = handout;
	file->on_last = on_last;
	return 0;
}

void handout_forget(struct shared_fd *file)
{
	if (!file || !file->handout)
		return;
	free(file->handout);
	file->handout = NULL;
	file->on_last = NULL;
}

int handout_open(const struct shared_fd *file)
{
	int fd = open_again(file->fd, O_RDWR);

	return fd < 0 ? -errno : fd;
}

bool handout_is_open(const struct shared_fd *file)
{
	return look(file->fd) == STATE_OPEN;
}

void handouts_look(struct handouts *handouts, uid_t owner)
{
	struct account *account = find_account(handouts, owner);

	if (account)
		look_at_some(handouts, account);
}

uint64_t handouts_bytes(const struct handouts *handouts, uid_t owner)
{
	const struct account *account = find_account(handouts, owner);

	return account ? account->bytes : 0;
}

uint64_t handouts_count(const struct handouts *handouts, const uid_t *owner)
{
	const struct account *account = owner ? find_account(handouts, *owner) : NULL;

	if (!owner)
		return handouts->count;
	return account ? account->count : 0;
}

void handouts_init(struct handouts *handouts, struct uv_loop_s *loop)
{
	TAILQ_INIT(&handouts->accounts);
	handouts->count = 0;
	handouts->timer = timer_new(loop, on_timer, handouts);
}

void handouts_deinit(struct handouts *handouts)
{
	struct account *account;
	struct handout *handout;

	while ((account = TAILQ_FIRST(&handouts->accounts))) {
		while ((handout = TAILQ_FIRST(&account->kept))) {
			TAILQ_REMOVE(&account->kept, handout, link);
			shared_fd_unref(handout->file);
			free(handout);
		}
		TAILQ_REMOVE(&handouts->accounts, account, link);
		free(account);
	}
	handouts->timer = timer_free(handouts->timer);
}
