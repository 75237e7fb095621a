// See handout.h. A write lease is granted only where nobody else has the file open for reading or
// writing. The kernel counts open files that were made by open(2), not the memfd's first one, which
// daemon and executors share. Without rights on the file (shm/region.c, request.c) a program of
// another user cannot open it once more.

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

#define LOOK_MS 1000u

struct handout {
	TAILQ_ENTRY(handout) link;
	struct handouts *handouts;
	struct shared_fd *file;
	uid_t uid;
	uint64_t bytes;
};

/* What the kernel says of who has a file open. */
enum state {
	STATE_FREE,
	STATE_OPEN,
	STATE_UNKNOWN, /* the kernel does not say */
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
	/* The lease goes with it. */
	close(own);
	return state;
}

/* Return: whether it is over. */
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

static void look_at_all(struct handouts *handouts)
{
	struct handout *handout = TAILQ_FIRST(&handouts->kept);

	while (handout) {
		struct handout *next = TAILQ_NEXT(handout, link);

		TAILQ_REMOVE(&handouts->kept, handout, link);
		if (!end(handout)) {
			if (next)
				TAILQ_INSERT_BEFORE(next, handout, link);
			else
				TAILQ_INSERT_TAIL(&handouts->kept, handout, link);
		}
		handout = next;
	}
}

static void watch(struct handouts *handouts)
{
	if (TAILQ_EMPTY(&handouts->kept))
		timer_stop(handouts->timer);
	else if (!timer_running(handouts->timer))
		timer_start(handouts->timer, LOOK_MS);
}

static void on_timer(void *context)
{
	struct handouts *handouts = context;

	look_at_all(handouts);
	watch(handouts);
}

/* The service needs the file no more; the last reference to it is the handout's. */
static void on_last(struct shared_fd *file)
{
	struct handout *handout = file->handout;
	struct handouts *handouts = handout->handouts;
	struct stat status;

	handout->bytes = fstat(file->fd, &status) == 0 ? (uint64_t)status.st_size : 0;
	if (end(handout))
		return;
	TAILQ_INSERT_TAIL(&handouts->kept, handout, link);
	watch(handouts);
}

int handout_add(struct handouts *handouts, uid_t uid, struct shared_fd *file)
{
	struct handout *handout;

	if (!file || file->handout)
		return 0;
	handout = calloc(1, sizeof(*handout));
	if (!handout)
		return -ENOMEM;
	handout->handouts = handouts;
	handout->file = file;
	handout->uid = uid;
	file->handout = handout;
	file->on_last = on_last;
	return 0;
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

uint64_t handouts_bytes(struct handouts *handouts, uid_t uid)
{
	const struct handout *handout;
	uint64_t bytes = 0;

	look_at_all(handouts);
	TAILQ_FOREACH (handout, &handouts->kept, link)
		bytes += handout->uid == uid ? handout->bytes : 0;
	return bytes;
}

uint64_t handouts_count(const struct handouts *handouts, const uid_t *uid)
{
	const struct handout *handout;
	uint64_t count = 0;

	TAILQ_FOREACH (handout, &handouts->kept, link)
		count += !uid || handout->uid == *uid;
	return count;
}

void handouts_init(struct handouts *handouts, struct uv_loop_s *loop)
{
	TAILQ_INIT(&handouts->kept);
	handouts->timer = timer_new(loop, on_timer, handouts);
	log_bug_on(!handouts->timer);
}

void handouts_deinit(struct handouts *handouts)
{
	struct handout *handout;

	while ((handout = TAILQ_FIRST(&handouts->kept))) {
		TAILQ_REMOVE(&handouts->kept, handout, link);
		shared_fd_unref(handout->file);
		free(handout);
	}
	handouts->timer = timer_free(handouts->timer);
}
