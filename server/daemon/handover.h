// The messages between two daemons of a service when a session goes from one device to another. One
// daemon is the giver (daemon/depart.h), the other the receiver (adopt/arrive.h).
//
//   giver                                     receiver
//   ── HELLO, the key ──────────────────────►            takes no descriptor from a stranger
//   ◄───────────────────────────── REPLY ────
//   ── ASK, a bundle ───────────────────────►            checks room, addresses and limits
//   ◄───────────────────────────── REPLY ────
//   moves the session's memory to the host
//   ── GIVE, a bundle; FILES, descriptors ──►            records the session, prepares executors
//   ◄───────────────────────────── REPLY ────
//   has the executor detach the session
//   ── TAKE ────────────────────────────────►            transfer_take(): the receiver owns the session
//   ◄───────────────────────────── REPLY ────
//
// Before TAKE, silence, a hang-up or an error of either side ends the transfer, and the giver keeps
// the session. A lost REPLY to TAKE is harmless: both daemons read the outcome in the shared table
// (transfer.h).
//
// A bundle is a file with the session's records (session/records.h). In these records, descriptors
// have the numbers 1, 2, 3, … in the order of FILES. The reader checks a bundle like a record of an
// earlier life of the daemon. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_HANDOVER_H
#define FRMPS_SERVER_DAEMON_HANDOVER_H

#include <stdint.h>

#include "protocol/wire.h"
#include "server/identity.h"
#include "server/session/partition.h"
#include "server/session/records.h"
#include "server/session/session.h"

struct connection;
struct shared_fd;

enum handover_step {
	HANDOVER_NOTHING,
	HANDOVER_HELLO,
	HANDOVER_ASK,
	HANDOVER_GIVE,
	HANDOVER_FILES,
	HANDOVER_TAKE,
	HANDOVER_REPLY
};

/* The beginning of a bundle. */
struct handover_head {
	struct session_record session;
	uint64_t number;
	struct identity identity;	 /* of the session's executors */
	char partition[PARTITION_LABEL]; /* of the SM partition: label or name; empty: none */
	uint32_t capability;		 /* compute capability of the device */
	uint32_t files;
	uint64_t record_count; /* of holdings */
	uint64_t device_bytes; /* device memory that goes with the session */
};

/* The record of a holding in a bundle. */
struct handover_record {
	struct kept_holding *kept;
	size_t bytes;
};

/* A bundle that was read. */
struct handover {
	struct handover_head head;
	struct handover_record *records; /* head.record_count */
	uint8_t *bytes;			 /* behind the records */
};

/* Descriptors that go with a bundle; number i is at[i - 1]. */
struct handover_files {
	struct shared_fd **at;
	uint32_t count, room;
};

/**
 * Writes a session into a bundle.
 * @ret_files: a reference to each descriptor; for handover_drop_files(). All zero on failure
 * @ret_fd: the caller's
 * Return: 0 or -errno
 */
int handover_write(const struct session *session, struct handover_files *ret_files, int *ret_fd);
void handover_drop_files(struct handover_files *files);

/**
 * Reads a bundle, and checks its form: lengths, counts, numbers of descriptors.
 * @ret_handover: for handover_free(), on failure too
 * Return: 0, -EINVAL or -errno
 */
int handover_read(int fd, struct handover *ret_handover);
void handover_free(struct handover *handover);

/**
 * Puts other numbers in the place of a bundle's numbers of descriptors.
 * @keys: of descriptor i at [i]; keys[0] is 0
 */
void handover_translate(struct handover *handover, const uint32_t *keys);

/** Sends a message. @fd: NULL: none. Return: as connection_send() */
int handover_say(struct connection *connection, const struct wire_handover *what, struct shared_fd *fd);

#endif
