// The memory of suspended sessions: files in host memory, and in a folder when the budget of their
// user is used up (swap_host_bytes, swap_directory). Files of a folder have no name: the kernel
// frees their room when nobody has them open any more.

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/bytes.h"
#include "server/config/config.h"
#include "server/config/terms.h"
#include "server/file.h"
#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/session.h"
#include "server/standby/swap_inside.h"

/*
 * The budget: each owner's. Without one of the operator's, an owner leaves half as much as he has
 * to the others, so nobody ever has all.
 */

uint64_t swap_most_bytes(const struct daemon *daemon)
{
	uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	return bytes / 4 * 3 / daemon_devices(daemon);
}

void swap_add_bytes(const struct session *session, struct swap_bytes *bytes)
{
	const struct holdings *holdings = &session->holdings;
	uint64_t own = holdings->away ? holdings->away_bytes : holdings_chunk_bytes(holdings);

	if (!session->swap_files[0])
		return;
	/* Only files in memory have seals. */
	if (fcntl(session->swap_files[0]->fd, F_GET_SEALS) >= 0)
		bytes->host += own;
	else
		bytes->directory += own;
}

struct swap_bytes swap_bytes_of(const struct daemon *daemon, const uid_t *owner)
{
	const struct session *session;
	struct swap_bytes bytes = {0};

	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (!owner || session->owner == *owner)
			swap_add_bytes(session, &bytes);
	return bytes;
}

static uint64_t less(uint64_t from, uint64_t what)
{
	return from > what ? from - what : 0;
}

/* @own: bytes of the owner in host memory */
static uint64_t budget(const struct daemon *daemon, uid_t owner, uint64_t own)
{
	uint64_t others = swap_bytes_of(daemon, NULL).host - own;
	uint64_t left = less(swap_most_bytes(daemon), others);
	struct terms terms;

	terms_of_user(&daemon->rules, owner, &terms);
	if (!terms.swap_host_bytes)
		return left / 3 * 2;
	return terms.swap_host_bytes < left ? terms.swap_host_bytes : left;
}

uint64_t swap_budget(const struct daemon *daemon, uid_t owner)
{
	return budget(daemon, owner, swap_bytes_of(daemon, &owner).host);
}

static uint64_t host_room(const struct daemon *daemon, uid_t owner)
{
	const uint64_t own = swap_bytes_of(daemon, &owner).host;

	return less(budget(daemon, owner, own), own);
}

uint64_t swap_room(const struct daemon *daemon, uid_t owner)
{
	return *daemon->config->swap_directory ? UINT64_MAX : host_room(daemon, owner);
}

const char *swap_refuses_bytes(const struct daemon *daemon, uid_t owner, uint64_t bytes)
{
	static char text[200];

	if (bytes <= swap_room(daemon, owner))
		return NULL;
	snprintf(text, sizeof(text),
		"user %u may have %s of device memory in host memory (swap_host_bytes): %s are there, and "
		"%s more are not allowed",
		(unsigned)owner, BYTES_OF(swap_budget(daemon, owner)),
		BYTES_OF(swap_bytes_of(daemon, &owner).host), BYTES_OF(bytes));
	return text;
}

/*
 * The files
 */

/* @directory: NULL: in host memory; @folder: of huge pages there, or negative. Return: negative:
 * there is none, see errno */
static int open_file(const char *directory, int folder)
{
	int fd;

	if (!directory)
		return file_in_memory(folder, "frmps-swap");
	fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
	/* Not every file system has direct I/O. */
	return fd < 0 && errno == EINVAL ? open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : fd;
}

/* Return: NULL on failure, see errno */
static struct shared_fd *make_file(
	const struct daemon *daemon, const char *directory, int folder, uint64_t bytes)
{
	int fd = open_file(directory, folder), error;
	struct shared_fd *file;

	if (fd >= 0 && (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)bytes) < 0)) {
		error = errno;
		close(fd);
		errno = error;
		return NULL;
	}
	file = shared_fd_new(fd);
	if (file && shared_fd_deposit(file, daemon->store))
		file = shared_fd_unref(file);
	return file;
}

/* All members have the same files. */
static void give_files(const struct swap *swap, struct shared_fd *const files[KEPT_SWAP_FILES])
{
	struct session *session;

	TAILQ_FOREACH (session, &swap->members, swap_link)
		for (unsigned i = 0; i < KEPT_SWAP_FILES; i++)
			session->swap_files[i] = shared_fd_ref(files[i]);
}

const char *swap_make_files(struct swap *swap)
{
	const uid_t owner = swap_first(swap)->owner;
	const char *directory = swap->daemon->config->swap_directory;
	const char *refusal = swap_refuses_bytes(swap->daemon, owner, swap->pieces.bytes);
	struct shared_fd *files[KEPT_SWAP_FILES];
	unsigned made = 0;
	bool complete;
	int folder;

	if (refusal)
		return refusal;
	if (swap->pieces.bytes <= host_room(swap->daemon, owner))
		directory = NULL;
	folder = directory ? -1 : file_huge_folder();
	while (made < KEPT_SWAP_FILES &&
		(files[made] = make_file(swap->daemon, directory, folder, swap->pieces.bytes)))
		made++;
	complete = made == KEPT_SWAP_FILES;
	if (!complete && directory)
		log_warning("no file can be made in %s (swap_directory): %s", directory, strerror(errno));
	if (folder >= 0)
		close(folder);
	if (complete)
		give_files(swap, files);
	while (made--)
		shared_fd_unref(files[made]);
	if (complete)
		return NULL;
	return directory ? "no file for it can be made in swap_directory (the log says why)"
			 : "the service has no memory or no file descriptors left";
}

void swap_empty_files(const struct session *session, const struct piece *piece)
{
	/* Each file has a part. A file system that cannot do this has the pages until the others'
	 * memory is back. */
	for (unsigned i = 0; i < KEPT_SWAP_FILES; i++)
		fallocate(session->swap_files[i]->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)piece->chunk->place, (off_t)piece->bytes);
}
