// A folder with a saved program, or several that share device memory:
//
//   frmps.json    the manifest: what the descriptors of the bundle were; written last
//   bundle        records of the service (daemon/handover.h)
//   memory.N      content of a file that only the service had: device memory, images of code
//   process/      the processes, as CRIU saves them
//
// Every file but CRIU's has a checksum (protocol/hash.h). A sparse file is stored without its
// holes: the manifest says where its parts belong. Any thread; an archive is one thread's.

#ifndef FRMPS_SERVER_TOOLS_ARCHIVE_H
#define FRMPS_SERVER_TOOLS_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Room for a reason, bytes. */
#define ARCHIVE_TEXT 400u

/* How a descriptor of the bundle is made again. */
enum archive_kind {
	ARCHIVE_MAPPING,    /* a file that a process has mapped: at address `place` */
	ARCHIVE_DESCRIPTOR, /* a file that a process has open: as number `place` */
	ARCHIVE_SOCKET,	    /* the other end of a process's socket, whose inode is `place` */
	ARCHIVE_PROCESS,    /* of a process */
	ARCHIVE_CONTENT,    /* a file of `place` bytes, in memory.N */
	ARCHIVE_KINDS
};

/* A piece of a file that is no hole. */
struct archive_part {
	uint64_t offset, bytes;
};

struct archive_file {
	enum archive_kind kind;
	pid_t pid; /* 0: CONTENT */
	uint64_t place;
	/* SOCKET: a packet that the service had not read; NULL: none */
	uint8_t *packet;
	size_t packet_bytes;
	/* CONTENT */
	struct archive_part *parts;
	size_t part_count;
	int seals; /* of a file in memory (F_GET_SEALS); -1: it can have none */
	uint64_t hash;
};

struct archive {
	pid_t root; /* the process that CRIU saves with its children */
	struct archive_file *files;
	uint32_t count;
	uint64_t bundle_hash;
};

/** The kind, for people. */
const char *archive_kind_name(enum archive_kind kind);

/** Frees what the archive has. */
void archive_free(struct archive *archive);

/**
 * Notes parts, sizes and seals of the contents.
 * @fds: of each file of the archive; those of CONTENT are readable
 * Return: 0 or -errno
 */
int archive_measure(struct archive *archive, const int *fds);

/**
 * Stores the contents, as memory.N, and notes their hashes. Uses several threads.
 * @folder: of the archive
 * @fds: as before, measured
 * Return: 0; -EBADMSG: a file has lost bytes since it was measured; or -errno
 */
int archive_store(int folder, struct archive *archive, const int *fds);

/**
 * Makes files in memory with the contents. Uses several threads.
 * @fds: of each file of the archive: those of CONTENT become the caller's, on failure too if they
 * are not negative
 * Return: 0; -EBADMSG: a content is not what was stored; or -errno
 */
int archive_load(int folder, const struct archive *archive, int *fds);

/** Stores the bundle. Return: 0 or -errno */
int archive_store_bundle(int folder, int fd, struct archive *archive);
/** Return: as archive_load() */
int archive_load_bundle(int folder, const struct archive *archive, int *ret_fd);

/** Writes the manifest. Return: 0 or -errno */
int archive_write(int folder, const struct archive *archive);

/**
 * Reads the manifest and checks its form.
 * @ret_archive: for archive_free(), on failure too
 * @ret_text: ARCHIVE_TEXT bytes: on failure, a sentence without its subject
 * Return: 0 or -1
 */
int archive_read(int folder, struct archive *ret_archive, char *ret_text);

#endif
