// A folder with a saved program, or several that share device memory:
//
//   frmps.json      the manifest: what the descriptors of the bundle were; written last
//   bundle          records of the service (daemon/handover.h)
//   memory/N.PLACE  a piece of a file that only the service had: device memory, images of code. N:
//                   the file's place in the manifest; PLACE: the piece's in the file, hexadecimal
//   process/        the processes, as CRIU saves them
//
// Every file but CRIU's has a checksum (protocol/hash.h). Holes and pieces of zeros are not stored.
// A piece may be a link to the same bytes of an earlier folder (earlier.h). So nobody may write to
// pieces, which are read-only; any folder may be removed. content.h has the files, this one has
// the manifest. Any thread; an archive is one thread's.

#ifndef FRMPS_SERVER_TOOLS_ARCHIVE_H
#define FRMPS_SERVER_TOOLS_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Room for a reason, bytes. */
#define ARCHIVE_TEXT 400u

/* Most bytes of a piece: one page of device memory. Pages keep their bytes when memory before them
 * is freed and all others move up. */
#define ARCHIVE_PIECE (UINT64_C(2) << 20)

/* Room for the name of a piece. */
#define ARCHIVE_NAME 48u

/* The folder of pieces. */
#define ARCHIVE_MEMORY "memory"

/* How a descriptor of the bundle is made again. */
enum archive_kind {
	ARCHIVE_MAPPING,    /* a file that a process has mapped: at address `place` */
	ARCHIVE_DESCRIPTOR, /* a file that a process has open: as number `place` */
	ARCHIVE_SOCKET,	    /* the other end of a process's socket, whose inode is `place` */
	ARCHIVE_PROCESS,    /* of a process */
	ARCHIVE_CONTENT,    /* a file of `place` bytes, in pieces */
	ARCHIVE_KINDS
};

/* What has become of a piece, while a program is saved. */
enum archive_fate {
	ARCHIVE_UNSEEN,
	ARCHIVE_ZEROES, /* not stored, and not in the manifest */
	ARCHIVE_STORED,
	ARCHIVE_SHARED, /* with an earlier folder */
	ARCHIVE_FATES
};

/* Bytes of a file that are no hole, at most ARCHIVE_PIECE. */
struct archive_piece {
	uint64_t offset, bytes;
	uint64_t hash;
	enum archive_fate fate;
};

struct archive_file {
	enum archive_kind kind;
	pid_t pid; /* 0: CONTENT */
	uint64_t place;
	/* SOCKET: a packet that the service had not read; NULL: none */
	uint8_t *packet;
	size_t packet_bytes;
	/* CONTENT */
	struct archive_piece *pieces; /* in the order of their places */
	size_t piece_count;
	int seals; /* of a file in memory (F_GET_SEALS); -1: it can have none */
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

/** The name of a piece in the folder. @number: of its file. Return: @name */
const char *archive_name(char name[ARCHIVE_NAME], uint32_t number, const struct archive_piece *piece);

/** Bytes of all pieces with that fate. */
uint64_t archive_bytes(const struct archive *archive, enum archive_fate fate);

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
