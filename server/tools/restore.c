// See restore.h.

#include "server/tools/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/tools/archive.h"
#include "server/tools/content.h"
#include "server/tools/criu.h"
#include "server/tools/hand.h"
#include "server/tools/process.h"

#define PATH_BYTES 4096u

struct restoring {
	struct hand *hand;
	const char *path;
	int folder, bundle;
	struct archive archive;
	int *fds; /* of its files, for the service; -1: not made yet */
	struct copies *load;
	/* The processes' ends of the sockets. */
	struct criu_socket *sockets;
	size_t socket_count;
	bool are_there; /* the processes */
	sigset_t mask;	/* of signals, before that */
};

/* @r: of content.h. Return: 0 or -1 */
static int judge(struct restoring *restoring, int r)
{
	if (r == -EBADMSG)
		return hand_fail(
			restoring->hand, "%s is damaged: a file is not what was written", restoring->path);
	return r ? hand_fail(restoring->hand, "%s cannot be read: %s", restoring->path, strerror(-r)) : 0;
}

static int open_archive(struct restoring *restoring)
{
	struct archive *archive = &restoring->archive;
	char text[ARCHIVE_TEXT];

	restoring->folder = open(restoring->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (restoring->folder < 0)
		return judge(restoring, -errno);
	if (archive_read(restoring->folder, archive, text))
		return hand_fail(restoring->hand, "%s %s", restoring->path, text);
	restoring->fds = malloc(archive->count * sizeof(*restoring->fds));
	restoring->sockets = calloc(archive->count, sizeof(*restoring->sockets));
	if (!restoring->fds || !restoring->sockets)
		return judge(restoring, -ENOMEM);
	for (uint32_t i = 0; i < archive->count; i++)
		restoring->fds[i] = -1;
	return judge(restoring, content_load_bundle(restoring->folder, archive, &restoring->bundle));
}

/* Before anything is made. */
static int ask(struct restoring *restoring)
{
	struct hand *hand = restoring->hand;

	for (uint32_t i = 0; i < restoring->archive.count; i++) {
		const pid_t pid = restoring->archive.files[i].pid;

		if (pid && !kill(pid, 0))
			return hand_fail(hand,
				"there is a process %d, and the saved program needs this number", (int)pid);
	}
	if (hand_hear(hand, HANDOVER_REPLY) || hand_say(hand, HANDOVER_ASK, 0, restoring->bundle))
		return -1;
	return hand_hear(hand, HANDOVER_REPLY);
}

/* Threads load while processes and sessions are made. */
static int begin_loading(struct restoring *restoring)
{
	const struct archive *archive = &restoring->archive;
	const uint32_t first = restoring->hand->message.handover.files;

	/* Also of the threads. */
	process_hold_signals(&restoring->mask);
	return judge(restoring, content_load(restoring->folder, archive, first ? first - 1 : archive->count,
					restoring->fds, &restoring->load));
}

static int is_interrupted(struct restoring *restoring)
{
	return process_is_interrupted() ? hand_fail(restoring->hand, "it was interrupted") : 0;
}

/* The files that the service needs at once. */
static int await_rest(struct restoring *restoring)
{
	int r;

	do
		r = content_await_rest(restoring->load);
	while (r == -EAGAIN && !is_interrupted(restoring));
	return judge(restoring, r);
}

/*
 * The processes
 */

static int make_sockets(struct restoring *restoring)
{
	const struct archive *archive = &restoring->archive;

	for (uint32_t i = 0; i < archive->count; i++) {
		const struct archive_file *file = &archive->files[i];
		int ends[2];

		if (file->kind != ARCHIVE_SOCKET)
			continue;
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
			return hand_fail(restoring->hand, "a socket cannot be made: %s", strerror(errno));
		restoring->fds[i] = ends[0];
		restoring->sockets[restoring->socket_count++] =
			(struct criu_socket){.inode = file->place, .fd = ends[1]};
		/* The question that the service had not read. */
		if (file->packet && send(ends[1], file->packet, file->packet_bytes, MSG_DONTWAIT) < 0)
			return hand_fail(restoring->hand, "a socket cannot be written: %s", strerror(errno));
	}
	return 0;
}

static void close_sockets(struct restoring *restoring)
{
	for (size_t i = 0; i < restoring->socket_count; i++)
		close(restoring->sockets[i].fd);
	restoring->socket_count = 0;
}

static int make_processes(struct restoring *restoring)
{
	char path[PATH_BYTES], text[CRIU_TEXT];

	if (snprintf(path, sizeof(path), "%s/process", restoring->path) >= (int)sizeof(path))
		return hand_fail(restoring->hand, "the path is too long");
	if (criu_restore(path, restoring->sockets, restoring->socket_count, text))
		return hand_fail(restoring->hand, "%s", text);
	restoring->are_there = true;
	/* The service alone has the other ends: a process sees its end. */
	close_sockets(restoring);
	return 0;
}

/* Return: the caller's; -errno */
static int take(struct process_maps **list, const struct archive_file *file)
{
	const struct process_maps *maps;

	switch (file->kind) {
	case ARCHIVE_MAPPING:
		maps = process_maps_of(list, file->pid);
		return maps ? process_open_mapping(maps, file->place) : -ESRCH;
	case ARCHIVE_DESCRIPTOR:
		return process_take(file->pid, (int)file->place);
	case ARCHIVE_PROCESS:
		return process_open(file->pid);
	case ARCHIVE_SOCKET:
	case ARCHIVE_CONTENT:
	case ARCHIVE_KINDS:
		break;
	}
	return -EINVAL;
}

static int take_each(struct restoring *restoring, struct process_maps **maps)
{
	for (uint32_t i = 0; i < restoring->archive.count; i++) {
		const struct archive_file *file = &restoring->archive.files[i];
		int fd;

		if (restoring->fds[i] >= 0)
			continue;
		fd = take(maps, file);
		if (fd < 0)
			return hand_fail(restoring->hand,
				"something of process %d is not what was saved (%s at %#" PRIx64 "): %s",
				(int)file->pid, archive_kind_name(file->kind), file->place, strerror(-fd));
		restoring->fds[i] = fd;
	}
	return 0;
}

static int take_all(struct restoring *restoring)
{
	struct process_maps *maps = NULL;
	int r = take_each(restoring, &maps);

	process_free_maps(maps);
	return r;
}

static int give(struct restoring *restoring)
{
	struct hand *hand = restoring->hand;
	const uint32_t count = restoring->archive.count;

	if (hand_say(hand, HANDOVER_GIVE, count, restoring->bundle) ||
		hand_give(hand, restoring->fds, count) || hand_hear(hand, HANDOVER_REPLY) ||
		hand_say(hand, HANDOVER_TAKE, 0, -1))
		return -1;
	return hand_hear(hand, HANDOVER_REPLY);
}

/* The service brings device memory to the device meanwhile. */
static int fill(struct restoring *restoring)
{
	uint64_t place;

	do
		if (judge(restoring, content_await(restoring->load, &place)) || is_interrupted(restoring) ||
			hand_fill(restoring->hand, place))
			return -1;
	while (place != UINT64_MAX);
	return hand_hear(restoring->hand, HANDOVER_REPLY);
}

static int restore(struct restoring *restoring)
{
	if (open_archive(restoring) || ask(restoring) || begin_loading(restoring) ||
		make_sockets(restoring) || make_processes(restoring) || await_rest(restoring) ||
		take_all(restoring) || give(restoring))
		return -1;
	return fill(restoring);
}

static void close_all(struct restoring *restoring)
{
	content_end(restoring->load);
	close_sockets(restoring);
	for (uint32_t i = 0; restoring->fds && i < restoring->archive.count; i++)
		if (restoring->fds[i] >= 0)
			close(restoring->fds[i]);
	free(restoring->fds);
	free(restoring->sockets);
	archive_free(&restoring->archive);
	if (restoring->bundle >= 0)
		close(restoring->bundle);
	if (restoring->folder >= 0)
		close(restoring->folder);
	hand_close(restoring->hand);
}

int restore_run(const struct call *call)
{
	struct restoring restoring = {.path = call->arguments[0], .folder = -1, .bundle = -1};
	int code;

	restoring.hand = hand_open(call->path, HANDOVER_RESTORE, 0);
	if (!restoring.hand)
		return call_fail(call, -ENOMEM, "out of memory");
	sigprocmask(SIG_BLOCK, NULL, &restoring.mask);
	restore(&restoring);
	if (restoring.are_there)
		process_signal_tree(restoring.archive.root, restoring.hand->error ? SIGKILL : SIGCONT);
	sigprocmask(SIG_SETMASK, &restoring.mask, NULL);
	code = restoring.hand->error ? call_fail(call, restoring.hand->error, restoring.hand->text) : 0;
	close_all(&restoring);
	return code;
}
