// See save.h.

#include "server/tools/save.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/bytes.h"
#include "server/tools/archive.h"
#include "server/tools/ask.h"
#include "server/tools/content.h"
#include "server/tools/criu.h"
#include "server/tools/earlier.h"
#include "server/tools/hand.h"
#include "server/tools/manual.h"
#include "server/tools/process.h"

#define PATH_BYTES 4096u
/* Folders that are open at a time while a tree is removed. */
#define TREE_DEPTH 16

struct saving {
	struct hand *hand;
	char path[PATH_BYTES]; /* until it is complete */
	int folder;	       /* -1: not made yet */
	int bundle;
	struct archive archive;
	struct earlier *earlier; /* that pieces are shared with; NULL: none */
	int *fds;		 /* of its files */
	bool is_stopped;	 /* all processes */
	sigset_t mask;		 /* of signals, before that */
};

/*
 * What the service has
 */

static int take_files(struct saving *saving, uint32_t count)
{
	struct packet *packet = &saving->hand->packet;

	saving->archive.files = calloc(count + 1, sizeof(*saving->archive.files));
	saving->fds = calloc(count + 1, sizeof(*saving->fds));
	if (!saving->archive.files || !saving->fds)
		return hand_fail(saving->hand, "out of memory");
	while (saving->archive.count < count) {
		if (hand_hear(saving->hand, HANDOVER_FILES))
			return -1;
		if (!packet->fd_count)
			return hand_fail(saving->hand, "too many open files (ulimit -n)");
		for (unsigned i = 0; i < packet->fd_count && saving->archive.count < count; i++)
			saving->fds[saving->archive.count++] = packet_take_fd(packet, i);
	}
	return 0;
}

static int hear_all(struct saving *saving)
{
	if (hand_hear(saving->hand, HANDOVER_GIVE))
		return -1;
	saving->bundle = packet_take_fd(&saving->hand->packet, 0);
	if (saving->bundle < 0)
		return hand_fail(saving->hand, "too many open files (ulimit -n)");
	return take_files(saving, saving->hand->message.handover.files);
}

/*
 * What each descriptor is
 */

/* The processes are those that the service watches. */
static int find_root(struct saving *saving)
{
	struct archive *archive = &saving->archive;

	for (uint32_t i = 0; i < archive->count; i++) {
		const pid_t pid = process_of(saving->fds[i]);

		if (pid)
			archive->files[i] = (struct archive_file){.kind = ARCHIVE_PROCESS, .pid = pid};
		if (pid && (!archive->root || process_is_within(archive->root, pid)))
			archive->root = pid;
	}
	if (!archive->root)
		return hand_fail(saving->hand, "the service does not see its process");
	for (uint32_t i = 0; i < archive->count; i++)
		if (archive->files[i].pid && !process_is_within(archive->files[i].pid, archive->root))
			return hand_fail(saving->hand,
				"process %d shares device memory with process %d, which is neither its "
				"ancestor nor its descendant: CRIU cannot save them together",
				(int)archive->files[i].pid, (int)archive->root);
	return 0;
}

/* Return: false if the process does not have the socket's other end */
static bool find_socket(pid_t pid, uint64_t peer, struct archive_file *file)
{
	if (!peer || process_find_socket(pid, peer) < 0)
		return false;
	*file = (struct archive_file){.kind = ARCHIVE_SOCKET, .pid = pid, .place = peer};
	return true;
}

static bool find_mapping(
	struct process_maps **list, pid_t pid, const struct stat *status, struct archive_file *file)
{
	const struct process_maps *maps = process_maps_of(list, pid);
	const uint64_t address = maps ? process_find_mapping(maps, status) : 0;

	if (address)
		*file = (struct archive_file){.kind = ARCHIVE_MAPPING, .pid = pid, .place = address};
	return address;
}

static bool find_event(pid_t pid, int fd, struct archive_file *file)
{
	const int number = process_find_event(pid, fd);

	if (number >= 0)
		*file = (struct archive_file){
			.kind = ARCHIVE_DESCRIPTOR, .pid = pid, .place = (uint64_t)number};
	return number >= 0;
}

/* Return: false if none of the processes has the file */
static bool find(
	const struct saving *saving, struct process_maps **maps, uint32_t i, const struct stat *status)
{
	const struct archive *archive = &saving->archive;
	struct archive_file *file = &archive->files[i];
	const int fd = saving->fds[i];
	const uint64_t peer = S_ISSOCK(status->st_mode) ? process_peer(fd) : 0;
	bool found = false;

	for (uint32_t j = 0; !found && j < archive->count; j++) {
		const pid_t pid = archive->files[j].kind == ARCHIVE_PROCESS ? archive->files[j].pid : 0;

		if (pid && S_ISSOCK(status->st_mode))
			found = find_socket(pid, peer, file);
		else if (pid && S_ISREG(status->st_mode))
			found = find_mapping(maps, pid, status, file);
		else if (pid)
			found = find_event(pid, fd, file);
	}
	return found;
}

static int find_each(struct saving *saving, struct process_maps **maps)
{
	struct stat status;

	for (uint32_t i = 0; i < saving->archive.count; i++) {
		if (saving->archive.files[i].pid)
			continue;
		if (fstat(saving->fds[i], &status) < 0)
			return hand_fail(saving->hand, "a file of it cannot be read: %s", strerror(errno));
		if (find(saving, maps, i, &status))
			continue;
		if (!S_ISREG(status.st_mode))
			return hand_fail(saving->hand,
				"it shares memory with another device, or with a process that "
				"is not saved with it");
		saving->archive.files[i] = (struct archive_file){.kind = ARCHIVE_CONTENT};
	}
	return 0;
}

static int find_all(struct saving *saving)
{
	struct process_maps *maps = NULL;
	int r = find_root(saving);

	r = r ? r : find_each(saving, &maps);
	process_free_maps(maps);
	return r;
}

/*
 * The processes
 */

static size_t list_sockets(const struct archive *archive, struct criu_socket *sockets)
{
	size_t count = 0;

	for (uint32_t i = 0; i < archive->count; i++)
		if (archive->files[i].kind == ARCHIVE_SOCKET)
			sockets[count++] = (struct criu_socket){.inode = archive->files[i].place, .fd = -1};
	return count;
}

static int save_processes(struct saving *saving)
{
	struct criu_socket *sockets = calloc(saving->archive.count, sizeof(*sockets));
	char path[PATH_BYTES + 20], text[CRIU_TEXT];

	if (!sockets)
		return hand_fail(saving->hand, "out of memory");
	snprintf(path, sizeof(path), "%s/process", saving->path);
	process_hold_signals(&saving->mask);
	if (mkdirat(saving->folder, "process", 0700))
		hand_fail(saving->hand, "%s cannot be made: %s", path, strerror(errno));
	else if (criu_dump(
			 saving->archive.root, path, sockets, list_sockets(&saving->archive, sockets), text))
		hand_fail(saving->hand, "%s", text);
	else
		saving->is_stopped = true;
	free(sockets);
	if (saving->is_stopped)
		return 0;
	sigprocmask(SIG_SETMASK, &saving->mask, NULL);
	return -1;
}

/* A question that the service had not read is asked again; an answer that the program has not read
 * may have come with descriptors. */
static int save_packet(struct saving *saving, uint32_t i)
{
	struct archive_file *file = &saving->archive.files[i];
	int fd = process_take(file->pid, process_find_socket(file->pid, file->place));
	uint8_t byte;
	ssize_t got;
	bool is_answered;

	if (fd < 0)
		return hand_fail(saving->hand, "its socket cannot be seen: %s", strerror(-fd));
	is_answered = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
	close(fd);
	if (is_answered)
		return hand_fail(saving->hand, "its program has not read an answer; try again");
	file->packet = malloc(WIRE_PACKET_MAX);
	if (!file->packet)
		return hand_fail(saving->hand, "out of memory");
	got = recv(saving->fds[i], file->packet, WIRE_PACKET_MAX, MSG_PEEK | MSG_DONTWAIT);
	file->packet_bytes = got > 0 ? (size_t)got : 0;
	if (got <= 0) {
		free(file->packet);
		file->packet = NULL;
	}
	return 0;
}

static int save_packets(struct saving *saving)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < saving->archive.count; i++)
		if (saving->archive.files[i].kind == ARCHIVE_SOCKET)
			r = save_packet(saving, i);
	return r;
}

/*
 * The folder
 */

static int make_folder(struct saving *saving, const char *path)
{
	if (snprintf(saving->path, sizeof(saving->path), "%s.part", path) >= (int)sizeof(saving->path))
		return hand_fail(saving->hand, "the path is too long");
	if (!access(path, F_OK))
		return hand_fail(saving->hand, "%s exists already", path);
	if (mkdir(saving->path, 0700))
		return hand_fail(saving->hand, "%s cannot be made: %s", saving->path, strerror(errno));
	saving->folder = open(saving->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return saving->folder < 0
		       ? hand_fail(saving->hand, "%s cannot be opened: %s", saving->path, strerror(errno))
		       : 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

static int write_all(struct saving *saving)
{
	int r = content_store_bundle(saving->folder, saving->bundle, &saving->archive);

	r = r ? r : content_store(saving->folder, &saving->archive, saving->fds, saving->earlier);
	r = r ? r : archive_write(saving->folder, &saving->archive);
	/* All of it is on the disk before it has its name. */
	if (!r && syncfs(saving->folder))
		r = -errno;
	if (r == -EBADMSG)
		return hand_fail(saving->hand, "a program of it has ended while it was saved");
	return r ? hand_fail(saving->hand, "%s cannot be written: %s", saving->path, strerror(-r)) : 0;
}

/*
 * All of it
 */

static void let_go(struct saving *saving, int signal)
{
	if (!saving->is_stopped)
		return;
	process_signal_tree(saving->archive.root, signal);
	saving->is_stopped = false;
	sigprocmask(SIG_SETMASK, &saving->mask, NULL);
}

static int measure(struct saving *saving)
{
	int r = content_measure(&saving->archive, saving->fds);

	return r ? hand_fail(saving->hand, "a file of it cannot be read: %s", strerror(-r)) : 0;
}

/* The set goes on. A refusal: it has done so before. */
static int answer(struct saving *saving)
{
	return hand_reply(saving->hand) || hand_hear(saving->hand, HANDOVER_REPLY) ? -1 : 0;
}

/* Device memory of which the service had a copy on the device is in files later. */
static int await_files(struct saving *saving)
{
	if (!saving->hand->message.handover.files)
		return 0;
	return hand_hear(saving->hand, HANDOVER_REPLY) ? -1 : measure(saving);
}

/* The processes end, if they are to, which is the last thing to do. */
static int save(struct saving *saving, const struct call *call)
{
	const char *path = call->arguments[1];

	if (make_folder(saving, path) || hear_all(saving) || find_all(saving) || save_processes(saving) ||
		save_packets(saving) || measure(saving) || answer(saving))
		return -1;
	if (!call->end)
		let_go(saving, SIGCONT);
	/* Files that are open here keep their content. */
	if (await_files(saving) || write_all(saving))
		return -1;
	if (rename(saving->path, path))
		return hand_fail(saving->hand, "%s cannot be made: %s", path, strerror(errno));
	let_go(saving, SIGKILL);
	return 0;
}

/* There is nothing left of it. */
static void undo(struct saving *saving)
{
	let_go(saving, SIGCONT);
	hand_reply(saving->hand);
	if (saving->folder >= 0)
		nftw(saving->path, remove_one, TREE_DEPTH, FTW_DEPTH | FTW_PHYS);
}

/* What the memory takes on the disk. Return: exit code */
static int report(const struct saving *saving, const struct call *call)
{
	const uint64_t stored = archive_bytes(&saving->archive, ARCHIVE_STORED),
		       shared = archive_bytes(&saving->archive, ARCHIVE_SHARED);
	json_t *root;
	int code;

	if (call->json) {
		root = json_pack(
			"{s:I, s:I}", "stored_bytes", (json_int_t)stored, "shared_bytes", (json_int_t)shared);
		code = command_print(root);
		json_decref(root);
		return code;
	}
	printf("%s stored", BYTES_OF(stored));
	if (call->since)
		printf(", %s shared with %s", BYTES_OF(shared), call->since);
	puts("");
	return manual_flush(stdout);
}

static void close_all(struct saving *saving)
{
	for (uint32_t i = 0; i < saving->archive.count; i++)
		close(saving->fds[i]);
	free(saving->fds);
	archive_free(&saving->archive);
	earlier_close(saving->earlier);
	if (saving->bundle >= 0)
		close(saving->bundle);
	if (saving->folder >= 0)
		close(saving->folder);
	hand_close(saving->hand);
}

/* Before the programs stop. Return: exit code */
static int open_earlier(struct saving *saving, const struct call *call)
{
	char why[ARCHIVE_TEXT], text[HAND_TEXT];

	if (!call->since)
		return 0;
	saving->earlier = earlier_open(call->since, why);
	if (saving->earlier)
		return 0;
	snprintf(text, sizeof(text), "%.200s %s", call->since, why);
	return call_fail(call, ASK_E_REFUSED, text);
}

int save_run(const struct call *call)
{
	struct saving saving = {.folder = -1, .bundle = -1};
	int code = open_earlier(&saving, call);

	if (code)
		return code;
	saving.hand = hand_open(call->path, HANDOVER_SAVE, strtoull(call->arguments[0], NULL, 10));
	if (!saving.hand) {
		earlier_close(saving.earlier);
		return call_fail(call, -ENOMEM, "out of memory");
	}
	if (save(&saving, call)) {
		undo(&saving);
		code = call_fail(call, saving.hand->error, saving.hand->text);
	} else {
		code = report(&saving, call);
	}
	close_all(&saving);
	return code;
}
