// The messages between two daemons of a service when sessions go from one device to another: a
// session, and all that share device memory with it, which is a set (standby/swap_set.c). One
// daemon is the giver (daemon/depart.h), the other the receiver (adopt/arrive.h).
//
//   giver                                     receiver
//   ── HELLO, the key ──────────────────────►            takes no descriptor from a stranger
//   ◄───────────────────────────── REPLY ────
//   ── ASK, a bundle ───────────────────────►            checks room, addresses and limits
//   ◄───────────────────────────── REPLY ────
//   moves the memory of the set to the host
//   ── GIVE, a bundle; FILES, descriptors ──►            records the sessions, prepares executors
//   ◄───────────────────────────── REPLY ────
//   has executors detach the sessions
//   ── TAKE ────────────────────────────────►            transfer_take(): the receiver owns the set
//   ◄───────────────────────────── REPLY ────
//
// Before TAKE, silence, a hang-up or an error of either side ends the transfer, and the giver keeps
// the set. A lost REPLY to TAKE is harmless: both daemons read the outcome in the shared table
// (transfer.h). The transfer of a set is one word there: all members arrive, or none.
//
// Tools of an operator, root or the service's own user, do the same with files (tools/save.h,
// tools/restore.h). A tool that saves begins with SAVE, whose message has a session's number, gets
// GIVE and FILES, and answers once it has the processes. The REPLY to that says that the set goes
// on, and how many files are not complete yet: with any, another REPLY follows when all are. A tool
// that restores begins with RESTORE and then is the giver, without a word in the shared table: the
// receiver owns the set from TAKE on. The sessions get new numbers. The answer to ASK says which
// files are of device memory: the tool may fill these later. Behind TAKE it says FILLED again and
// again, with the first byte that may be missing, and the receiver brings the bytes before that to
// the device. The last FILLED says that all are there, and its REPLY that the programs may go on.
// A hang-up before that ends them.
//
// A bundle is a file with the records of the sessions and of all that they hold
// (session/records.h), in this order:
//
//   handover_head │ handover_member, of each session │ length, record, padding; of each holding
//
// Records of holdings are in the order of their making, so that shared memory has the same owner
// afterwards. In all records, descriptors have the numbers 1, 2, 3, … in the order of FILES; what
// several sessions have, has one number. The reader checks a bundle like a record of an earlier
// life of the daemon. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_HANDOVER_H
#define FRMPS_SERVER_DAEMON_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/wire.h"
#include "server/identity.h"
#include "server/session/partition.h"
#include "server/session/records.h"
#include "server/session/session.h"
#include "server/standby/swap.h"

struct connection;
struct shared_fd;

enum handover_step {
	HANDOVER_NOTHING,
	HANDOVER_HELLO,
	HANDOVER_SAVE,
	HANDOVER_RESTORE,
	HANDOVER_ASK,
	HANDOVER_GIVE,
	HANDOVER_FILES,
	HANDOVER_TAKE,
	HANDOVER_FILLED,
	HANDOVER_REPLY
};

/* In the place of the device at the other end: the operator's tool, which saves the set in files or
 * restores it. */
#define HANDOVER_NO_DEVICE UINT32_MAX

/* Sessions of a bundle: as many as a device can serve, and more. */
#define HANDOVER_MEMBERS_MOST 1024u

/* The beginning of a bundle. */
struct handover_head {
	uint32_t capability; /* compute capability of the device */
	uint32_t files;
	uint32_t member_count;
	uint32_t reserved;
	uint64_t record_count; /* of holdings */
	uint64_t build;	       /* of the writer (build.h): records are this build's alone */
};

/* A session in a bundle. The first is the one that was to go. */
struct handover_member {
	struct session_record session;
	uint64_t number;
	struct identity identity;	 /* of the session's executors */
	char partition[PARTITION_LABEL]; /* of the SM partition: label or name; empty: none */
	uint64_t memory_bytes;		 /* its device memory, with all that it shares */
	uint64_t owned_bytes;		 /* the same; what several members have counts for one */
};

/* The record of a holding in a bundle. */
struct handover_record {
	struct kept_holding *kept;
	size_t bytes;
};

/* A bundle that was read. */
struct handover {
	struct handover_head head;
	struct handover_member *members; /* head.member_count: all of one user, numbers are unique */
	struct handover_record *records; /* head.record_count, each of a member */
	uint8_t *bytes;			 /* behind members and records */
};

/* Descriptors that go with a bundle; number i is at[i - 1]. */
struct handover_files {
	struct shared_fd **at;
	uint32_t count, room;
};

/**
 * Writes sessions into a bundle.
 * @sessions: a set; the first is the one that was to go
 * @ret_files: a reference to each descriptor; for handover_drop_files(). All zero on failure
 * @ret_fd: the caller's
 * Return: 0, -E2BIG: more than a bundle may have, or -errno
 */
int handover_write(const struct swap_group *sessions, struct handover_files *ret_files, int *ret_fd);
void handover_drop_files(struct handover_files *files);

/**
 * Reads a bundle, and checks its form: lengths, counts, numbers of sessions and descriptors.
 * @ret_handover: for handover_free(), on failure too
 * Return: 0; -ESTALE: another build of the daemon wrote it; -EINVAL or -errno
 */
int handover_read(int fd, struct handover *ret_handover);
void handover_free(struct handover *handover);

/** True if a descriptor may be the one of that number: a program's connection is a socket, and a
 * process a pidfd. */
bool handover_fits(const struct handover *handover, uint32_t number, int fd);

/**
 * Puts other numbers in the place of a bundle's numbers of descriptors.
 * @keys: of descriptor i at [i]; keys[0] is 0
 */
void handover_translate(struct handover *handover, const uint32_t *keys);

/** Return: place of the member with that number; head.member_count: there is none */
uint32_t handover_find_member(const struct handover *handover, uint64_t number);
/** Gives the members other numbers. @numbers: of each member, in the order of the bundle */
void handover_renumber(struct handover *handover, const uint64_t *numbers);

/** Sends a message. @fd: NULL: none. Return: as connection_send() */
int handover_say(struct connection *connection, const struct wire_handover *what, struct shared_fd *fd);

#endif
