// The daemon's end of what outlives it: descriptors deposited with the holder, and records in
// shared memory. Daemon, loop thread only. A NULL store is one that keeps nothing: every function
// takes it.
//
// A record is a private struct of a few hundred bytes under a type and a key. It never changes: to
// change one is to put a new one in its place. Each carries a version and a checksum; a daemon that
// dies at any instant leaves the old record or the new one. (What survives is memory, so this is
// about the order of stores of one thread, not about disks or other processors.)

#ifndef FRMPS_SERVER_HOLDER_STORE_H
#define FRMPS_SERVER_HOLDER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct legacy;
struct record;
struct store;

enum record_type {
	RECORD_NONE,
	RECORD_SERVICE,
	RECORD_DEVICE,
	RECORD_DOMAIN,
	RECORD_WORKER,
	RECORD_SESSION,
	RECORD_HOLDING,
	RECORD_DOOMED,
	RECORD_LINGER,
	RECORD_OFFENDER,
	RECORD_RULES,
	RECORD_EVENT,
};

/* Longest payload, bytes. */
#define RECORD_MAX 65000u

/* All that a store can ever hold, bytes; a record beyond that is the end of the daemon, and of each
 * one after it. Whoever records at a program's wish asks before (store_has_room()). */
#define STORE_BYTES (UINT64_C(16) << 30)

/**
 * Maps the records of the legacy.
 * Return: NULL after an error line if they cannot be had or are damaged.
 */
struct store *store_open(const struct legacy *legacy);
/** Lets the mapping and the socket go; what is kept stays kept. Return: NULL. */
struct store *store_close(struct store *store);

/**
 * Deposits a copy of a descriptor. When this returns, a death of the daemon does not lose it. Waits
 * for a holder that does not read its messages, a second at most, and not again until it reads.
 * @ret_key: never 0; 0 without a store, and on failure
 * Return: 0, -EMFILE: the holder keeps as many as it may, or -EAGAIN: it does not read
 */
int store_deposit(struct store *store, int fd, uint32_t *ret_key);
/** Has the holder close what is kept under a key; 0 is fine. No record may name it any more. Never
 * waits. */
void store_forget(struct store *store, uint32_t key);

/**
 * The legacy's descriptor under a key, which is the caller's from now on: each can be taken once,
 * its key stays deposited. Return: -1 if there is none.
 */
int store_take(struct store *store, uint32_t key);
/** Closes and gives up what was not taken. */
void store_close_rest(struct store *store);

/** A number greater than every one before, over all lives. For keys. */
uint64_t store_serial(struct store *store);

/**
 * Puts a record, in place of `old` if that is not NULL.
 * Return: the new one, which is what store_drop() and the next store_put() want; NULL without a
 * store.
 */
const struct record *store_put(struct store *store, const struct record *old, enum record_type type,
	uint64_t key, const void *payload, size_t bytes);
/** Puts the only record of its type, in place of the one before. */
void store_put_single(struct store *store, enum record_type type, const void *payload, size_t bytes);
/** What a record with so long a payload takes of the store's memory, bytes. */
uint64_t store_share(size_t bytes);
/** Whether one finds room without the store growing beyond `most` bytes. If so, the room is there
 * for the next one. */
bool store_has_room(struct store *store, size_t bytes, uint64_t most);
/** NULL is fine. */
void store_drop(struct store *store, const struct record *record);

/** The records of a type, by key; the list is the caller's to free. Return: their number. */
size_t store_list(struct store *store, enum record_type type, const struct record ***ret_records);
/** Copies a payload of exactly this size, or its first part of it. Return: whether it is that
 * long. */
bool record_read(const struct record *record, void *ret_payload, size_t bytes);
uint64_t record_key(const struct record *record);
/** The payload in place, valid until the record is dropped. */
const void *record_payload(const struct record *record, size_t *ret_bytes);

/** Something that the holder says. */
enum store_event { STORE_NOTHING, STORE_ENDED, STORE_STOP, STORE_SYNCED };
/** The socket on which it says so, for polling. */
int store_socket(const struct store *store);
/** @ret_pid, @ret_status: for STORE_ENDED. @ret_count: for STORE_SYNCED, how many store_sync() it
 * answers */
enum store_event store_hear(struct store *store, pid_t *ret_pid, int *ret_status, unsigned *ret_count);
/** The end of a process has been dealt with, in the order in which ends were said. */
void store_settle(struct store *store);
/**
 * Asks for STORE_SYNCED: then the holder has closed everything that was forgotten before.
 * Return: false without a store: nobody has to close anything
 */
bool store_sync(struct store *store);
/** Everything is adopted. */
void store_up(struct store *store);

/** Has the holder look at what was forgotten, settled and asked for since the last time. Once in a
 * turn of the loop: each look costs the holder a walk over all keys. */
void store_ring(struct store *store);

#endif
